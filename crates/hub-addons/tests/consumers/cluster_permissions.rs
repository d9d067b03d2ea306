//! The permissions of consumers that declare ClusterPermissions, and what follows if a consumer changes its mind, or if the
//! hub does not have the kind.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use kube::Client;
use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{LocalHub, Mark, eventually};
use serde_json::{Value, json};

use crate::support::cluster_permission::{
    CRD, applied, cluster_permission, install_cluster_permission, install_first_cluster_permission,
};
use crate::support::world::{self, get, merge, merge_status, told};
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
async fn what_exists_of_the_other_kind_ends_when_that_of_the_configured_kind_exists() {
    let hub = hub().await;
    install_cluster_permission(&hub).await;
    cluster(&hub.ocm, "c1").await;
    let addons = start(&hub, None).await;
    exists(&hub.ocm, &work("c1")).await;
    addons.stop().await;
    for (kind, new, before) in
        [("ClusterPermission", permission("c1"), work("c1")), ("ManifestWork", work("c1"), permission("c1"))]
    {
        let mark = hub.audit().mark().await.unwrap();
        let addons = start(&hub, Some(kind)).await;
        exists(&hub.ocm, &new).await;
        world::gone(&hub.ocm, &before).await;
        addons.measures(IDLE, 0.0).await;
        assert_eq!(writes(&hub, &mark).await.len(), 2, "{kind}: one is created and one deleted");
        addons.stop().await;
    }
}

#[tokio::test]
async fn a_cluster_permission_of_another_owner_is_reported_and_left_alone() {
    let hub = hub().await;
    install_cluster_permission(&hub).await;
    cluster(&hub.ocm, "c1").await;
    let theirs = json!({ "clusterRole": { "rules": [] } });
    permission("c1").field("spec", theirs).create(&hub.ocm).await.unwrap();
    let before = get(&hub.ocm, &permission("c1")).await;
    let addons = start(&hub, Some("ClusterPermission")).await;
    let note = told(&hub.ocm, &permission("c1"), "ForeignClusterPermission").await;
    assert!(note.contains("account app"), "{note}");
    world::delete(&hub.ocm, &ocm::bound(TEAM, "s")).await;
    world::gone(&hub.ocm, &account("c1")).await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(get(&hub.ocm, &permission("c1")).await, before);
}

#[tokio::test]
async fn permissions_that_are_not_applied_are_reported() {
    let hub = hub().await;
    install_cluster_permission(&hub).await;
    cluster(&hub.ocm, "c1").await;
    let addons = start(&hub, Some("ClusterPermission")).await;
    exists(&hub.ocm, &permission("c1")).await;
    merge_status(&hub.ocm, &permission("c1"), &applied("False")).await;
    let note = told(&hub.ocm, &permission("c1"), "PermissionsNotApplied").await;
    assert!(note.contains("not found"), "{note}");
    merge_status(&hub.ocm, &permission("c1"), &applied("True")).await;
    addons.measures("hub_addons_findings{reason=\"PermissionsNotApplied\"}", 0.0).await;
}

#[tokio::test]
async fn a_hub_without_the_kind_is_reported_and_does_not_delay_the_end_of_permissions() {
    const NOT_LISTED: &str = "hub_addons_findings{reason=\"KindUnreadable\"}";
    let hub = hub().await;
    cluster(&hub.ocm, "c1").await;
    let addons = start(&hub, None).await;
    exists(&hub.ocm, &work("c1")).await;
    addons.stop().await;
    let fewer = json!([{ "clusterRole": "edit", "namespaces": ["jobs"] }]);
    merge(&hub.ocm, &access(), &json!({ "spec": { "permissions": fewer } })).await;
    let addons = start(&hub, Some("ClusterPermission")).await;
    let crd = Object::new(
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        "customresourcedefinitions",
        None,
        CRD,
    );
    let note = told(&hub.ocm, &crd, "KindUnreadable").await;
    assert!(note.contains("consumer-access: clusterpermissions") && note.contains("(not_served)"), "{note}");
    eventually("the ClusterRole view is revoked", SOON, async || {
        let now = get(&hub.ocm, &work("c1")).await.unwrap()["spec"].to_string();
        if now.contains("view") { Err(now) } else { Ok(()) }
    })
    .await;
    cluster(&hub.ocm, "c2").await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(get(&hub.ocm, &account("c2")).await, None, "an account without permissions is of no use");

    install_cluster_permission(&hub).await;
    exists(&hub.ocm, &permission("c1")).await;
    exists(&hub.ocm, &permission("c2")).await;
    addons.measures(NOT_LISTED, 0.0).await;
    // The kind is removed while the controller runs.
    hub.remove_crd(CRD).await.unwrap();
    addons.measures(NOT_LISTED, 1.0).await;
    cluster(&hub.ocm, "c3").await;
    world::delete(&hub.ocm, &ManagedCluster::named("c2").into()).await;
    world::gone(&hub.ocm, &account("c2")).await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(get(&hub.ocm, &account("c3")).await, None);
    install_cluster_permission(&hub).await;
    exists(&hub.ocm, &permission("c1")).await;
    exists(&hub.ocm, &permission("c3")).await;
    addons.measures(NOT_LISTED, 0.0).await;
}

#[tokio::test]
async fn a_hub_without_the_kind_is_no_finding_where_another_one_is_configured() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1").await;
    let addons = start(&hub, Some("ManifestWork")).await;
    exists(&hub.ocm, &work("c1")).await;
    // It has met that the kind is not served.
    addons
        .measures_at_least(
            "hub_addons_watch_errors_total{resource=\"clusterpermissions\",category=\"not_served\"}",
            1.0,
        )
        .await;
    addons.measures("hub_addons_findings{reason=\"KindUnreadable\"}", 0.0).await;
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
