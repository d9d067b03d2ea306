//! From OCM's own gates `ClusterProfile` and `ClusterProfileCredSyncer` to ours and back, and both at once: every
//! profile and every copy remains the same object, so that no consumer loses a cluster.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use local_hub::ocm::{self, ManagedCluster};
use local_hub::{Flavour, LocalHub, Mark, Requests, Running, eventually};
use serde_json::{Value, json};

use crate::support::credentials::{OF_UID, SYNCED_FROM, copied, token};
use crate::support::field::{self, UPSTREAM};
use crate::support::shown::{condition, profile, profiles, sees};
use crate::support::world::{create, get};
use crate::support::{Addons, Hub, SOON, rights, user};

const TEAM: &str = "team";
/// The last one has no exclusive set.
const CLUSTERS: [&str; 3] = ["one", "two", "unset"];
const GATES: &str = "--feature-gates=ClusterProfileAccessProvider=false";
const MEMBER_ID: &str = "multicluster.x-k8s.io/inventory-member-id";

/// OCM's registration controller and the manager of its managed-serviceaccount addon, with their gates on.
struct Theirs([Running; 2]);

impl Theirs {
    async fn start(hub: &Hub) -> Self {
        let registration = field::registration(hub, "DefaultClusterSet=true,ClusterProfile=true").await;
        let kubeconfig = hub.kubeconfig_for(UPSTREAM).unwrap();
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
        Self([registration, syncer])
    }

    async fn stop(self) {
        for running in self.0 {
            running.signal("TERM").await.unwrap();
            running.exit_status().await;
        }
    }
}

/// A hub on which [`TEAM`] is granted the clusters; each has an account with a token.
async fn hub(flavour: Flavour) -> Hub {
    let builder = LocalHub::builder().flavour(flavour);
    let hub = Hub::start(builder, [rights::projector(), rights::syncer()].concat()).await;
    field::install_ocm(&hub).await;
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
    let cluster = ManagedCluster::named(name).claim("z.example.com", claim).claim("a.example.com", "a");
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
        })
        .await;
    }
    eventually("each token is copied", SOON, async || copies(hub).await.len() == CLUSTERS.len()).await;
}

/// Waits until our controllers have made everything theirs.
async fn ours(hub: &Hub) {
    for name in CLUSTERS {
        profile(&hub.ocm, (TEAM, name), "has its member id", |profile| {
            profile["metadata"]["labels"][MEMBER_ID] == name
        })
        .await;
        copied(&hub.ocm, TEAM, &token(name, "app")).await;
    }
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

async fn there_and_back(flavour: Flavour) {
    let hub = hub(flavour).await;
    let theirs = Theirs::start(&hub).await;
    complete(&hub, "first").await;
    let before = identities(&hub).await;
    theirs.stop().await;

    let mark = hub.audit().mark().await.unwrap();
    let addons = Addons::start(&hub, &[GATES]).await;
    ours(&hub).await;
    // The projector and the syncer have seen each other's last writes.
    for controller in ["clusterprofiles", "secrets"] {
        addons.measures(&format!("hub_addons_queue_depth{{controller=\"{controller}\"}}"), 0.0).await;
    }
    let made = writes(&hub, user(), &mark).await;
    assert_eq!(replaced(&made), 0, "{made}");
    // The member id, the transition times of the conditions, and the record of a copy's account.
    let most = CLUSTERS.len();
    assert!(made.count(|it| it.resource == "clusterprofiles" && it.subresource.is_empty()) <= most, "{made}");
    assert!(
        made.count(|it| it.resource == "clusterprofiles" && it.subresource == "status") <= most,
        "{made}"
    );
    assert!(made.count(|it| it.resource == "secrets") <= most, "{made}");
    assert_eq!(identities(&hub).await, before);
    addons.stop().await;

    let mark = hub.audit().mark().await.unwrap();
    let theirs = Theirs::start(&hub).await;
    // Their controllers work when they have followed a change.
    for name in CLUSTERS {
        cluster(name, "second").update(&hub.ocm).await.unwrap();
    }
    complete(&hub, "second").await;
    let made = writes(&hub, UPSTREAM, &mark).await;
    assert_eq!(replaced(&made), 0, "{made}");
    assert_eq!(identities(&hub).await, before);
    theirs.stop().await;
}

#[tokio::test]
async fn profiles_and_copies_survive_the_migration_from_ocms_gates_and_back() {
    there_and_back(Flavour::Map).await;
}

#[tokio::test]
async fn they_survive_it_with_the_crd_that_ocm_ships() {
    there_and_back(Flavour::Atomic).await;
}

#[tokio::test]
async fn ocms_gates_and_ours_at_once_do_not_fight() {
    let hub = hub(Flavour::Atomic).await;
    let _theirs = Theirs::start(&hub).await;
    let addons = Addons::start(&hub, &[GATES]).await;
    complete(&hub, "first").await;
    ours(&hub).await;
    let before = identities(&hub).await;
    let mark = hub.audit().mark().await.unwrap();
    let rounds = 10;
    for round in 0..rounds {
        let claim = format!("round-{round}");
        for name in CLUSTERS {
            cluster(name, &claim).update(&hub.ocm).await.unwrap();
        }
        complete(&hub, &claim).await;
    }
    addons.measures("hub_addons_queue_depth{controller=\"clusterprofiles\"}", 0.0).await;
    let (ours, theirs) = (writes(&hub, user(), &mark).await, writes(&hub, UPSTREAM, &mark).await);
    assert_eq!(replaced(&ours) + replaced(&theirs), 0, "{ours}{theirs}");
    // One of the two writes what has changed; the other may have written the same at the same time.
    let changes = rounds * CLUSTERS.len();
    assert!(ours.len() + theirs.len() <= 2 * changes, "{changes} changes, {ours}{theirs}");
    assert_eq!(identities(&hub).await, before);
    for copy in copies(&hub).await.values() {
        let account =
            token(copy["metadata"]["labels"][SYNCED_FROM].as_str().unwrap().trim_end_matches("-app"), "app");
        let uid = get(&hub.ocm, &account.account()).await.unwrap()["metadata"]["uid"].clone();
        assert_eq!(copy["metadata"]["annotations"][OF_UID], uid, "their syncer keeps our record");
    }
}
