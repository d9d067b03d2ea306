//! Who may declare which access: the policy on ClusterAccess objects, the roles of the chart for people, and what `view`,
//! `edit` and `admin` contain. Every request but those that prepare is a dry run.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::ListParams;
use kube::{Api, Client};
use local_hub::LocalHub;
use local_hub::ocm::{self, Object};
use serde_json::{Value, json};

use crate::attackers::{NO_PERMISSION, RBAC, attempts, bind, permit};
use crate::support::chart::Attempt::{Create, Delete, Patch, PatchStatus};
use crate::support::chart::{RELEASE, install};
use crate::support::{Hub, world};

const GROUP: &str = "access.open-cluster-management.io";
const BIND: &str = "permission to bind clusterroles.access.open-cluster-management.io/";

/// A hub with the chart, and a namespace `team`.
async fn hub() -> Hub {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    world::create(&hub.ocm, [ocm::namespace("team")]).await;
    install(&hub, &["consumerAccess.enabled=true", "consumerAccess.reservedAccounts={search-sa}"])
        .await;
    hub
}

/// An object that asks for these ClusterRoles.
fn access(name: &str, roles: &[&str]) -> Object {
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": permissions(roles) });
    ocm::cluster_access("team", name, &spec)
}

/// An object with this account.
fn with_account(account: &str) -> Object {
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "managedServiceAccountName": account });
    ocm::cluster_access("team", "mine", &spec)
}

fn permissions(roles: &[&str]) -> Value {
    roles.iter().map(|role| json!({ "clusterRole": role })).collect()
}

fn user(name: &str) -> Value {
    json!({ "apiGroup": RBAC, "kind": "User", "name": name })
}

async fn client(hub: &Hub, name: &str) -> Client {
    hub.client_like(name, &["system:authenticated"]).await.unwrap()
}

/// A user who may write objects in `team`, and bind these ClusterRoles.
async fn author(hub: &Hub, name: &str, roles: &[&str]) -> Client {
    bind(hub, Some("team"), &format!("{RELEASE}-clusteraccess-editor"), user(name)).await;
    let rule = json!({ "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": roles, "verbs": ["bind"] });
    permit(hub, None, &format!("for-{name}"), json!([rule]), user(name)).await;
    client(hub, name).await
}

#[tokio::test]
async fn an_author_asks_only_for_the_cluster_roles_that_rbac_of_the_hub_lets_them_bind() {
    let hub = hub().await;
    let alice = author(&hub, "alice", &["view"]).await;
    bind(&hub, None, &format!("{RELEASE}-clusteraccess-admin"), user("platform")).await;
    // Whoever has every permission in a namespace has none on clusters.
    bind(&hub, Some("team"), "cluster-admin", user("owner")).await;
    let (platform, owner) = (client(&hub, "platform").await, client(&hub, "owner").await);
    let theirs = access("theirs", &["view", "edit"]);
    attempts(
        &alice,
        vec![
            (Create(access("mine", &["view", "edit"])), &format!("{BIND}edit")),
            (Create(access("mine", &["edit"])), &format!("{BIND}edit")),
            (Create(access("mine", &["view"])), ""),
            (Create(access("mine", &[])), ""),
            // ServiceAccounts that others have on clusters.
            (Create(access("cluster-proxy", &[])), "another component"),
            (Create(with_account("default")), "another component"),
            (Create(with_account("search-sa")), "another component"),
        ],
    )
    .await;
    attempts(&owner, vec![(Create(access("mine", &["view"])), &format!("{BIND}view"))]).await;
    attempts(&platform, vec![(Create(theirs.clone()), "")]).await;
    theirs.create(&hub.ocm).await.unwrap();
    let some = [json!({ "clusterRole": "edit", "namespaces": ["a", "b"] })];
    let some =
        json!({ "identity": "Copy", "serviceAccountNames": ["app", "more"], "permissions": some });
    let some = ocm::cluster_access("team", "some", &some);
    some.create(&hub.ocm).await.unwrap();

    let change = |spec: Value| Patch(theirs.clone(), json!({ "spec": spec }));
    let move_to = |namespaces: &[&str]| {
        let permissions =
            json!([{ "clusterRole": "edit", "namespaces": namespaces }, { "clusterRole": "view" }]);
        Patch(some.clone(), json!({ "spec": { "permissions": permissions } }))
    };
    let refused = format!("{BIND}edit");
    attempts(
        &alice,
        vec![
            (Patch(theirs.clone(), json!({ "metadata": { "labels": { "mine": "1" } } })), ""),
            (change(json!({ "rotation": { "validity": "24h0m0s" } })), ""),
            (change(json!({ "permissions": permissions(&["view"]) })), ""),
            (change(json!({ "permissions": null })), ""),
            // Less, and another order, gives nothing.
            (change(json!({ "permissions": permissions(&["edit"]) })), ""),
            (change(json!({ "permissions": permissions(&["edit", "view"]) })), ""),
            (
                change(
                    json!({ "permissions": [{ "clusterRole": "edit", "namespaces": ["jobs"] }] }),
                ),
                "",
            ),
            (move_to(&["b", "a"]), ""),
            (move_to(&["b"]), ""),
            (move_to(&["a", "b", "c"]), &refused),
            (move_to(&[]), &refused),
            // To whom they are given.
            (change(json!({ "serviceAccountNames": ["another"] })), &refused),
            (Patch(some.clone(), json!({ "spec": { "serviceAccountNames": ["more"] } })), ""),
            (
                change(json!({ "multiKueue": { "configs": [{ "name": "mine" }] } })),
                "create multikueueconfigs.kueue.x-k8s.io",
            ),
            (change(json!({ "argoCD": {} })), "create Secrets in its namespace"),
            (PatchStatus(theirs.clone(), json!({ "observedGeneration": 1 })), NO_PERMISSION),
            (Delete(theirs.clone()), ""),
        ],
    )
    .await;
}

#[tokio::test]
async fn each_of_sixteen_cluster_roles_is_checked() {
    let hub = hub().await;
    let roles: Vec<String> = (1..=17).map(|index| format!("role{index}")).collect();
    let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
    let alice = author(&hub, "alice", &roles[..15]).await;
    let bob = author(&hub, "bob", &roles).await;
    let refused = format!("{BIND}role16");
    attempts(
        &alice,
        vec![
            (Create(access("many", &roles[..15])), ""),
            (Create(access("many", &roles[..16])), &refused),
        ],
    )
    .await;
    attempts(
        &bob,
        vec![
            (Create(access("many", &roles[..16])), ""),
            (Create(access("many", &roles)), "at most 16"),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_largest_change_of_permissions_is_judged() {
    let hub = hub().await;
    let roles: Vec<String> = (1..=16).map(|index| format!("role{index}")).collect();
    let alice = author(&hub, "alice", &roles.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let namespaces = |last: &str| -> Vec<String> {
        (0..63).map(|index| format!("{index:063}")).chain([last.repeat(63)]).collect()
    };
    let permissions = |last: &str| -> Value {
        let namespaces = namespaces(last);
        roles.iter().map(|role| json!({ "clusterRole": role, "namespaces": namespaces })).collect()
    };
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": permissions("a") });
    let largest = ocm::cluster_access("team", "largest", &spec);
    largest.create(&hub.ocm).await.unwrap();
    let change = json!({ "spec": { "permissions": permissions("b") } });
    attempts(&alice, vec![(Patch(largest, change), "")]).await;
}

#[tokio::test]
async fn who_views_a_namespace_reads_its_objects_and_who_edits_it_creates_none() {
    let hub = hub().await;
    world::create(&hub.ocm, [access("theirs", &["view"])]).await;
    // What `view`, `edit` and `admin` aggregate; the controller that does so is not among those of this hub.
    let roles: Api<ClusterRole> = Api::all(hub.ocm.clone());
    for aggregate in ["view", "edit", "admin"] {
        let selector = format!("rbac.authorization.k8s.io/aggregate-to-{aggregate}=true");
        let roles = roles.list(&ListParams::default().labels(&selector)).await.unwrap();
        for role in roles.items {
            bind(&hub, Some("team"), role.metadata.name.as_deref().unwrap(), user(aggregate)).await;
        }
        let reader = client(&hub, aggregate).await;
        let words = NO_PERMISSION;
        attempts(
            &reader,
            vec![
                (Create(access("mine", &[])), words),
                (
                    Patch(
                        access("theirs", &[]),
                        json!({ "metadata": { "labels": { "mine": "1" } } }),
                    ),
                    words,
                ),
                (Delete(access("theirs", &[])), words),
            ],
        )
        .await;
        assert!(world::get(&reader, &access("theirs", &[])).await.is_some(), "{aggregate}");
    }
}
