//! From OCM's own gates to ours and back, and both at once without and with the chart's policies: every profile and every
//! copy remains the same object, so that no consumer loses a cluster. The gates are `ClusterProfile` of the registration controller,
//! `ClusterProfileAccessProvider` of cluster-proxy and `ClusterProfileCredSyncer` of managed-serviceaccount.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use local_hub::field::{HOME, install_chart};
use local_hub::ocm::{self, ManagedCluster};
use local_hub::{Flavour, LocalHub, Mark, Requests, Running, eventually};
use serde_json::{Value, json};

use crate::support::chart::{in_force, install, start_all};
use crate::support::credentials::{SYNCED_FROM, copied, token};
use crate::support::field::{self, UPSTREAM};
use crate::support::proxy::{NAME, anchors_in};
use crate::support::shown::{condition, profile, profiles, provider, sees};
use crate::support::world::{create, profile_of, told};
use crate::support::{Addons, Hub, SOON, USER, rights};

const TEAM: &str = "team";
/// The last one has no exclusive set.
const CLUSTERS: [&str; 3] = ["one", "two", "unset"];
/// No cluster has cluster-proxy's addon here, which its own controller does not check.
const ANY_CLUSTER: &str = "--cluster-proxy-require-addon=false";
/// The user of cluster-proxy's manager, which also sends updates that change nothing.
const PROXY: &str = "proxy-manager";
const SERVING: &str = "cluster-proxy-user-serving-cert";
const MEMBER_ID: &str = "multicluster.x-k8s.io/inventory-member-id";

/// OCM's registration controller and the managers of its addons managed-serviceaccount and cluster-proxy, with their
/// gates on.
struct Theirs([Running; 3]);

impl Theirs {
    /// With the manager of managed-serviceaccount as this user.
    async fn start(hub: &Hub, syncer: &str) -> Self {
        let registration =
            field::registration(hub, "DefaultClusterSet=true,ClusterProfile=true").await;
        let kubeconfig = hub.kubeconfig_for(syncer).unwrap();
        let arguments = [
            "manager",
            "--deploy-mode=AddOnTemplate",
            "--feature-gates=ClusterProfileCredSyncer=true",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ];
        let program = field::program("managed-serviceaccount").await;
        let environment = [("KUBECONFIG", kubeconfig.as_os_str())];
        let syncer = field::run(hub, "syncer", &program, &environment, &arguments).await;
        Self([registration, syncer, proxy_manager(hub).await])
    }

    async fn stop(self) {
        for running in self.0 {
            stop(running).await;
        }
    }
}

async fn stop(running: Running) {
    running.signal("TERM").await.unwrap();
    running.exit_status().await;
}

/// The manager of cluster-proxy, with its gate on.
async fn proxy_manager(hub: &Hub) -> Running {
    let kubeconfig = format!("--kubeconfig={}", hub.kubeconfig_for(PROXY).unwrap().display());
    let signer = format!("--signer-secret-namespace={HOME}");
    let gates = "--feature-gates=ClusterProfileAccessProvider=true";
    let arguments = [
        &*kubeconfig,
        &*signer,
        gates,
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
    ];
    let program = field::program("cluster-proxy-manager").await;
    field::run(hub, "proxy", &program, &[], &arguments).await
}

/// A hub with the CRDs that OCM ships, on which [`TEAM`] is granted the clusters; each has an account with a token.
async fn hub() -> Hub {
    let builder = LocalHub::builder().flavour(Flavour::Atomic).user(PROXY, &["system:masters"]);
    let hub = Hub::start(builder, [rights::both(), rights::syncer()].concat()).await;
    field::install_ocm(&hub).await;
    install_chart(hub.directory()).await.unwrap();
    let picked = json!({ "matchLabels": { "picked": "yes" } });
    create(
        &hub.ocm,
        [
            ocm::namespace(TEAM),
            ocm::cluster_set(TEAM),
            ocm::selecting_cluster_set("picked", &picked),
            ocm::binding(TEAM, TEAM),
            ocm::binding(TEAM, "picked"),
        ],
    )
    .await;
    for name in CLUSTERS {
        cluster(name, "first").create(&hub.ocm).await.unwrap();
        token(name, "app").create(&hub.ocm).await.unwrap();
    }
    hub
}

/// A cluster with claims that are not in the order of their names.
fn cluster(name: &str, claim: &str) -> ManagedCluster {
    let cluster =
        ManagedCluster::named(name).claim("z.example.com", claim).claim("a.example.com", "a");
    if name == "unset" { cluster.label("picked", "yes") } else { cluster.in_set(TEAM) }
}

/// Waits until each profile shows its cluster and each cluster's token is copied.
async fn complete(hub: &Hub, claim: &str) {
    sees(&hub.ocm, TEAM, &CLUSTERS).await;
    for name in CLUSTERS {
        profile(&hub.ocm, (TEAM, name), "shows its cluster", |profile| {
            let wanted = json!({ "name": "z.example.com", "value": claim });
            let properties = profile["status"]["properties"].as_array();
            properties.is_some_and(|list| list.contains(&wanted))
                && !condition(profile, "Joined").is_null()
                && !condition(profile, "ControlPlaneHealthy").is_null()
                && !provider(profile, NAME).is_null()
        })
        .await;
    }
    eventually("each token is copied", SOON, async || copies(hub).await.len() == CLUSTERS.len())
        .await;
}

/// Waits until our controllers have made everything theirs.
async fn ours(hub: &Hub) {
    for name in CLUSTERS {
        profile(&hub.ocm, (TEAM, name), "has its member id and one trust anchor", |profile| {
            profile["metadata"]["labels"][MEMBER_ID] == name && anchors_in(profile).len() == 1
        })
        .await;
        copied(&hub.ocm, TEAM, &token(name, "app")).await;
    }
}

/// Waits until each profile publishes the whole serving certificate, as cluster-proxy's own controller does.
async fn theirs(hub: &Hub) {
    let whole = serving(hub).await.unwrap();
    for name in CLUSTERS {
        profile(&hub.ocm, (TEAM, name), "publishes the serving certificate", |profile| {
            published(profile) == whole
        })
        .await;
    }
}

/// What a profile publishes as trust anchors.
fn published(profile: &Value) -> String {
    let data = provider(profile, NAME)["cluster"]["certificate-authority-data"].clone();
    String::from_utf8(serde_json::from_value::<ByteString>(data).unwrap_or_default().0).unwrap()
}

/// The serving certificate of the user server, which cluster-proxy's manager issues.
async fn serving(hub: &Hub) -> Option<String> {
    let secrets: Api<Secret> = Api::namespaced(hub.ocm.clone(), HOME);
    let data = secrets.get_opt(SERVING).await.unwrap()?.data?;
    Some(String::from_utf8(data.get("tls.crt")?.0.clone()).unwrap())
}

/// The copies, by name.
async fn copies(hub: &Hub) -> BTreeMap<String, Value> {
    let secrets: Api<Secret> = Api::namespaced(hub.ocm.clone(), TEAM);
    let list = secrets.list(&ListParams::default().labels(SYNCED_FROM)).await.unwrap();
    list.into_iter()
        .map(|it| (it.metadata.name.clone().unwrap(), serde_json::to_value(it).unwrap()))
        .collect()
}

/// The uids of all profiles and copies.
async fn identities(hub: &Hub) -> Vec<(String, String)> {
    let profiles = profiles(&hub.ocm, TEAM).list(&ListParams::default()).await.unwrap();
    let profiles = profiles.into_iter().map(|it| serde_json::to_value(it).unwrap());
    let copies = copies(hub).await;
    profiles
        .chain(copies.into_values())
        .map(|it| (it["metadata"]["name"].to_string(), it["metadata"]["uid"].to_string()))
        .collect()
}

/// The successful writes of profiles and Secrets in the team's namespace.
async fn writes(hub: &Hub, user: &str, since: &Mark) -> Requests {
    let requests = hub.audit().since(since).await.unwrap().of_user(user);
    requests.matching(|request| {
        request.namespace == TEAM
            && ["clusterprofiles", "secrets"].contains(&request.resource.as_str())
            && ["create", "update", "patch", "delete"].contains(&request.verb.as_str())
            && request.code < 400
    })
}

fn replaced(writes: &Requests) -> usize {
    writes.count(|request| ["create", "delete"].contains(&request.verb.as_str()))
}

#[tokio::test]
async fn profiles_and_copies_survive_the_migration_from_ocms_gates_and_back() {
    let hub = hub().await;
    let running = Theirs::start(&hub, UPSTREAM).await;
    complete(&hub, "first").await;
    theirs(&hub).await;
    let before = identities(&hub).await;
    running.stop().await;

    let mark = hub.audit().mark().await.unwrap();
    let addons = Addons::start(&hub, &[ANY_CLUSTER]).await;
    ours(&hub).await;
    // The projector and the syncer have seen each other's last writes.
    for controller in ["clusterprofiles", "secrets"] {
        addons
            .measures(&format!("hub_addons_queue_depth{{controller=\"{controller}\"}}"), 0.0)
            .await;
    }
    let made = writes(&hub, USER, &mark).await;
    assert_eq!(replaced(&made), 0, "{made}");
    // The member id, the transition times of the conditions and the access provider, which can be two writes if the
    // serving certificate is read later, and the record of a copy's account.
    let most = CLUSTERS.len();
    assert!(
        made.count(|it| it.resource == "clusterprofiles" && it.subresource.is_empty()) <= most,
        "{made}"
    );
    assert!(
        made.count(|it| it.resource == "clusterprofiles" && it.subresource == "status") <= 2 * most,
        "{made}"
    );
    assert!(made.count(|it| it.resource == "secrets") <= most, "{made}");
    assert_eq!(identities(&hub).await, before);
    addons.stop().await;

    let mark = hub.audit().mark().await.unwrap();
    let running = Theirs::start(&hub, UPSTREAM).await;
    // Their controllers work when they have followed a change.
    for name in CLUSTERS {
        cluster(name, "second").update(&hub.ocm).await.unwrap();
    }
    complete(&hub, "second").await;
    theirs(&hub).await;
    for user in [UPSTREAM, PROXY] {
        let made = writes(&hub, user, &mark).await;
        assert_eq!(replaced(&made), 0, "{made}");
    }
    assert_eq!(identities(&hub).await, before);

    let _addons = Addons::start(&hub, &[ANY_CLUSTER]).await;
    told(&hub.ocm, &profile_of(NAME, TEAM, "one"), "WriteRefused").await;
    assert_eq!(identities(&hub).await, before);
    running.stop().await;
}

/// The policies exempt the registration controller alone; by its user here, by its ServiceAccount in the default values.
#[tokio::test]
async fn the_charts_policies_leave_ocms_gates_no_entry_and_no_copy() {
    let hub = hub().await;
    let values = [
        "accessProvider.clusterProxy.requireAddon=false",
        &*format!("policies.clusterManagers.users={{{UPSTREAM},ocm}}"),
    ];
    install(&hub, &values).await;
    in_force(&hub).await;
    let mark = hub.audit().mark().await.unwrap();
    let running = Theirs::start(&hub, PROXY).await;
    let _addons = start_all(&hub, &["profiles", "credentials"]).await;
    complete(&hub, "first").await;
    ours(&hub).await;
    let before = identities(&hub).await;

    for round in 0..5 {
        let claim = format!("round-{round}");
        for name in CLUSTERS {
            cluster(name, &claim).update(&hub.ocm).await.unwrap();
        }
        complete(&hub, &claim).await;
    }
    // Their controllers have tried, and nothing of ours is theirs.
    eventually("cluster-proxy and the syncer are refused", SOON, async || {
        let tried = hub.audit().since(&mark).await.unwrap().of_user(PROXY);
        let refused = |resource: &str| {
            tried.count(|it| {
                it.resource == resource && it.namespace == TEAM && [403, 422].contains(&it.code)
            })
        };
        (refused("clusterprofiles") > 0 && refused("secrets") > 0)
            .then_some(())
            .ok_or(tried.to_string())
    })
    .await;
    ours(&hub).await;
    assert_eq!(identities(&hub).await, before);
    let made = writes(&hub, PROXY, &mark).await;
    assert_eq!(made.count(|it| it.resource == "secrets"), 0, "{made}");
    running.stop().await;
}
