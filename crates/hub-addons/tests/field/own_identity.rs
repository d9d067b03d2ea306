//! Applications that reach clusters by their own identity: the user server in front of cluster-proxy's own proxy server
//! and agents, on real API servers.

mod attacks;
mod changing;
pub mod raw;
mod streams;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::rbac::v1::PolicyRule;
use local_hub::field::HOME;
use local_hub::{
    Kubectl, LocalHub, Running, ServiceAccountAccess, ServingAuthority, agent, eventually, ocm,
};
use serde_json::{Value, json};

use self::raw::Raw;
use super::argocd::{self, ARGOCD, ArgoCd};
use super::tunnel::upgrade::Upgraded;
use super::tunnel::{PARTS, Tunnel, fill, lists_all};
use crate::support::chain::{CLUSTERS, fails, lists, may};
use crate::support::command::kubectl_clusterprofile;
use crate::support::field::UPSTREAM;
use crate::support::plugin::cp_creds;
use crate::support::rights::rule;
use crate::support::shown::sees;
use crate::support::{Addons, SOON, USER, pods, rights, world};

pub const ACCOUNT: &str = "hub-addons-user-server";
pub const AUDIENCE: &str = "hub-addons";
pub const HOUR: Duration = Duration::from_hours(1);

/// The hub, two clusters, the tunnel to them, and the user server with its documented permissions.
struct Scene {
    tunnel: Tunnel,
    authority: ServingAuthority,
    server: Running,
    address: SocketAddr,
}

/// An application that has nothing but its ServiceAccount.
struct Application<'a> {
    scene: &'a Scene,
    access: ServiceAccountAccess<'a>,
    token: String,
}

/// What the chart grants the user server in all namespaces, and in that of cluster-proxy.
pub fn permissions() -> [Vec<PolicyRule>; 2] {
    [
        vec![
            rule(rights::FLEET),
            rule("create tokenreviews.authentication.k8s.io"),
            rule(&format!("list,watch secrets named {ACCOUNT}")),
        ],
        vec![rule("list,watch secrets named proxy-client,proxy-server-ca")],
    ]
}

impl Scene {
    async fn start(more: &[&str]) -> Self {
        let scene = Box::pin(Self::without_accounts(more)).await;
        for cluster in CLUSTERS {
            let stage = &scene.tunnel.stage;
            ocm::managed_service_account(cluster, ACCOUNT).create(&stage.ocm).await.unwrap();
            stage.agent(cluster).await.report(ACCOUNT, HOUR).await.unwrap();
        }
        scene
    }

    /// The same where the user server has no account on the clusters yet.
    async fn without_accounts(more: &[&str]) -> Self {
        let tunnel = Box::pin(Tunnel::start()).await;
        let hub = &tunnel.stage.chain.hub;
        let access = hub.service_account(HOME, "user-server").await.unwrap();
        let [everywhere, in_home] = permissions();
        hub.grant_service_account(HOME, "user-server", everywhere).await.unwrap();
        access.grant_in_namespace(in_home).await.unwrap();
        let authority = ServingAuthority::new("user-server").unwrap();
        let certificates = hub.directory().join("user-server");
        std::fs::create_dir(&certificates).unwrap();
        let serving = authority.issue(["127.0.0.1"]).unwrap();
        std::fs::write(certificates.join("tls.crt"), serving.tls_crt()).unwrap();
        std::fs::write(certificates.join("tls.key"), serving.tls_key()).unwrap();
        let (server, address) =
            start(hub, access.kubeconfig(), &certificates, tunnel.proxy.entrypoint(), more).await;
        Self { tunnel, authority, server, address }
    }

    fn hub(&self) -> &'static LocalHub {
        &self.tunnel.stage.chain.hub
    }

    /// An application in a namespace. On each cluster it may list and watch namespaces, and list what is large; the user
    /// server's account may act as it.
    async fn application(&self, namespace: &str) -> Application<'_> {
        let read = vec![may(&["list", "watch"], "namespaces"), may(&["list"], "configmaps")];
        self.application_that(namespace, read).await
    }

    /// An Argo CD whose permissions on the clusters and cluster Secrets consumer access maintains: a ClusterRole of these
    /// rules.
    async fn declared(
        &self,
        namespace: &str,
        may_do: Vec<PolicyRule>,
        argo_cd: &Value,
    ) -> (Application<'_>, Addons) {
        let access = self.hub().service_account(namespace, "application").await.unwrap();
        let token = access.token_for(AUDIENCE, HOUR).await.unwrap().expose().to_owned();
        for cluster in CLUSTERS {
            let client = self.tunnel.stage.cluster(cluster).client_as("ocm").await.unwrap();
            let role =
                world::object("ClusterRole", None, "application").field("rules", json!(may_do));
            role.create(&client).await.unwrap();
        }
        let spec = json!({
            "identity": "Own", "serviceAccountNames": ["application"],
            "permissions": [{ "clusterRole": "application" }], "argoCD": argo_cd,
        });
        world::create(&self.tunnel.stage.ocm, [ocm::cluster_access(namespace, namespace, &spec)])
            .await;
        let process = self.consumer_access().await;
        (Application { scene: self, access, token }, process)
    }

    /// Consumer access, in a process of its own.
    async fn consumer_access(&self) -> Addons {
        let arguments = [
            "--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false,\
             ClusterProfileConsumers=true",
            "--allowed-cluster-roles=application",
            "--user-server-url=https://user-server.example/{cluster}",
        ];
        Addons::launch(&self.tunnel.stage.chain.hub, "consumers", UPSTREAM, &arguments).await
    }

    /// What the agents of a cluster do when an application is granted it: they apply the permissions, and report the token
    /// of the account.
    async fn agents_act(&self, cluster: &str, application: &Application<'_>) {
        let user =
            format!("cluster:hub:system:serviceaccount:{}:application", application.namespace());
        self.agents_apply(cluster, ACCOUNT, &user).await;
    }

    /// The same for what consumer access maintains with any account, once it names a subject.
    async fn agents_apply(&self, cluster: &str, account: &str, subject: &str) {
        let stage = &self.tunnel.stage;
        let name = format!("hub-addons-consumer-{account}");
        let work = world::object("ManifestWork", Some(cluster), &name);
        let text = format!("\"{subject}\"");
        let names = |it: &Value| it.to_string().contains(&text);
        let shown = world::becomes(&stage.ocm, &work, "names the application", names).await;
        let client = stage.cluster(cluster).client_as("ocm").await.unwrap();
        for manifest in shown["spec"]["workload"]["manifests"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let metadata = &manifest["metadata"];
            let (kind, name) = (text(&manifest["kind"]), text(&metadata["name"]));
            let mut object = world::object(&kind, metadata["namespace"].as_str(), &name);
            if world::get(&client, &object).await.is_some() {
                world::delete(&client, &object).await;
            }
            for field in ["rules", "roleRef", "subjects"] {
                if let Some(value) = manifest.get(field) {
                    object = object.field(field, value.clone());
                }
            }
            object.create(&client).await.unwrap();
        }
        let conditions = json!([{
            "type": "Applied", "status": "True", "reason": "AppliedManifestWorkComplete", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": shown["metadata"]["generation"],
        }]);
        world::merge_status(&stage.ocm, &work, &json!({ "conditions": conditions })).await;
        stage.agent(cluster).await.report(account, HOUR).await.unwrap();
    }

    /// The same with other permissions on the clusters.
    async fn application_that(&self, namespace: &str, may_do: Vec<PolicyRule>) -> Application<'_> {
        let access = self.hub().service_account(namespace, "application").await.unwrap();
        let token = access.token_for(AUDIENCE, HOUR).await.unwrap().expose().to_owned();
        let user = format!("cluster:hub:system:serviceaccount:{namespace}:application");
        let groups = ["", &format!(":{namespace}")]
            .map(|end| format!("cluster:hub:system:serviceaccounts{end}"));
        for cluster in CLUSTERS {
            let client = self.tunnel.stage.cluster(cluster).client_as("ocm").await.unwrap();
            let act = vec![
                rule(&format!("impersonate users named {user}")),
                rule(&format!("impersonate groups named {}", groups.join(","))),
            ];
            let user = world::subject("User", &user);
            let account = world::account(agent::NAMESPACE, ACCOUNT);
            for (name, rules, subject) in
                [("does", may_do.clone(), user), ("impersonates", act, account)]
            {
                let name = format!("{namespace}-{name}");
                let role = world::object("ClusterRole", None, &name).field("rules", json!(rules));
                let binding = world::binding(None, &name, ("ClusterRole", &name), subject);
                world::create(&client, [role, binding]).await;
            }
        }
        Application { scene: self, access, token }
    }
}

/// Starts the user server, and returns when it is ready.
pub async fn start(
    hub: &LocalHub,
    kubeconfig: &Path,
    certificates: &Path,
    proxy: SocketAddr,
    more: &[&str],
) -> (Running, SocketAddr) {
    let arguments = [
        "user-server".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--bind-address=127.0.0.1:0".to_owned(),
        format!("--certificate-directory={}", certificates.display()),
        format!("--proxy-server-host={}", proxy.ip()),
        format!("--proxy-server-port={}", proxy.port()),
        "--metrics-bind-address=127.0.0.1:0".to_owned(),
        "--health-probe-bind-address=127.0.0.1:0".to_owned(),
    ];
    let arguments = arguments.into_iter().chain(more.iter().map(|argument| (*argument).to_owned()));
    let program = std::env::var_os("HUB_ADDONS_PROGRAM");
    let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_hub-addons").into());
    let server = hub.run("user-server", Path::new(&program), arguments).await.unwrap();
    let address = address_of(&server, "applications").await;
    eventually("the user server works", SOON, async || {
        let log = server.log();
        if log.contains("starting to work") { Ok(()) } else { Err(log) }
    })
    .await;
    (server, address)
}

async fn address_of(server: &Running, what: &str) -> SocketAddr {
    eventually(&format!("it serves {what}"), SOON, async || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains(&format!("serving {what}")))?;
        line.split_once("address=")?.1.split(' ').next()?.parse().ok()
    })
    .await
}

impl Application<'_> {
    fn namespace(&self) -> &str {
        self.access.namespace()
    }

    /// The entry of a cluster, as a profile would publish it.
    fn stanza(&self, cluster: &str) -> Value {
        let ca = self.scene.authority.ca_pem();
        json!({
            "server": format!("https://{}/{cluster}", self.scene.address),
            "certificate-authority-data": k8s_openapi::ByteString(ca.into_bytes()),
        })
    }

    fn kubectl_with(&self, cluster: &str, user: &Value) -> Kubectl {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{ "name": "it", "cluster": self.stanza(cluster) }],
            "users": [{ "name": "it", "user": user }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
            "current-context": "it",
        });
        let path = self.file(&format!("{number}.kubeconfig"));
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        self.scene.hub().kubectl_with(&path).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scene.hub().directory().join(format!("own-{}-{name}", self.namespace()))
    }

    /// kubectl for a cluster, with the application's token.
    fn kubectl(&self, cluster: &str) -> Kubectl {
        self.kubectl_with(cluster, &json!({ "token": self.token }))
    }

    async fn raw(&self) -> Raw {
        Raw::connect(self.scene.address, &self.scene.authority.ca_pem()).await
    }
}

#[tokio::test]
async fn applications_reach_their_clusters_by_their_own_identity_until_the_grant_ends() {
    if !pods::can_run("the user server, with cluster-proxy's tunnel in pods").await {
        return;
    }
    let scene = Box::pin(Scene::start(&["--access-log", "--log-level=debug"])).await;
    let stage = &scene.tunnel.stage;
    let application = scene.application("own-team").await;
    let binding = stage.bind("own-team", &CLUSTERS).await;
    sees(&stage.ocm, "own-team", &CLUSTERS).await;

    for cluster in CLUSTERS {
        lists(&application.kubectl(cluster), cluster).await;
    }
    assert_eq!(stage.copies("own-team").await, [""; 0], "no token is stored for it");

    // Watches, and what is upgraded, deliver as they are served.
    let kubectl = application.kubectl("one");
    let mut watch =
        kubectl.start(&["get", "namespaces", "--watch", "--output=name"]).await.unwrap();
    watch.line("what is there", SOON, |line| line == "namespace/default").await.unwrap();
    let stanza = application.stanza("one");
    let path = "/api/v1/namespaces?watch=true";
    let mut upgraded = Upgraded::watch(&stanza, scene.address, &application.token, path).await;
    upgraded.sees("default").await;
    let at_cluster = stage.cluster("one").client_as("ocm").await.unwrap();
    ocm::namespace("created-later").create(&at_cluster).await.unwrap();
    watch.line("what was created", SOON, |line| line == "namespace/created-later").await.unwrap();
    tokio::time::timeout(SOON, upgraded.sees("created-later")).await.unwrap();
    tokio::time::timeout(SOON, upgraded.responds()).await.unwrap();

    fill(stage.cluster("one"), PARTS).await;
    lists_all(&kubectl, PARTS).await;
    attacks::refused(&scene, &application).await;

    // The binding ends, and with it all that is open.
    let idle = application.raw().await;
    world::delete(&stage.ocm, &binding).await;
    tokio::time::timeout(SOON, upgraded.ends()).await.unwrap();
    tokio::time::timeout(SOON, watch.exit_status()).await.unwrap();
    for cluster in CLUSTERS {
        fails(
            &application.kubectl(cluster),
            &["get", "namespaces"],
            "is not granted to the namespace own-team",
        )
        .await;
    }
    let answer = idle.asks("one/api/v1/namespaces", &application.token, "").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");

    // A request that is open when the process is told to end gets its response, and what does not end by itself is ended.
    let binding = stage.bind("own-other", &CLUSTERS).await;
    let other = scene.application("own-other").await;
    lists(&other.kubectl("two"), "two").await;
    let watch = other
        .kubectl("two")
        .start(&["get", "namespaces", "--watch", "--output=name"])
        .await
        .unwrap();
    scene.server.signal("TERM").await.unwrap();
    lists(&other.kubectl("two"), "two").await;
    assert_eq!(tokio::time::timeout(SOON, scene.server.exit_status()).await.unwrap(), Some(0));
    tokio::time::timeout(SOON, watch.exit_status()).await.unwrap();
    world::delete(&stage.ocm, &binding).await;

    // Nothing that the server prints contains a token.
    let log = scene.server.log();
    assert!(!log.contains(&application.token) && !log.contains("eyJ"), "{log}");
}

#[tokio::test]
async fn commands_ports_and_large_responses_pass_and_what_lies_between_may_restart_and_renew_its_certificates()
 {
    if !pods::can_run("streams through cluster-proxy's tunnel, in pods").await {
        return;
    }
    let mut scene = Box::pin(Scene::start(&[])).await;
    let mut addons = std::mem::take(&mut scene.tunnel.addons);
    let stage = &scene.tunnel.stage;
    streams::pod(&scene, "one").await;
    fill(stage.cluster("one"), streams::PARTS).await;
    let mut may_do = vec![
        may(&["list", "watch"], "namespaces"),
        may(&["list"], "configmaps"),
        may(&["get"], "pods"),
    ];
    may_do.extend(
        ["pods/exec", "pods/portforward"].map(|resource| may(&["get", "create"], resource)),
    );
    let application = scene.application_that("streams", may_do).await;
    let binding = stage.bind("streams", &CLUSTERS).await;
    sees(&stage.ocm, "streams", &CLUSTERS).await;
    let listed = async || {
        for cluster in CLUSTERS {
            lists(&application.kubectl(cluster), cluster).await;
        }
    };
    listed().await;
    streams::slow_and_fast(&application).await;
    let open = streams::commands_and_ports(&application).await;
    world::delete(&stage.ocm, &binding).await;
    open.ends().await;
    world::create(&stage.ocm, [binding]).await;
    listed().await;

    // An agent ends with all its connections, and another cluster notices nothing.
    let watches = async |cluster: &str| {
        let arguments = ["get", "namespaces", "--watch", "--output=name"];
        let mut watch = application.kubectl(cluster).start(&arguments).await.unwrap();
        watch.line("what is there", SOON, |line| line == "namespace/default").await.unwrap();
        watch
    };
    let (one, mut two) = (watches("one").await, watches("two").await);
    addons[0].restart().await.unwrap();
    tokio::time::timeout(SOON, one.exit_status()).await.unwrap();
    let at_cluster = stage.cluster("two").client_as("ocm").await.unwrap();
    ocm::namespace("created-later").create(&at_cluster).await.unwrap();
    two.line("what was created", SOON, |line| line == "namespace/created-later").await.unwrap();
    listed().await;
    scene.tunnel.proxy.restart_proxy_server().await.unwrap();
    tokio::time::timeout(SOON, two.exit_status()).await.unwrap();
    listed().await;

    // The authority of all certificates between the user server and the agents is replaced.
    let new = scene.tunnel.proxy.rotate().await.unwrap();
    scene.tunnel.proxy.renew(&new).await.unwrap();
    for addon in &mut addons {
        addon.renew(&new).await.unwrap();
    }
    listed().await;
}

/// Has the provisioner publish where the user server is.
async fn publish(scene: &Scene) {
    let stage = &scene.tunnel.stage;
    let ca = world::object("ConfigMap", Some(HOME), "user-server-ca");
    let ca = ca.field("data", json!({ "ca.crt": scene.authority.ca_pem() }));
    world::create(&stage.ocm, [ca]).await;
    let rule = rule("list,watch configmaps named user-server-ca");
    scene.hub().grant(USER, vec![rule]).await.unwrap();
    let arguments = [
        "--feature-gates=ClusterProfileOwnIdentityProvider=true".to_owned(),
        format!("--user-server-url=https://{}/{{cluster}}", scene.address),
        format!("--user-server-ca=configmap/{HOME}/user-server-ca/ca.crt"),
    ];
    stage.restart_with(&arguments.each_ref().map(String::as_str)).await;
}

#[tokio::test]
async fn argo_cd_deploys_to_its_clusters_by_its_own_identity_and_without_a_token() {
    if !pods::can_run("Argo CD by its own identity, with cluster-proxy's tunnel in pods").await {
        return;
    }
    let scene = Box::pin(Scene::without_accounts(&[])).await;
    let stage = &scene.tunnel.stage;
    publish(&scene).await;
    let token = scene.hub().directory().join("argocd-token");
    let own = json!({ "command": cp_creds(), "ownToken": token });
    let (application, _consumers) = scene.declared(ARGOCD, argocd::permissions(), &own).await;
    std::fs::write(&token, &application.token).unwrap();
    let binding = stage.bind(ARGOCD, &CLUSTERS).await;
    for cluster in CLUSTERS {
        scene.agents_act(cluster, &application).await;
    }
    let argo = ArgoCd::start(stage, &application.access).await;
    argo.deploys("one", "first").await;
    argo.deploys("two", "second").await;
    // An administrator walks the same way.
    let kubeconfig =
        format!("--kubeconfig={}", scene.hub().kubeconfig_for(UPSTREAM).unwrap().display());
    let walk = async |token: &Path| {
        let token = format!("--own-token={}", token.display());
        let plugin = format!("--plugin={}", cp_creds().display());
        kubectl_clusterprofile(&["test", "argocd/one", &kubeconfig, &token, &plugin]).await
    };
    let walked = walk(&token).await;
    assert!(walked.code == Some(0) && walked.stdout.contains("Kubernetes v"), "{walked:?}");
    let explain = ["explain", "argocd/one", "--all", "--output=json", &*kubeconfig];
    let explained = kubectl_clusterprofile(&explain).await;
    let codes = ["OwnIdentityAccepted", "NoAccount"]
        .map(|code| explained.stdout.contains(&format!("\"{code}\"")));
    assert_eq!(codes, [true, false], "{explained:?}");
    let stranger = scene.hub().service_account("stranger", "application").await.unwrap();
    let theirs = application.file("stranger");
    std::fs::write(&theirs, stranger.token_for(AUDIENCE, HOUR).await.unwrap().expose()).unwrap();
    let walked = walk(&theirs).await;
    let refusal =
        "hub-addons user server: the cluster one is not granted to the namespace stranger";
    assert!(walked.code == Some(1) && walked.stdout.contains(refusal), "{walked:?}");
    let secrets = ["argocd-secret", "hub-addons-cluster-one", "hub-addons-cluster-two"];
    assert_eq!(stage.copies(ARGOCD).await, secrets, "no token is stored for it");

    world::delete(&stage.ocm, &binding).await;
    for cluster in CLUSTERS {
        let name = format!("hub-addons-cluster-{cluster}");
        let secret = world::object("Secret", Some(ARGOCD), &name);
        world::gone(&stage.ocm, &secret).await;
    }
    argo.has_no_cluster("two").await;

    world::create(&stage.ocm, [binding]).await;
    for cluster in CLUSTERS {
        scene.agents_act(cluster, &application).await;
    }
    argo.deploys("two", "third").await;
    argo.deploys("one", "fourth").await;
}
