//! The permissions of consumers that declare ClusterPermissions, and what follows if a consumer changes its mind, or if the
//! hub does not have the kind.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use kube::Client;
use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{LocalHub, Mark, eventually};
use serde_json::{Value, json};

use crate::support::cluster_permission::{
    cluster_permission, install_cluster_permission, install_first_cluster_permission,
};
use crate::support::world::{self, get, merge, told};
use crate::support::{Addons, Hub, SOON, USER, rights};

const GATE: &str = "--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false,\
                    ClusterProfileCredSyncer=false,ClusterProfileConsumers=true";
const IDLE: &str = "hub_addons_queue_depth{controller=\"consumer-access\"}";
const TEAM: &str = "team";

async fn hub() -> Hub {
    let accounts = ["app", "other"];
    let rules = [rights::consumer_access(&accounts), rights::cluster_permissions(&accounts), rights::kueue()];
    let rules = rules.concat();
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rules).await;
    world::create(&hub.ocm, [ocm::namespace(TEAM), ocm::cluster_set("s"), ocm::bound(TEAM, "s")]).await;
    hub
}

fn access() -> Object {
    let roles = json!([{ "clusterRole": "view" }, { "clusterRole": "edit", "namespaces": ["jobs"] }]);
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": roles });
    ocm::cluster_access(TEAM, "app", &spec)
}

/// Starts the program with a kind of permissions if one is given.
async fn start(hub: &Hub, kind: Option<&str>) -> Addons {
    world::ensure(&hub.ocm, &access()).await;
    let kind = kind.map(|kind| format!("--consumer-permissions={kind}"));
    let mut arguments = vec![GATE, "--grant-permissions"];
    arguments.extend(kind.as_deref());
    Addons::beside(hub, &arguments).await
}

async fn cluster(client: &Client, name: &str) {
    world::ensure_namespace(client, name).await;
    ManagedCluster::named(name).in_set("s").create(client).await.unwrap();
}

fn account(cluster: &str) -> Object {
    ocm::managed_service_account(cluster, "app")
}

fn permission(cluster: &str) -> Object {
    cluster_permission(cluster, "app")
}

fn work(cluster: &str) -> Object {
    let gvk = ("work.open-cluster-management.io", "v1", "ManifestWork");
    Object::new(gvk, "manifestworks", Some(cluster), "hub-addons-consumer-app")
}

async fn exists(client: &Client, object: &Object) -> Value {
    eventually(&format!("{object} exists"), SOON, async || get(client, object).await).await
}

/// The program's writes since a mark, except those for its Lease and Events.
async fn writes(hub: &Hub, mark: &Mark) -> Vec<String> {
    let requests = hub.audit().since(mark).await.unwrap().of_user(USER).writes();
    let requests = requests.matching(|it| !["leases", "events", "clusteraccesses"].contains(&&*it.resource));
    requests.iter().map(|it| format!("{} {} {}", it.verb, it.resource, it.namespace)).collect()
}

#[tokio::test]
async fn a_cluster_takes_two_writes_a_restart_none_and_the_account_is_deleted_first() {
    let hub = hub().await;
    install_cluster_permission(&hub).await;
    cluster(&hub.ocm, "c1").await;
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub, Some("ClusterPermission")).await;
    let shown = exists(&hub.ocm, &permission("c1")).await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(
        writes(&hub, &mark).await,
        ["create managedserviceaccounts c1", "create clusterpermissions c1"]
    );
    let owner = get(&hub.ocm, &account("c1")).await.unwrap();
    assert_eq!(shown["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
    assert_eq!(shown["spec"]["clusterRoleBindings"][0]["roleRef"]["name"], "view");
    assert_eq!(shown["spec"]["roleBindings"][0]["namespace"], "jobs");
    assert_eq!(get(&hub.ocm, &work("c1")).await, None);
    addons.stop().await;

    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub, Some("ClusterPermission")).await;
    cluster(&hub.ocm, "c2").await;
    exists(&hub.ocm, &permission("c2")).await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(
        writes(&hub, &mark).await,
        ["create managedserviceaccounts c2", "create clusterpermissions c2"]
    );

    // An edit by hand is undone.
    merge(&hub.ocm, &permission("c2"), &json!({ "spec": { "roleBindings": null } })).await;
    eventually("the edit is undone", SOON, async || {
        let now = get(&hub.ocm, &permission("c2")).await.unwrap();
        if now["spec"] == shown["spec"] { Ok(()) } else { Err(now.to_string()) }
    })
    .await;

    let mark = hub.audit().mark().await.unwrap();
    world::delete(&hub.ocm, &ManagedCluster::named("c1").into()).await;
    world::gone(&hub.ocm, &permission("c1")).await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(
        writes(&hub, &mark).await,
        ["delete managedserviceaccounts c1", "delete clusterpermissions c1"]
    );
}

#[tokio::test]
async fn a_version_of_the_kind_that_drops_bindings_is_reported() {
    let hub = hub().await;
    install_first_cluster_permission(&hub).await;
    cluster(&hub.ocm, "c1").await;
    let _addons = start(&hub, Some("ClusterPermission")).await;
    let note = told(&hub.ocm, &permission("c1"), "WriteRefused").await;
    assert!(note.contains("clusterpermissions c1/hub-addons-consumer-app"), "{note}");
}
