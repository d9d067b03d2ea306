//! Argo CD: its own code reads the cluster Secrets to which `docs/argo-cd.md` leads, and it deploys through cp-creds.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use local_hub::ocm::{self, Object};
use local_hub::{Running, ServiceAccountAccess, agent, eventually};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::chain::{Application, CLUSTERS, LOST, Stage, in_one_process};
use crate::support::chart::repository;
use crate::support::plugin::cp_creds;
use crate::support::proxy::NAME;
use crate::support::shown::{profile, provider, sees};
use crate::support::world::{self, create, delete, get, gone, merge, merge_status};
use crate::support::{WHOLE_FLEET, examples, field, go_program};

/// The ConfigMap with the providers file that the guide has for Argo CD before 3.5.
fn of_the_guide() -> Value {
    let guide = fs::read_to_string(repository().join("docs/argo-cd.md")).unwrap();
    let mut blocks = guide.split("```").filter_map(|block| block.strip_prefix("yaml\n"));
    let block = blocks.find(|block| block.contains("providers.json: |")).unwrap();
    serde_saphyr::from_str(block).unwrap()
}

/// The ConfigMap of the examples, for Argo CD from 3.5 on.
fn of_the_example() -> Value {
    examples::documents("argocd", "providers.yaml").remove(0)
}

/// The flag of the example that binds tokens to the proxy.
const SERVER: &str =
    "--server=https://cluster-proxy-addon-user.open-cluster-management-addon:9092/{cluster}";

/// The plugin's configuration in such a ConfigMap, for the account and the namespace of an application.
fn exec_config(config_map: &Value, application: &Application) -> Value {
    let file = config_map["data"]["providers.json"].as_str().unwrap();
    let account = format!("account={}", application.account());
    let namespace = format!("namespace={}", application.namespace());
    let file = file.replace("account=argocd", &account).replace("namespace=argocd", &namespace);
    let file: Value = serde_json::from_str(&file).unwrap();
    let provider = &file["providers"][0];
    assert_eq!(provider["name"], NAME);
    let mut exec = provider["execConfig"].clone();
    assert_eq!(exec["command"], "/plugins/cp-creds");
    exec["command"] = json!(cp_creds());
    exec
}

/// The cluster Secret that argoproj-labs' ClusterProfile controller creates for a profile.
fn cluster_secret(profile: &Value, exec: &Value) -> Object {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let metadata = &profile["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let cluster = &provider(profile, NAME)["cluster"];
    // The proxy of the test stands elsewhere.
    let server =
        format!("--server={}{{cluster}}", text(&cluster["server"]).strip_suffix(&name).unwrap());
    let exec =
        exec.to_string().replace("{{ .ClusterProfileName }}", &name).replace(SERVER, &server);
    let mut exec: Value = serde_json::from_str(&exec).unwrap();
    // The controller does not copy it.
    exec.as_object_mut().unwrap().remove("interactiveMode");
    let extensions = cluster["extensions"].as_array().unwrap();
    let of_exec =
        extensions.iter().find(|it| it["name"] == "client.authentication.k8s.io/exec").unwrap();
    exec["config"] = of_exec["extension"].clone();
    // Argo CD's fields; it has the last two from 3.5 on.
    let fields = ["command", "args", "env", "apiVersion", "provideClusterInfo", "config"];
    assert!(exec.as_object().unwrap().keys().all(|key| fields.contains(&key.as_str())), "{exec}");
    let config = json!({
        "tlsClientConfig": { "insecure": false, "caData": cluster["certificate-authority-data"] },
        "execProviderConfig": exec,
    });
    let data = json!({ "name": name, "server": cluster["server"], "config": config.to_string() });
    let mut secret = secret_of(&namespace, &name)
        .field("stringData", data)
        .label("argocd.argoproj.io/secret-type", "cluster")
        .label("argocd.argoproj.io/cluster-profile-origin", &format!("{namespace}-{name}"));
    for (key, value) in metadata["labels"].as_object().unwrap() {
        secret = secret.label(key, value.as_str().unwrap());
    }
    secret
}

/// The name of a cluster's Secret.
fn secret_of(namespace: &str, cluster: &str) -> Object {
    world::object("Secret", Some(namespace), &format!("cluster-{cluster}"))
}

/// The profile of a cluster for an application.
async fn shown(stage: &Stage, application: &Application, cluster: &str) -> Value {
    let at = (application.namespace(), cluster);
    profile(&stage.ocm, at, "has an access provider", |it| !provider(it, NAME).is_null()).await
}

/// Permits an application what Argo CD's own manifests permit the application controller in its namespace.
async fn permit(access: &ServiceAccountAccess<'_>) {
    let file =
        "manifests/base/application-controller-roles/argocd-application-controller-role.yaml";
    let role = fs::read_to_string(field::source("argocd").await.join(file)).unwrap();
    let role: Role = serde_saphyr::from_str(&role).unwrap();
    access.grant_in_namespace(role.rules.unwrap()).await.unwrap();
}

/// The namespace of Argo CD, and the name of its account on the clusters.
pub const ARGOCD: &str = "argocd";
/// The namespace on a cluster that it deploys to.
fn target(cluster: &str) -> String {
    format!("only-in-{cluster}")
}

fn argo_object(kind: &str, plural: &str, name: &str) -> Object {
    Object::new(("argoproj.io", "v1alpha1", kind), plural, Some(ARGOCD), name)
}

fn deployment() -> Object {
    argo_object("Application", "applications", "greeting")
}

/// Argo CD's controller and repository server on a hub, and a git repository with the manifest of a ConfigMap.
pub struct ArgoCd<'a> {
    stage: &'a Stage,
    git: PathBuf,
    controller: Running,
    _others: [Running; 2],
}

/// What Argo CD may do on a cluster.
pub fn permissions() -> Vec<PolicyRule> {
    let all = || vec!["*".to_owned()];
    let (groups, resources, verbs) = (Some(all()), Some(all()), all());
    vec![PolicyRule { api_groups: groups, resources, verbs, ..PolicyRule::default() }]
}

impl<'a> ArgoCd<'a> {
    /// Installs it with an Application of that repository on the cluster `one`, and starts it as this ServiceAccount.
    pub async fn start(stage: &'a Stage, access: &ServiceAccountAccess<'_>) -> Self {
        let hub = &stage.chain.hub.hub;
        let wanted =
            |crd: &str| ["applications.argoproj.io", "appprojects.argoproj.io"].contains(&crd);
        field::install_crds(hub, "argocd", "manifests/crds", wanted).await;
        permit(access).await;
        let git = hub.directory().join("argocd-git");
        fs::create_dir(&git).unwrap();
        let labelled = |object: Object| object.label("app.kubernetes.io/part-of", "argocd");
        let project =
            json!({ "sourceRepos": ["*"], "destinations": [{ "server": "*", "namespace": "*" }] });
        let spec = json!({
            "project": "default",
            "source": { "repoURL": format!("file://{}", git.display()), "path": ".", "targetRevision": "HEAD" },
            "destination": { "name": "one", "namespace": target("one") },
        });
        let secret = world::object("Secret", Some(ARGOCD), "argocd-secret")
            .field("stringData", json!({ "server.secretkey": "secret" }));
        let objects = [
            labelled(world::object("ConfigMap", Some(ARGOCD), "argocd-cm")),
            labelled(secret),
            argo_object("AppProject", "appprojects", "default").field("spec", project),
            deployment().field("spec", spec),
        ];
        create(&stage.ocm, objects).await;

        // The repository server runs this script of Argo CD's image, which a module keeps without its mode.
        let scripts = hub.directory().join("argocd-scripts");
        fs::create_dir(&scripts).unwrap();
        let script = scripts.join("git-verify-wrapper.sh");
        fs::copy(field::source("argocd").await.join("hack/git-verify-wrapper.sh"), &script)
            .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", scripts.display(), std::env::var("PATH").unwrap());

        let run = async |name: &'static str, arguments: &[&str]| {
            let home = hub.directory();
            let socket = home.join("argocd-ask-pass.sock");
            let environment = [
                ("ARGOCD_BINARY_NAME", OsStr::new(name)),
                ("ARGOCD_ASK_PASS_SOCK", socket.as_os_str()),
                ("ARGOCD_GPG_ENABLED", OsStr::new("false")),
                ("HOME", home.as_os_str()),
                ("KUBECONFIG", access.kubeconfig().as_os_str()),
                ("PATH", OsStr::new(&path)),
            ];
            field::run(hub, name, &field::program("argocd").await, &environment, arguments).await
        };
        let (redis, port) = (format!("127.0.0.1:{}", field::free_port()), field::free_port());
        let others = [
            field::run(hub, "miniredis", &go_program::build("miniredis"), &[], &[&redis]).await,
            run(
                "argocd-repo-server",
                &[
                    "--address=127.0.0.1",
                    &format!("--port={port}"),
                    "--disable-tls",
                    "--client-ca-path=",
                    "--metrics-address=127.0.0.1",
                    &format!("--metrics-port={}", field::free_port()),
                    &format!("--redis={redis}"),
                ],
            )
            .await,
        ];
        let arguments = [
            &format!("--namespace={ARGOCD}"),
            &format!("--repo-server=127.0.0.1:{port}"),
            "--repo-server-plaintext",
            &format!("--metrics-port={}", field::free_port()),
            &format!("--redis={redis}"),
        ];
        let controller = run("argocd-application-controller", &arguments).await;
        let argo = Self { stage, git, controller, _others: others };
        argo.git(&["init", "--quiet", "--initial-branch=main"]).await;
        argo
    }

    /// Runs git in the repository, without the configuration of this machine.
    async fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=test", "-c", "user.email=test@example.com"])
            .args(arguments)
            .current_dir(&self.git)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// What the ClusterProfile controller does, with this file of providers, when the profile of the cluster `one` appears.
    async fn profile_appears(&self, application: &Application, providers: &Value) {
        let exec = exec_config(providers, application);
        let secret = cluster_secret(&shown(self.stage, application, "one").await, &exec);
        create(&self.stage.ocm, [secret]).await;
    }

    /// And when that profile is gone.
    async fn profile_is_gone(&self) {
        sees(&self.stage.ocm, ARGOCD, &[]).await;
        delete(&self.stage.ocm, &secret_of(ARGOCD, "one")).await;
    }

    /// Waits until the status of the Application satisfies a condition.
    pub async fn status(&self, what: &str, condition: impl Fn(&Value) -> bool) {
        eventually(&format!("the Application {what}"), WHOLE_FLEET, async || {
            let status = get(&self.stage.ocm, &deployment()).await.unwrap()["status"].clone();
            if condition(&status) {
                return Ok(());
            }
            let log = self.controller.log();
            let errors: Vec<_> =
                log.lines().filter(|it| it.contains(r#""level":"error""#)).collect();
            Err(format!("{status}; {}", errors[errors.len().saturating_sub(5)..].join("\n")))
        })
        .await;
    }

    /// Syncs the Application with what the repository has, and waits until this ends in a phase, if necessary after
    /// retries.
    async fn sync(&self, (text, retries): (&str, u8), phase: &str) {
        let operation = json!({
            "info": [{ "name": "text", "value": text }],
            "sync": {},
            "retry": { "limit": retries, "backoff": { "duration": "1s", "factor": 1, "maxDuration": "1s" } },
        });
        merge(&self.stage.ocm, &deployment(), &json!({ "operation": operation })).await;
        self.status(&format!("has ended the sync of {text} as {phase}"), |status| {
            let state = &status["operationState"];
            state["operation"]["info"] == operation["info"] && state["phase"] == phase
        })
        .await;
    }

    /// Commits a manifest with this text, and waits until it is deployed to this cluster.
    pub async fn deploys(&self, cluster: &str, text: &str) {
        let destination =
            json!({ "spec": { "destination": { "name": cluster, "namespace": target(cluster) } } });
        merge(&self.stage.ocm, &deployment(), &destination).await;
        let manifest = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "greeting" }, "data": { "text": text },
        });
        fs::write(self.git.join("greeting.yaml"), manifest.to_string()).unwrap();
        self.git(&["add", "."]).await;
        self.git(&["commit", "--quiet", "--message", text]).await;
        let revision = self.git(&["rev-parse", "HEAD"]).await;
        self.sync((text, 60), "Succeeded").await;
        self.status(&format!("is synced to {text}"), |status| {
            status["sync"]["status"] == "Synced"
                && status["sync"]["revision"] == revision
                && status["health"]["status"] == "Healthy"
        })
        .await;
        let client = self.stage.cluster(cluster).client_as("ocm").await.unwrap();
        let there = world::object("ConfigMap", Some(&target(cluster)), "greeting");
        assert_eq!(get(&client, &there).await.unwrap()["data"]["text"], text);
    }

    /// Waits until it does not know the cluster of the Application.
    pub async fn has_no_cluster(&self, cluster: &str) {
        let refresh =
            json!({ "metadata": { "annotations": { "argocd.argoproj.io/refresh": "normal" } } });
        merge(&self.stage.ocm, &deployment(), &refresh).await;
        let message = format!("there are no clusters with this name: {cluster}");
        let says_so = |status: &Value| {
            let conditions = status["conditions"].as_array();
            conditions
                .is_some_and(|conditions| conditions.iter().any(|it| it["message"] == *message))
        };
        self.status("has no cluster", says_so).await;
    }

    /// How often it has connected to a cluster.
    fn connections(&self) -> usize {
        self.controller.log().matches("Start syncing cluster").count()
    }
}

#[tokio::test]
async fn an_application_is_synced_across_rotations_until_its_grant_ends() {
    let stage = in_one_process().await;
    stage.account(ARGOCD, ARGOCD).await;
    let application = stage.application(ARGOCD, ARGOCD).await;
    let binding = stage.bind(ARGOCD, &CLUSTERS).await;
    let account = application.account();
    stage
        .cluster("one")
        .grant_service_account(agent::NAMESPACE, account, permissions())
        .await
        .unwrap();
    let argo = ArgoCd::start(&stage, &application.access).await;
    argo.profile_appears(&application, &of_the_example()).await;
    argo.deploys("one", "first").await;

    // Heartbeats and a restart change no profile, and so no Secret.
    let before = shown(&stage, &application, "one").await;
    let connections = argo.connections();
    assert!(connections > 0, "{}", argo.controller.log());
    for beat in 0..20 {
        let cluster = ocm::ManagedCluster::named("one").into();
        merge_status(&stage.ocm, &cluster, &json!({ "allocatable": { "cpu": beat.to_string() } }))
            .await;
    }
    stage.restart().await;
    argo.deploys("one", "second").await;
    assert_eq!(shown(&stage, &application, "one").await, before);

    // The next token is copied after the old one has become invalid.
    stage.invalidate("one", &application).await;
    argo.sync(("with an invalid token", 0), "Failed").await;
    stage.rotate("one", ARGOCD).await;
    argo.deploys("one", "third").await;
    assert_eq!(argo.connections(), connections, "{}", argo.controller.log());

    // Without the grant there is no copy, and an invalid token is not replaced. Then the cluster itself is gone.
    stage.invalidate("one", &application).await;
    delete(&stage.ocm, &binding).await;
    for copy in application.copies() {
        gone(&stage.ocm, &world::object("Secret", Some(ARGOCD), &copy)).await;
    }
    argo.sync(("without a copy", 0), "Failed").await;
    assert!(argo.controller.log().contains(LOST), "{}", argo.controller.log());
    argo.profile_is_gone().await;
    argo.has_no_cluster("one").await;

    create(&stage.ocm, [binding]).await;
    stage.rotate("one", ARGOCD).await;
    argo.profile_appears(&application, &of_the_guide()).await;
    argo.deploys("one", "fourth").await;
}
