//! The chart, installed with the real helm; and the program, run as its Deployments specify, with their
//! ServiceAccounts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use local_hub::{Cluster, Requests, eventually, ocm};
use serde_json::{Value, json};

use super::command::{Ended, hub_addons};
use super::credentials::profile as profile_of;
use super::world::profile_of as profile_by;
use super::{Addons, Hub, SOON, proxy, world};

/// The release, and the prefix of its objects' names.
pub const RELEASE: &str = "hub-addons";
/// The namespace of the release.
pub const NAMESPACE: &str = "addons";
/// Sets the registry of the image, which the chart requires.
pub const REGISTRY: &str = "--set=image.registry=registry.example.com";
/// May do everything that policies allow.
pub const MASTERS: &[&str] = &["system:masters"];

/// The path of the chart.
pub fn chart() -> PathBuf {
    repository().join("charts/hub-addons")
}

pub fn repository() -> &'static Path {
    static REPOSITORY: OnceLock<PathBuf> = OnceLock::new();
    REPOSITORY
        .get_or_init(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap())
}

/// The path of helm. The first call on a machine builds it, which takes minutes.
pub fn helm() -> &'static Path {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    HELM.get_or_init(|| program("hack/go-program.sh", &["helm"]))
}

/// The path of helm 3.
pub fn helm3() -> &'static Path {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    HELM.get_or_init(|| program("hack/go-program.sh", &["helm3"]))
}

/// The path of a program that a script builds.
pub fn program(script: &str, arguments: &[&str]) -> PathBuf {
    let script = repository().join(script);
    let output = Command::new(&script)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{} fails: {}", script.display(), output.status);
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

/// Runs helm until it ends, on a hub if there is one, with its own settings and caches.
pub async fn run<S: AsRef<OsStr>>(helm: &Path, hub: Option<&Cluster>, arguments: &[S]) -> Ended {
    let kubeconfig = hub.map(|hub| hub.kubeconfig_for("admin").unwrap());
    let home = hub.map_or_else(std::env::temp_dir, |hub| hub.directory().to_owned()).join("helm");
    let command = tokio::process::Command::new(helm)
        .args(arguments)
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"))
        .env("KUBECONFIG", kubeconfig.unwrap_or_else(|| "/nonexistent".into()))
        .env_remove("HELM_NAMESPACE")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(Duration::from_mins(4), command).await.unwrap().unwrap().into()
}

/// Installs or upgrades the chart, with values as for `helm --set`; returns the notes.
pub async fn install(hub: &Cluster, values: &[&str]) -> String {
    install_by(helm(), hub, values).await
}

/// The same with another helm.
pub async fn install_by(helm: &Path, hub: &Cluster, values: &[&str]) -> String {
    run(helm, Some(hub), &install_arguments(values)).await.succeeded()
}

/// Arguments to install or upgrade the chart.
pub fn install_arguments(values: &[&str]) -> Vec<String> {
    let values = values.iter().map(|value| format!("--set={value}"));
    upgrade_arguments(&chart()).into_iter().chain(values).collect()
}

/// The same for a package of the chart, with its default values.
pub fn upgrade_arguments(chart: &Path) -> Vec<String> {
    let (chart, namespace) = (chart.to_str().unwrap(), format!("--namespace={NAMESPACE}"));
    ["upgrade", RELEASE, chart, "--install", "--create-namespace", &namespace, REGISTRY]
        .map(str::to_owned)
        .into()
}

/// The text that the chart renders without a hub, as Argo CD does. Values are those of `helm --set`, or helm's arguments.
pub async fn rendered(release: &str, namespace: &str, values: &[&str]) -> String {
    let chart = chart().display().to_string();
    let mut arguments = vec!["template", release, &chart, "--namespace", namespace, "--skip-tests"];
    arguments.extend(["--kube-version=1.36.3", REGISTRY]);
    let argument = |value: &&str| {
        if value.starts_with("--") { (*value).to_owned() } else { format!("--set={value}") }
    };
    let values = values.iter().map(argument);
    let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).chain(values).collect();
    run(helm(), None, &arguments).await.succeeded()
}

/// The objects of the release, rendered like that.
pub async fn render(values: &[&str]) -> Vec<Value> {
    serde_saphyr::from_multiple(&rendered(RELEASE, NAMESPACE, values).await).unwrap()
}

/// The objects of a kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// The user name of a component's ServiceAccount.
pub fn user(component: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{RELEASE}-{component}")
}

/// Starts a Deployment's container as a process, with a token of its ServiceAccount, and waits until it serves its
/// probes.
///
/// Without what only a Pod has: ports of its own, and in-cluster configuration.
pub async fn start(hub: &Hub, component: &'static str) -> Addons {
    start_with(hub, component, &[]).await
}

/// The same with more arguments.
pub async fn start_with(hub: &Hub, component: &'static str, more: &[&str]) -> Addons {
    let api: Api<Deployment> = Api::namespaced(hub.ocm.clone(), NAMESPACE);
    let deployment = api.get(&format!("{RELEASE}-{component}")).await.unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let account = hub.service_account(NAMESPACE, &pod.service_account_name.unwrap()).await.unwrap();
    let arguments = pod.containers[0].args.clone().unwrap();
    let mut own = vec!["--metrics-bind-address=", "--health-probe-bind-address="];
    // The last package still has them, and its program is not here.
    own.extend(["--cluster-proxy-service=", "--cluster-proxy-port=", "--access-provider-source="]);
    own.extend(["--credential-secret-access=", "--credential-rights-copies-role="]);
    own.push("--credential-rights-tokens-role=");
    own.extend(more.iter().filter_map(|argument| argument.split_inclusive('=').next()));
    let (command, arguments) = arguments.split_first().unwrap();
    let arguments: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| !own.iter().any(|flag| argument.starts_with(flag)))
        .chain(more.iter().copied())
        .collect();
    Addons::launch_command(hub, component, command, account.kubeconfig(), &arguments).await
}

/// Runs a container of a Pod until it ends, as the ServiceAccount of the Pod.
pub async fn run_container(hub: &Hub, pod: &PodSpec, container: &Container) -> Ended {
    let account = pod.service_account_name.as_ref().unwrap();
    let account = hub.service_account(NAMESPACE, account).await.unwrap();
    let kubeconfig = format!("--kubeconfig={}", account.kubeconfig().display());
    let arguments = container.args.iter().flatten().map(String::as_str);
    hub_addons(&arguments.chain([&*kubeconfig]).collect::<Vec<_>>(), &[]).await
}

/// Starts all components that the chart has installed, and waits until they work.
pub async fn start_all(hub: &Hub, components: &[&'static str]) -> Vec<Addons> {
    let mut all = Vec::new();
    for component in components {
        all.push(start(hub, component).await);
    }
    for addons in &all {
        addons.logs("working", "all watches are synced").await;
    }
    all
}

/// The refused writes of a component since the hub started.
pub async fn refused_writes(hub: &Hub, component: &str) -> Requests {
    let requests = hub.audit().requests().await.unwrap().of_user(&user(component));
    requests.writes().matching(|request| [403, 422].contains(&request.code))
}

/// A dry run of a write.
#[derive(Debug, Clone)]
pub enum Attempt {
    Create(ocm::Object),
    Patch(ocm::Object, Value),
    PatchStatus(ocm::Object, Value),
    Delete(ocm::Object),
}

/// A change of an object's metadata.
pub fn metadata(object: &ocm::Object, patch: Value) -> Attempt {
    Attempt::Patch(object.clone(), Value::from_iter([("metadata", patch)]))
}

/// A change of an object's labels.
pub fn labels(object: &ocm::Object, labels: Value) -> Attempt {
    metadata(object, Value::from_iter([("labels", labels)]))
}

/// A finalizer on an object, which keeps it.
pub fn held(object: &ocm::Object) -> Attempt {
    metadata(object, json!({ "finalizers": [world::HOLD] }))
}

impl Attempt {
    /// Makes the dry run, and returns why it is refused.
    pub async fn by(&self, client: &Client) -> Result<(), String> {
        let (post, patch) = (
            PostParams { dry_run: true, ..PostParams::default() },
            PatchParams { dry_run: true, ..PatchParams::default() },
        );
        let delete = DeleteParams { dry_run: true, ..DeleteParams::default() };
        let (Self::Create(object)
        | Self::Patch(object, _)
        | Self::PatchStatus(object, _)
        | Self::Delete(object)) = self;
        let (api, name) = (object.api(client), object.name());
        let answer = match self {
            Self::Create(_) => api.create(&post, &object.parse().unwrap()).await.map(drop),
            Self::Patch(_, body) => api.patch(name, &patch, &Patch::Merge(body)).await.map(drop),
            Self::PatchStatus(_, body) => {
                let body = Patch::Merge(json!({ "status": body }));
                api.patch_status(name, &patch, &body).await.map(drop)
            }
            Self::Delete(_) => api.delete(name, &delete).await.map(drop),
        };
        answer.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            error => panic!("{self:?}: {error}"),
        })
    }
}

/// Each attempt is refused with these words, or let through where there are none. What is new takes the API server a moment, so
/// what is let through comes last: the policies are in force by then.
pub async fn judged(client: &Client, cases: Vec<(Attempt, &str)>) {
    judged_by(client, "", cases).await;
}

async fn judged_by(client: &Client, judge: &str, mut cases: Vec<(Attempt, &str)>) {
    cases.sort_by_key(|(_, words)| words.is_empty());
    for (attempt, words) in cases {
        eventually(&format!("{attempt:?} ends with {words:?}"), SOON, async || {
            match attempt.by(client).await {
                Ok(()) if words.is_empty() => Ok(()),
                Err(refusal)
                    if !words.is_empty() && refusal.contains(words) && refusal.contains(judge) =>
                {
                    Ok(())
                }
                answer => Err(format!("{answer:?}")),
            }
        })
        .await;
    }
}

/// The same for a user who may do everything that the policies allow, so that it is one of them that refuses.
pub async fn judged_as(hub: &Hub, who: &str, cases: Vec<(Attempt, &str)>) {
    let client = hub.client_like(who, MASTERS).await.unwrap();
    judged_by(&client, "ValidatingAdmissionPolicy", cases).await;
}

/// Waits until the installed policies are effective, which takes an API server a moment. Leaves a profile of another
/// manager in `default`.
pub async fn in_force(hub: &Hub) {
    let theirs = profile_by("somebody", "default", "theirs");
    // The kind may be new, and not served yet.
    eventually("a profile can be made", SOON, async || theirs.create(&hub.ocm).await).await;
    let lure = json!({ "accessProviders": [proxy::entry("https://eve.example", "theirs")] });
    let label = "authentication.open-cluster-management.io/synced-from";
    let marked = opaque("default", "hers").label(label, "hers");
    let account = ocm::managed_service_account("default", "hers");
    let mut probes = vec![
        ("manager-name", "eve".to_owned(), Attempt::Create(profile_of("default", "claimed"))),
        ("access-providers", "eve".to_owned(), Attempt::PatchStatus(theirs, lure)),
        ("synced-credentials", "eve".to_owned(), Attempt::Create(marked)),
        ("credentials-secrets", user("credentials"), Attempt::Create(opaque("default", "hers"))),
        ("credentials-accounts", user("credentials"), Attempt::Create(account)),
    ];
    for (policy, object) in [
        ("profiles", profile_by("somebody", "default", "hers")),
        ("profiles-rolebindings", role_binding("default", "hers")),
        ("profiles-clusterroles", cluster_role("hers")),
        ("rights-rolebindings", role_binding("default", "hers")),
        ("rights-clusterroles", cluster_role("hers")),
    ] {
        let component = policy.split('-').next().unwrap();
        probes.push((policy, user(component), Attempt::Create(object)));
    }
    for (policy, who, attempt) in probes {
        let name = format!("{RELEASE}-{policy}");
        let installed = world::object("ValidatingAdmissionPolicy", None, &name);
        if world::get(&hub.ocm, &installed).await.is_some() {
            judged_as(hub, &who, vec![(attempt, &format!("'{name}'"))]).await;
        }
    }
}

/// A Secret that is not a copy.
pub fn opaque(namespace: &str, name: &str) -> ocm::Object {
    super::credentials::secret(namespace, name).field("type", json!("Opaque"))
}

/// A RoleBinding of the role for copies to the syncer, without labels.
pub fn role_binding(namespace: &str, name: &str) -> ocm::Object {
    let role = format!("{RELEASE}-credentials-copies");
    let owner = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "uid": "1", "name": role,
    });
    let metadata = json!({ "namespace": namespace, "name": name, "ownerReferences": [owner] });
    let syncer = world::account(NAMESPACE, &format!("{RELEASE}-credentials"));
    world::binding(Some(namespace), name, ("ClusterRole", &role), syncer)
        .field("metadata", metadata)
}

/// A ClusterRole without rules.
pub fn cluster_role(name: &str) -> ocm::Object {
    world::object("ClusterRole", None, name).field("rules", json!([]))
}
