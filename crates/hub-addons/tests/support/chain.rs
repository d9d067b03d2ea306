//! An application on a hub and its clusters: real API servers on both sides, the user server between them, and kubectl
//! with only what a profile publishes and the exec plugin.

use std::path::PathBuf;
use std::process::Output;
use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use local_hub::{
    Agent, CrdSet, HubBuilder, Kubectl, LocalHub, Service, ServiceAccountAccess, ServingAuthority,
    UserServer, agent, eventually, ocm,
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::inventory::InventoryClient;
use super::plugin::cp_creds;
use super::proxy::NAME;
use super::shared::started;
use super::shown::{profile, provider, sees};
use super::{Addons, Hub, SOON, USER, field, rights, world};

/// The clusters' names on the hub.
pub const CLUSTERS: [&str; 2] = ["one", "two"];
/// The label by which sets select the clusters.
const LABEL: &str = "name";
/// kubectl's message if an API server rejects the credentials.
pub const UNAUTHORIZED: &str = "You must be logged in";
/// cp-creds' message if there is no copy, or no permission to read it.
pub const LOST: &str = "failed to get synced credential secret";

const HOUR: Duration = Duration::from_hours(1);

/// A hub with running controllers, two managed clusters, and the connections to them. Tests share it, and each has its
/// own namespaces and accounts.
pub struct Chain {
    pub hub: Hub,
    clusters: [LocalHub; 2],
    /// Resolves names that this machine cannot resolve.
    service: Option<Service>,
    /// Unless it is cluster-proxy's own.
    user_server: Option<UserServer>,
    /// What the one process is started with.
    arguments: Vec<String>,
    addons: Mutex<Vec<Addons>>,
}

impl Chain {
    /// Ends everything that runs, for a chain that one test has for itself: what it leads to lives as long as this process.
    pub fn end(&self) {
        if let Ok(mut addons) = self.addons.try_lock() {
            addons.clear();
        }
        self.clusters.iter().for_each(LocalHub::end);
        self.hub.end();
    }
}

/// One test's view of it, with a client of its own.
pub struct Stage {
    pub chain: &'static Chain,
    pub ocm: Client,
}

/// Every controller in one process, and a user server that profiles name by its address.
pub async fn in_one_process() -> Stage {
    static SHARED: OnceLock<Chain> = OnceLock::new();
    let chain = started(&SHARED, async || {
        let authority = ServingAuthority::new("user-server").unwrap();
        let serving = authority.issue(["127.0.0.1"]).unwrap();
        let (hub, clusters) = hubs().await;
        let user_server =
            UserServer::start(&serving, "127.0.0.1:0".parse().unwrap(), ways(&clusters)).unwrap();
        let rules = [rights::both(), rights::syncer()].concat();
        let hub = Hub::with_rights(hub, rules).await;
        ocm::namespace("proxy").create(&hub.ocm).await.unwrap();
        world::object("Secret", Some("proxy"), "user-server")
            .field("stringData", json!({ "tls.crt": serving.tls_crt() }))
            .create(&hub.ocm)
            .await
            .unwrap();
        let server = format!("--access-provider-server={}/{{cluster}}", user_server.url());
        let ca = "--access-provider-ca=secret/proxy/user-server/tls.crt";
        let arguments = [server.as_str(), ca];
        let addons = Mutex::new(vec![Addons::start(&hub, &arguments).await]);
        let arguments = arguments.map(str::to_owned).to_vec();
        Chain { hub, clusters, service: None, user_server: Some(user_server), arguments, addons }
    })
    .await;
    Stage { chain, ocm: chain.hub.client_as("ocm").await.unwrap() }
}

/// A stage with cluster-proxy's own user server, which the caller keeps running and `service` leads to.
pub async fn with_cluster_proxy(
    hub: Hub,
    clusters: [LocalHub; 2],
    service: Service,
    arguments: &[&str],
) -> Stage {
    let addons = Mutex::new(vec![Addons::start(&hub, arguments).await]);
    let arguments = arguments.iter().map(ToString::to_string).collect();
    let (service, user_server) = (Some(service), None);
    let ocm = hub.ocm.clone();
    // As those that tests share; it ends with `Chain::end`.
    let chain =
        Box::leak(Box::new(Chain { hub, clusters, service, user_server, arguments, addons }));
    Stage { chain, ocm }
}

/// A hub that knows its two clusters, and these; each cluster has a namespace of its name.
async fn hubs() -> (LocalHub, [LocalHub; 2]) {
    let managed = || LocalHub::builder().crds(CrdSet::None).without_controller_manager();
    let hub = field::prepare(LocalHub::builder().without_controller_manager());
    start_hubs([hub, managed(), managed()]).await
}

/// The same, configured by the caller.
pub async fn start_hubs(builders: [HubBuilder; 3]) -> (LocalHub, [LocalHub; 2]) {
    let [hub, one, two] = LocalHub::start_many(builders).await.unwrap();
    let at_hub = hub.client_as("ocm").await.unwrap();
    let clusters = [one, two];
    for (name, cluster) in CLUSTERS.iter().zip(&clusters) {
        ocm::namespace(name).create(&at_hub).await.unwrap();
        ocm::ManagedCluster::named(name).label(LABEL, name).create(&at_hub).await.unwrap();
        let at_cluster = cluster.client_as("ocm").await.unwrap();
        ocm::namespace(&format!("only-in-{name}")).create(&at_cluster).await.unwrap();
    }
    (hub, clusters)
}

fn ways(clusters: &[LocalHub; 2]) -> [(&'static str, local_hub::Upstream); 2] {
    let [one, two] = clusters.each_ref().map(LocalHub::upstream);
    [(CLUSTERS[0], one), (CLUSTERS[1], two)]
}

/// A set of these clusters.
fn selecting(name: &str, clusters: &[&str]) -> ocm::Object {
    let picks =
        json!({ "matchExpressions": [{ "key": LABEL, "operator": "In", "values": clusters }] });
    ocm::selecting_cluster_set(name, &picks)
}

/// Permissions for one resource of the core group.
pub fn may(verbs: &[&str], resource: &str) -> PolicyRule {
    rights::rule(&format!("{} {resource}", verbs.join(",")))
}

impl Stage {
    pub fn cluster(&self, name: &str) -> &'static LocalHub {
        &self.chain.clusters[CLUSTERS.iter().position(|cluster| *cluster == name).unwrap()]
    }

    /// The agent on a cluster.
    pub async fn agent(&self, cluster: &str) -> Agent {
        Agent::between(cluster, &self.chain.hub, self.cluster(cluster)).await.unwrap()
    }

    /// Restarts the controllers, which are in one process.
    pub async fn restart(&self) {
        let arguments: Vec<_> = self.chain.arguments.iter().map(String::as_str).collect();
        self.restart_with(&arguments).await;
    }

    /// The same with other arguments.
    pub async fn restart_with(&self, arguments: &[&str]) {
        let mut addons = self.chain.addons.lock().await;
        assert_eq!(addons.len(), 1, "the controllers are in one process");
        for process in addons.drain(..) {
            process.stop().await;
        }
        addons.push(Addons::start(&self.chain.hub, arguments).await);
    }

    /// The names of the Secrets in a namespace, which are copies there.
    pub async fn copies(&self, namespace: &str) -> Vec<String> {
        let secrets: Api<Secret> = Api::namespaced(self.ocm.clone(), namespace);
        let list = secrets.list(&ListParams::default()).await.unwrap();
        list.into_iter().filter_map(|secret| secret.metadata.name).collect()
    }

    /// A set of these clusters that is bound in a namespace.
    pub async fn bind(&self, namespace: &str, clusters: &[&str]) -> ocm::Object {
        selecting(namespace, clusters).create(&self.ocm).await.unwrap();
        let binding = ocm::bound(namespace, namespace);
        binding.create(&self.ocm).await.unwrap();
        binding
    }

    /// Changes which clusters the set of a namespace selects.
    pub async fn select(&self, namespace: &str, clusters: &[&str]) {
        selecting(namespace, clusters).update(&self.ocm).await.unwrap();
    }

    /// A ManagedServiceAccount whose token is copied to these namespaces; the agents of both clusters report it, and it
    /// may list and watch namespaces there.
    pub async fn account(&self, name: &str, namespaces: &str) {
        for cluster in CLUSTERS {
            let account =
                ocm::managed_service_account(cluster, name).label(ocm::SYNC_LABEL, "true");
            let account = account.annotation(ocm::SYNC_NAMESPACES_ANNOTATION, namespaces);
            account.create(&self.ocm).await.unwrap();
            self.agent(cluster).await.report(name, HOUR).await.unwrap();
            let rules = vec![may(&["list", "watch"], "namespaces")];
            self.cluster(cluster)
                .grant_service_account(agent::NAMESPACE, name, rules)
                .await
                .unwrap();
        }
    }

    /// Lets the agent of a cluster report a new token.
    pub async fn rotate(&self, cluster: &str, account: &str) {
        self.agent(cluster).await.report(account, HOUR).await.unwrap();
    }

    /// Deletes the account of an application on a cluster, and returns when the API server there, which remembers for
    /// some seconds that it has accepted a token, no longer accepts the copied one.
    pub async fn invalidate(&self, cluster: &str, application: &Application) {
        let copies: Api<Secret> = Api::namespaced(self.ocm.clone(), application.namespace());
        let copy = copies.get(&format!("{cluster}-{}", application.account())).await.unwrap();
        let token = String::from_utf8(copy.data.unwrap().remove("token").unwrap().0).unwrap();
        self.agent(cluster).await.delete_service_account(application.account()).await.unwrap();
        let reviews: Api<TokenReview> =
            Api::all(self.cluster(cluster).client_as("ocm").await.unwrap());
        let spec = TokenReviewSpec { token: Some(token), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        eventually(&format!("{cluster} does not accept the token"), SOON, async || {
            let reviewed = reviews.create(&PostParams::default(), &review).await.unwrap();
            reviewed.status.unwrap().authenticated != Some(true)
        })
        .await;
    }

    /// An application in its own namespace, whose only permission on the hub is to get the copies of an account's
    /// token.
    pub async fn application(&self, namespace: &str, account: &str) -> Application {
        let access = self.chain.hub.service_account(namespace, "application").await.unwrap();
        let application = Application {
            chain: self.chain,
            account: account.to_owned(),
            ocm: self.ocm.clone(),
            access,
        };
        let copies = application.copies().join(",");
        let right = rights::rule(&format!("get secrets named {copies}"));
        application.access.grant_in_namespace(vec![right]).await.unwrap();
        application
    }

    /// An application with bound clusters, and the account that it uses there.
    pub async fn bound_application(&self, namespace: &str, clusters: &[&str]) -> Application {
        let account = format!("{namespace}-account");
        self.account(&account, namespace).await;
        let application = self.application(namespace, &account).await;
        self.bind(namespace, clusters).await;
        application
    }
}

/// An application on the hub.
pub struct Application {
    chain: &'static Chain,
    account: String,
    ocm: Client,
    pub access: ServiceAccountAccess<'static>,
}

impl Application {
    pub fn account(&self) -> &str {
        &self.account
    }

    pub fn namespace(&self) -> &str {
        self.access.namespace()
    }

    /// The names of its own copies.
    pub fn copies(&self) -> [String; 2] {
        CLUSTERS.map(|cluster| format!("{cluster}-{}", self.account))
    }

    /// The plugin as the application calls it.
    pub fn exec(&self) -> Value {
        json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": cp_creds(),
            "args": [format!("--managed-serviceaccount={}", self.account)],
            // As in a Pod of that namespace.
            "env": [
                { "name": "KUBECONFIG", "value": self.access.kubeconfig() },
                { "name": "KUBERNETES_SERVICE_HOST", "value": "" },
                { "name": "NAMESPACE", "value": self.namespace() },
            ],
            "provideClusterInfo": true,
            "interactiveMode": "Never",
        })
    }

    /// The entry in its profile of a cluster, unchanged.
    pub async fn stanza(&self, cluster: &str) -> Value {
        let shown =
            profile(&self.ocm, (self.namespace(), cluster), "has an access provider", |profile| {
                !provider(profile, NAME).is_null()
            });
        provider(&shown.await, NAME)["cluster"].clone()
    }

    /// kubectl for a cluster.
    pub async fn kubectl(&self, cluster: &str) -> Kubectl {
        self.kubectl_by(&self.stanza(cluster).await, &self.exec()).0
    }

    /// kubectl for the entry of a profile, with this plugin configuration; and its kubeconfig.
    pub fn kubectl_by(&self, stanza: &Value, exec: &Value) -> (Kubectl, PathBuf) {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "it", "cluster": stanza }],
            "users": [{ "name": "it", "user": { "exec": exec } }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
            "current-context": "it",
        });
        let path = self.chain.hub.directory().join(format!("application-{number}.kubeconfig"));
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let kubectl = self.chain.hub.kubectl_with(&path).unwrap();
        let environment = self.chain.service.iter().flat_map(Service::environment);
        (environment.fold(kubectl, |kubectl, (name, value)| kubectl.env(name, value)), path)
    }

    /// An application with the same ServiceAccount and this plugin on cluster-inventory-api's library, which may also list
    /// the profiles of its namespace.
    pub async fn by_library(&self, exec: &Value) -> InventoryClient {
        let right = rights::rule("list clusterprofiles.multicluster.x-k8s.io");
        self.access.grant_in_namespace(vec![right]).await.unwrap();
        let directory = self.chain.hub.directory();
        InventoryClient::start(directory, self.access.kubeconfig(), self.namespace(), exec)
    }

    /// Waits until kubectl lists the namespaces of a cluster, and they are its own.
    pub async fn reaches(&self, cluster: &str) -> Kubectl {
        let kubectl = self.kubectl(cluster).await;
        lists(&kubectl, cluster).await;
        kubectl
    }
}

/// Waits until kubectl lists the namespaces of a cluster, and they are its own.
pub async fn lists(kubectl: &Kubectl, cluster: &str) {
    let (mine, prefix) = (format!("namespace/only-in-{cluster}"), "namespace/only-in-");
    eventually(&format!("kubectl lists the namespaces of {cluster}"), SOON, async || {
        let output = kubectl
            .run(&["get", "namespaces", "--output=name"])
            .await
            .map_err(|e| e.to_string())?;
        let (text, errors) = said(&output);
        let only: Vec<_> = text.lines().filter(|line| line.starts_with(prefix)).collect();
        if only == [mine.as_str()] { Ok(()) } else { Err(format!("{only:?}; {errors}")) }
    })
    .await;
}

/// Waits until kubectl fails with a text on standard error.
pub async fn fails(kubectl: &Kubectl, arguments: &[&str], text: &str) -> String {
    eventually(&format!("kubectl {arguments:?} fails with {text:?}"), SOON, async || {
        let output = kubectl.run(arguments).await.map_err(|error| error.to_string())?;
        let (_, errors) = said(&output);
        if !output.status.success() && errors.contains(text) {
            Ok(Some(errors))
        } else {
            Err(errors)
        }
    })
    .await
}

/// Deletes the only binding of an application, and waits until the application has lost access to both its clusters.
/// Checks that no request polled for it.
pub async fn locked_out(
    stage: &Stage,
    application: &Application,
    kubectl: &Kubectl,
    binding: &ocm::Object,
) {
    let (namespace, audit) = (application.namespace(), stage.chain.hub.audit());
    let copies = application.copies();
    let there = stage.copies(namespace).await;
    assert!(copies.iter().all(|copy| there.contains(copy)), "{there:?}");
    let mark = audit.mark().await.unwrap();
    world::delete(&stage.ocm, binding).await;
    let errors = fails(kubectl, &["get", "namespaces"], LOST).await;
    assert!(errors.contains("HTTP 404"), "{errors}");
    eventually("no copy is left", SOON, async || stage.copies(namespace).await.is_empty()).await;
    sees(&stage.ocm, namespace, &[]).await;

    let requests = audit.since(&mark).await.unwrap();
    let deletes =
        requests.matching(|request| request.namespace == namespace && request.verb == "delete");
    let syncer = requests.of_user(USER);
    let lost = deletes.of_user(USER).matching(|request| copies.contains(&request.name));
    assert_eq!(lost.count(|request| request.code == 200), copies.len(), "{lost}");
    let end = lost.iter().map(|delete| delete.timestamp).max();
    let looks = syncer.matching(|request| {
        ["get", "list"].contains(&request.verb.as_str())
            && request.resource != "leases"
            && Some(request.timestamp) <= end
    });
    assert!(looks.is_empty(), "watches suffice, no request polls: {looks}");
}

/// The output of kubectl.
fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
