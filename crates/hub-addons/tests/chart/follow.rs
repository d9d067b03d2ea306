//! The Role of an application: it names copies of its account alone, and is bound to the ServiceAccounts of its
//! ClusterAccess alone. Which copies those are is in `rules/consumer_role`.

use local_hub::ocm::{self, ManagedCluster, Object, ServiceAccountToken};
use serde_json::{Value, json};

use crate::consumers::declare;
use crate::support::chart::Attempt::{Create, Delete, Patch};
use crate::support::chart::{held, install, judged_as, metadata, start_all, user};
use crate::support::credentials::{copied, token};
use crate::support::world::{self, merge};
use crate::support::{Hub, stop_all};

/// The application's Role.
pub(crate) fn role() -> Object {
    world::object("Role", Some("team"), "hub-addons-cluster-access-app")
}

/// What the component writes, but for rules, subjects and the Role that is bound.
pub(crate) fn ours(object: &Object) -> Object {
    let owner = json!({
        "apiVersion": "access.open-cluster-management.io/v1alpha1", "kind": "ClusterAccess", "name": "app", "uid": "1",
    });
    let metadata = json!({
        "name": object.name(), "namespace": object.namespace(), "ownerReferences": [owner],
        "labels": {
            "app.kubernetes.io/managed-by": "hub-addons", "app.kubernetes.io/component": "cluster-access",
        },
        "annotations": { "authentication.open-cluster-management.io/managed-serviceaccount": "app" },
    });
    object.clone().field("metadata", metadata)
}

/// The rule that lets the consumer read these copies.
fn rules_of(copies: &[&str]) -> Value {
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": copies, "verbs": ["get"] });
    if copies.is_empty() { json!([]) } else { json!([rule]) }
}

/// Waits until the Role names these Secrets and grants nothing else.
async fn names(hub: &Hub, copies: &[&str]) {
    world::becomes(&hub.ocm, &role(), &format!("names {copies:?}"), |it| {
        it["rules"] == rules_of(copies)
    })
    .await;
}

/// A hub with the chart and a ClusterAccess with these fields.
async fn hub(more: &Value) -> Hub {
    let hub = Hub::plain().await;
    world::create(&hub.ocm, [ocm::namespace("team"), ocm::cluster_set("s")]).await;
    install(&hub, &["consumerAccess.enabled=true"]).await;
    let mut spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    declare(&hub, ocm::cluster_access("team", "app", &spec)).await;
    hub
}

/// The token of an account that consumer access maintains, whose process does not run here.
fn maintained(cluster: &str, account: &str) -> ServiceAccountToken {
    let labels = [("managed-by", "hub-addons"), ("component", "consumer-access")];
    labels.into_iter().fold(token(cluster, account), |token, (key, value)| {
        token.label(&format!("app.kubernetes.io/{key}"), value)
    })
}

#[tokio::test]
async fn who_keeps_a_role_is_held_to_its_cluster_access_and_nobody_else_binds_it() {
    let hub = hub(&json!({})).await;
    let keeper = user("profiles");
    let with = |verbs: &[&str], resource: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": verbs, "resourceNames": ["c1-app"] });
    let rules = |rules: Value| Patch(role(), json!({ "rules": rules }));
    let metadata = |patch: Value| metadata(&role(), patch);
    let of_account = |name: &str| {
        metadata(
            json!({ "annotations": { "authentication.open-cluster-management.io/managed-serviceaccount": name } }),
        )
    };
    let to = |role: &str, subject: Value| {
        let bound = world::binding(Some("team"), self::role().name(), ("Role", role), subject);
        Create(ours(&bound))
    };
    let app = |name: &str| world::account("team", name);
    let theirs = world::object("Role", Some("team"), "theirs").field("rules", json!([]));
    let system = world::object("Role", Some("kube-system"), role().name());
    world::create(&hub.ocm, [ours(&role()), theirs.clone()]).await;
    let copies = "only grant an application get on copies";
    let only_own = "labels and annotations that are not its own";
    let owned = "must be owned by its ClusterAccess";
    let only_ours = "only create and change";
    let binds = "only bind ServiceAccounts of the namespace to the Role of a ClusterAccess";
    let nameless = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]);
    let cases = vec![
        (rules(json!([with(&["get", "list"], "secrets")])), copies),
        (rules(json!([with(&["get"], "configmaps")])), copies),
        (rules(json!([with(&["get"], "secrets"), with(&["get"], "secrets")])), copies),
        (rules(nameless), copies),
        (rules(rules_of(&["c1-other"])), copies),
        (rules(rules_of(&["c1-app", "signing-key"])), copies),
        (metadata(json!({ "labels": { "app.kubernetes.io/component": "theirs" } })), UNLABELLED),
        (metadata(json!({ "labels": { "a": "b" } })), only_own),
        (metadata(json!({ "annotations": { "a": "b" } })), only_own),
        (metadata(json!({ "ownerReferences": null })), owned),
        (held(&role()), owned),
        (Delete(role()), only_ours),
        (
            Create(world::object("Role", Some("team"), "another").field("rules", json!([]))),
            only_ours,
        ),
        (Patch(theirs, json!({ "rules": rules_of(&["c1-app"]) })), only_ours),
        (Create(ours(&system)), "protected namespaces"),
        (to(role().name(), world::subject("User", "app")), binds),
        (to("theirs", app("app")), binds),
        (of_account("other"), "must name the ManagedServiceAccount of its ClusterAccess"),
        (
            to(role().name(), app("other")),
            "only bind the ServiceAccounts that the ClusterAccess lists",
        ),
        (to(role().name(), app("app")), ""),
        (rules(rules_of(&["c1-app"])), ""),
    ];
    judged_as(&hub, &keeper, cases).await;

    // A user who may create RoleBindings could bind an empty Role without having any of its later permissions.
    let words = "only credential rights may bind the Role of a ClusterAccess";
    let everybody = world::subject("Group", "system:authenticated");
    let cases = [world::subject("User", "eve"), everybody, app("other")].map(|subject| {
        let bound = ("Role", "hub-addons-cluster-access-app");
        (Create(world::binding(Some("team"), "another", bound, subject)), words)
    });
    judged_as(&hub, "eve", cases.into()).await;
    // A Role that has lost its labels is another owner's.
    merge(&hub.ocm, &role(), &json!({ "metadata": { "labels": null } })).await;
    judged_as(&hub, &keeper, vec![(rules(rules_of(&["c1-app"])), UNLABELLED)]).await;
}

const UNLABELLED: &str = "that have its labels";

#[tokio::test]
async fn a_copy_of_an_account_whose_name_ends_like_that_of_the_application_is_not_granted() {
    let hub = hub(&json!({ "managedServiceAccountName": "kueue" })).await;
    let running = start_all(&hub, &["profiles", "credentials"]).await;
    ManagedCluster::named("c").in_set("s").create(&hub.ocm).await.unwrap();
    for account in ["kueue", "x-kueue"] {
        maintained("c", account).create(&hub.ocm).await.unwrap();
    }
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    for account in ["kueue", "x-kueue"] {
        copied(&hub.ocm, "team", &token("c", account)).await;
    }
    names(&hub, &["c-kueue"]).await;
    stop_all(running).await;
    crate::support::credentials::secret("team", "db-kueue").create(&hub.ocm).await.unwrap();
    let patch = |copies| Patch(role(), json!({ "rules": rules_of(copies) }));
    let words = "a Secret that is not a copy of its ManagedServiceAccount";
    let cases = vec![
        (patch(&["c-kueue", "c-x-kueue"]), words),
        // Nor a Secret that is no copy.
        (patch(&["c-kueue", "db-kueue"]), words),
        (patch(&["c-kueue"]), ""),
        (patch(&[]), ""),
        (patch(&["c-kueue", "later-kueue"]), ""),
    ];
    judged_as(&hub, &user("profiles"), cases).await;
}
