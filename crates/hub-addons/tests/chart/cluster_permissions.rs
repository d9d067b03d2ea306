//! Permissions of consumers as ClusterPermissions: what a process that writes them cannot do. What it maintains with its
//! permissions is in `own_consumers`.

use local_hub::ocm::{self, Object};
use serde_json::{Value, json};

use crate::consumers::{COMPONENT, declare, marks, owner};
use crate::support::chart::Attempt::{self, Create, Delete, Patch, PatchStatus};
use crate::support::chart::{
    held, helm, install, install_arguments, judged_as, labels, metadata, run, user,
};
use crate::support::cluster_permission::{cluster_permission, install_cluster_permission, named};
use crate::support::{Hub, world};

const ENABLED: [&str; 4] = [
    // Whoever plays Open Cluster Management here also edits what the policies protect.
    "policies.clusterManagers.users={ocm}",
    "consumerAccess.enabled=true",
    "consumerAccess.permissions=ClusterPermission",
    "consumerAccess.allowedClusterRoles={view,edit}",
];

// What the policy says about fields, subjects, ClusterRoles, bindings and owners.
const NOTHING_BUT: &str = "must contain nothing but roleBindings";
const ACCOUNT: &str = "only grant permissions to the account";
const ALLOWED_ROLES: &str = "only bind the ClusterRoles in consumerAccess.allowedClusterRoles";
const KINDS: &str = "only bindings with the name of its account";
const OWNED: &str = "must be owned by its account";
const UNLABELLED: &str = "must have its labels";

async fn hub() -> Hub {
    let hub = Hub::plain().await;
    world::create(&hub.ocm, [ocm::namespace("team"), ocm::cluster_set("s")]).await;
    install_cluster_permission(&hub).await;
    install(&hub, &ENABLED).await;
    let permissions =
        json!([{ "clusterRole": "view" }, { "clusterRole": "edit", "namespaces": ["jobs"] }]);
    let spec =
        json!({ "identity": "Copy", "serviceAccountNames": ["app"], "permissions": permissions });
    declare(&hub, ocm::cluster_access("team", "app", &spec)).await;
    hub
}

fn binding(role: &str, namespace: Option<&str>) -> Value {
    let mut binding = json!({
        "name": format!("hub-addons-permission:app:{role}"),
        "roleRef": world::subject("ClusterRole", role),
        "subject": {
            "apiGroup": "authentication.open-cluster-management.io", "kind": "ManagedServiceAccount",
            "name": "app",
        },
    });
    if let Some(namespace) = namespace {
        binding["namespace"] = json!(namespace);
    }
    binding
}

/// Permissions as consumer access creates them.
fn ours(edit: impl FnOnce(&mut Value)) -> Object {
    let mut body = json!({
        "metadata": {
            "name": "hub-addons-consumer-app", "namespace": "default", "labels": marks(),
            "ownerReferences": [owner()],
        },
        "spec": {
            "clusterRoleBindings": [binding("view", None)], "roleBindings": [binding("edit", Some("jobs"))],
        },
    });
    edit(&mut body);
    let account =
        body["metadata"]["name"].as_str().unwrap().replacen("hub-addons-consumer-", "", 1);
    cluster_permission("default", &account)
        .field("metadata", body["metadata"].take())
        .field("spec", body["spec"].take())
}

/// The same with an edited binding in the whole cluster, or in a namespace.
fn bound(field: &str, edit: impl FnOnce(&mut Value)) -> Attempt {
    Attempt::Create(ours(|it| edit(&mut it["spec"][field][0])))
}

/// The same without a field.
pub(crate) fn without(object: &mut Value, field: &str) {
    object.as_object_mut().unwrap().remove(field).unwrap();
}

#[tokio::test]
async fn consumer_access_is_held_to_bindings_of_allowed_cluster_roles_in_a_cluster_permission() {
    let hub = hub().await;
    let own = "only change and delete ClusterPermissions that it has created";
    let fresh = |edit: fn(&mut Value)| Create(ours(edit));
    let right = ours(|_| {});
    let foreign = |namespace: &str| named(namespace, "theirs").field("spec", json!({}));
    let theirs = foreign("team");
    let bare = cluster_permission("team", "app").field("spec", json!({}));
    world::create(&hub.ocm, [right.clone(), theirs.clone(), bare.clone()]).await;
    let spec = |patch: Value| Patch(right.clone(), json!({ "spec": patch }));
    let mut of_eve = owner();
    of_eve["name"] = json!("eve");
    let roles = json!([{ "namespace": "jobs", "rules": [] }]);
    let mut admin = binding("view", None);
    admin["roleRef"]["name"] = json!("cluster-admin");
    let mut cases = vec![
        (fresh(|it| it["metadata"]["labels"] = json!({})), UNLABELLED),
        (fresh(|it| it["metadata"]["ownerReferences"] = json!([])), OWNED),
        (fresh(|it| it["metadata"]["finalizers"] = json!([world::HOLD])), OWNED),
        // Roles of its own, and the older field for a binding.
        (fresh(|it| it["spec"]["clusterRole"] = json!({ "rules": [] })), NOTHING_BUT),
        (Create(ours(|it| it["spec"]["roles"] = roles)), NOTHING_BUT),
        (fresh(|it| it["spec"]["clusterRoleBinding"] = binding("view", None)), NOTHING_BUT),
        (fresh(|it| it["spec"]["validate"] = json!(true)), NOTHING_BUT),
        // Wherever a label says.
        (
            bound("roleBindings", |it| it["namespaceSelector"]["matchLabels"]["a"] = json!("b")),
            KINDS,
        ),
        // A binding in the whole cluster that looks like one in a namespace.
        (fresh(|it| it["spec"]["roleBindings"][0] = binding("edit", None)), ALLOWED_ROLES),
        // What may not be created may not be made of permissions that exist either.
        (spec(json!({ "clusterRoleBindings": [admin] })), ALLOWED_ROLES),
        (spec(json!({ "clusterRole": { "rules": [] } })), NOTHING_BUT),
        (metadata(&right, json!({ "ownerReferences": [of_eve] })), OWNED),
        (held(&right), OWNED),
        (labels(&right, Value::Null), UNLABELLED),
        (labels(&theirs, marks()), "with the names of its accounts"),
        (Delete(theirs.clone()), own),
        // The names of the permissions of consumers are reserved, so that nothing that is stripped from them remains.
        (metadata(&bare, json!({ "labels": marks(), "ownerReferences": [owner()] })), ""),
        (Delete(bare), ""),
        (spec(json!({ "roleBindings": null })), ""),
    ];
    for field in ["clusterRoleBindings", "roleBindings"] {
        let subject = |name: &str, value: &str| {
            (bound(field, |it| it["subject"][name] = json!(value)), ACCOUNT)
        };
        let role = |name: &str, value: Value| {
            (bound(field, |it| it["roleRef"][name] = value), ALLOWED_ROLES)
        };
        let eve = json!([world::subject("User", "eve")]);
        cases.extend([
            (bound(field, |it| it["name"] = json!("cluster-admin")), KINDS),
            (bound(field, |it| without(it, "name")), KINDS),
            (bound(field, |it| it["subjects"] = eve), KINDS),
            role("name", json!("cluster-admin")),
            role("kind", json!("Role")),
            role("more", json!("view")),
            (bound(field, |it| without(&mut it["roleRef"], "apiGroup")), ALLOWED_ROLES),
            subject("name", "eve"),
            subject("kind", "User"),
            subject("kind", "Group"),
            subject("kind", "ServiceAccount"),
            subject("apiGroup", world::RBAC),
            subject("namespace", "kube-system"),
        ]);
    }
    judged_as(&hub, &user(COMPONENT), cases).await;

    let create = "only consumer access may create";
    let change = "only consumer access may set or remove its labels";
    let of_eve = ours(|it| it["metadata"]["name"] = json!("hub-addons-consumer-eve"));
    let mut cases = vec![
        (Create(of_eve), create),
        (Create(cluster_permission("kube-system", "app").field("spec", json!({}))), create),
        (labels(&theirs, marks()), change),
        (spec(json!({ "roleBindings": null })), change),
        (metadata(&right, json!({ "ownerReferences": [] })), change),
        (held(&right), change),
        (Create(foreign("default")), ""),
        (labels(&theirs, json!({ "theirs": "1" })), ""),
        (metadata(&right, json!({ "annotations": { "theirs": "1" } })), ""),
        (PatchStatus(right.clone(), json!({ "conditions": [] })), ""),
        (Delete(right.clone()), ""),
    ];
    for label in marks().as_object().unwrap().keys() {
        cases.push((labels(&right, json!({ (label.as_str()): null })), change));
    }
    judged_as(&hub, "eve", cases).await;
}

#[tokio::test]
async fn the_kind_of_permissions_is_not_removed_from_the_values_while_cluster_permissions_exist() {
    let hub = hub().await;
    let bare: Vec<&str> =
        ENABLED.into_iter().filter(|value| !value.ends_with("=ClusterPermission")).collect();
    let ours = ours(|_| {});
    let theirs = cluster_permission("team", "app").field("spec", json!({}));
    world::create(&hub.ocm, [ours.clone(), theirs]).await;
    let ended = run(helm(), Some(&hub), &install_arguments(&bare)).await;
    let words = "the ClusterPermission hub-addons-consumer-app exists in the namespace default";
    assert!(ended.code != Some(0) && ended.stderr.contains(words), "{}", ended.stderr);
    let back = [&bare[..], &["consumerAccess.permissions=ManifestWork"]].concat();
    install(&hub, &back).await;
    world::delete(&hub.ocm, &ours).await;
    install(&hub, &bare).await;
}
