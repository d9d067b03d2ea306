//! Who may declare which access: the policy on ClusterAccess objects, the roles of the chart for people, and what `view`,
//! `edit` and `admin` contain. Every request but those that prepare is a dry run.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::ListParams;
use kube::{Api, Client};
use local_hub::ocm::{self, Object};
use serde_json::{Value, json};

use crate::attackers::{NO_PERMISSION, bind, permit};
use crate::support::chart::Attempt::{Create, Delete, Patch, PatchStatus};
use crate::support::chart::{RELEASE, install, judged, labels};
use crate::support::world::subject;
use crate::support::{Hub, world};

const BIND: &str = "permission to bind clusterroles.access.open-cluster-management.io/";

/// A hub with the chart, and a namespace `team`.
async fn hub() -> Hub {
    let hub = Hub::plain().await;
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

async fn client(hub: &Hub, name: &str) -> Client {
    hub.client_like(name, &["system:authenticated"]).await.unwrap()
}

/// A user who may write objects in `team`, and bind these ClusterRoles.
async fn author(hub: &Hub, name: &str, roles: &[&str]) -> Client {
    bind(hub, Some("team"), &format!("{RELEASE}-clusteraccess-editor"), subject("User", name))
        .await;
    let rule =
        format!("bind clusterroles.access.open-cluster-management.io named {}", roles.join(","));
    permit(hub, None, &format!("for-{name}"), &[&rule], subject("User", name)).await;
    client(hub, name).await
}

#[tokio::test]
async fn an_author_asks_only_for_the_cluster_roles_that_rbac_of_the_hub_lets_them_bind() {
    let hub = hub().await;
    let alice = author(&hub, "alice", &["view"]).await;
    bind(&hub, None, &format!("{RELEASE}-clusteraccess-admin"), subject("User", "platform")).await;
    // Whoever has every permission in a namespace has none on clusters.
    bind(&hub, Some("team"), "cluster-admin", subject("User", "owner")).await;
    let (platform, owner) = (client(&hub, "platform").await, client(&hub, "owner").await);
    let theirs = access("theirs", &["view", "edit"]);
    let (bind_edit, bind_view) = (format!("{BIND}edit"), format!("{BIND}view"));
    let cases = vec![
        (Create(access("mine", &["view", "edit"])), &*bind_edit),
        (Create(access("mine", &["edit"])), &bind_edit),
        (Create(access("mine", &["view"])), ""),
        (Create(access("mine", &[])), ""),
        // ServiceAccounts that others have on clusters.
        (Create(access("cluster-proxy", &[])), "another component"),
        (Create(access("gitops-addon", &[])), "another component"),
        (Create(access("governance-standalone-hub-templating", &[])), "another component"),
        (Create(with_account("hypershift-addon-agent-sa")), "another component"),
        (Create(with_account("default")), "another component"),
        (Create(with_account("search-sa")), "another component"),
    ];
    judged(&alice, cases).await;
    judged(&owner, vec![(Create(access("mine", &["view"])), &bind_view)]).await;
    judged(&platform, vec![(Create(theirs.clone()), "")]).await;
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
    let asks = |permissions: Value| change(json!({ "permissions": permissions }));
    let cases = vec![
        (labels(&theirs, json!({ "mine": "1" })), ""),
        (change(json!({ "rotation": { "validity": "24h0m0s" } })), ""),
        (asks(permissions(&["view"])), ""),
        (asks(Value::Null), ""),
        // Less, and another order, gives nothing.
        (asks(permissions(&["edit"])), ""),
        (asks(permissions(&["edit", "view"])), ""),
        (asks(json!([{ "clusterRole": "edit", "namespaces": ["jobs"] }])), ""),
        (move_to(&["b", "a"]), ""),
        (move_to(&["b"]), ""),
        (move_to(&["a", "b", "c"]), &*bind_edit),
        (move_to(&[]), &bind_edit),
        // To whom they are given.
        (change(json!({ "serviceAccountNames": ["another"] })), &bind_edit),
        (Patch(some.clone(), json!({ "spec": { "serviceAccountNames": ["more"] } })), ""),
        (
            change(json!({ "multiKueue": { "configs": [{ "name": "mine" }] } })),
            "create multikueueconfigs.kueue.x-k8s.io",
        ),
        (change(json!({ "argoCD": {} })), "create Secrets in its namespace"),
        (PatchStatus(theirs.clone(), json!({ "observedGeneration": 1 })), NO_PERMISSION),
        (Delete(theirs.clone()), ""),
    ];
    judged(&alice, cases).await;
}

#[tokio::test]
async fn an_author_is_judged_also_while_consumer_access_is_off() {
    let hub = hub().await;
    bind(&hub, Some("team"), "cluster-admin", subject("User", "owner")).await;
    install(&hub, &["consumerAccess.enabled=false"]).await;
    let owner = client(&hub, "owner").await;
    judged(&owner, vec![(Create(access("mine", &["view"])), &*format!("{BIND}view"))]).await;
}

#[tokio::test]
async fn each_of_sixteen_cluster_roles_is_checked() {
    let hub = hub().await;
    let roles: Vec<String> = (1..=17).map(|index| format!("role{index}")).collect();
    let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
    let alice = author(&hub, "alice", &roles[..15]).await;
    let bob = author(&hub, "bob", &roles).await;
    let many = |count: usize| Create(access("many", &roles[..count]));
    judged(&alice, vec![(many(15), ""), (many(16), &format!("{BIND}role16"))]).await;
    judged(&bob, vec![(many(16), ""), (many(17), "at most 16")]).await;

    // The largest possible change is judged as well.
    let largest = |last: &str| -> Value {
        let namespaces: Vec<String> =
            (0..63).map(|index| format!("{index:063}")).chain([last.repeat(63)]).collect();
        let entry = |role: &&str| json!({ "clusterRole": role, "namespaces": namespaces });
        roles[..16].iter().map(entry).collect()
    };
    let spec =
        json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": largest("a") });
    let object = ocm::cluster_access("team", "largest", &spec);
    object.create(&hub.ocm).await.unwrap();
    let change = json!({ "spec": { "permissions": largest("b") } });
    judged(&bob, vec![(Patch(object, change), "")]).await;
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
            bind(
                &hub,
                Some("team"),
                role.metadata.name.as_deref().unwrap(),
                subject("User", aggregate),
            )
            .await;
        }
        let reader = client(&hub, aggregate).await;
        let theirs = access("theirs", &[]);
        let cases = [
            Create(access("mine", &[])),
            labels(&theirs, json!({ "mine": "1" })),
            Delete(theirs.clone()),
        ];
        judged(&reader, cases.map(|attempt| (attempt, NO_PERMISSION)).into()).await;
        assert!(world::get(&reader, &theirs).await.is_some(), "{aggregate}");
    }
}
