//! Permissions of consumers as ClusterPermissions: what is maintained, with which permissions, and what a process with
//! these permissions cannot do.

use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{LocalHub, eventually};
use serde_json::{Value, json};

use crate::consumers::{COMPONENT, OTHERS, allowed, declare, marks, owner, refused, work};
use crate::support::chart::{Attempt, helm, install, install_arguments, run, start, user};
use crate::support::cluster_permission::{applied, cluster_permission, install_cluster_permission};
use crate::support::world::{self, get, merge};
use crate::support::{Hub, SOON};

const ENABLED: [&str; 4] = [
    // Whoever plays Open Cluster Management here also edits what the policies protect.
    "policies.clusterManagers.users={ocm}",
    "consumerAccess.enabled=true",
    "consumerAccess.permissions=ClusterPermission",
    "consumerAccess.allowedClusterRoles={view,edit}",
];
const POLICY: &str = "'hub-addons-consumers-clusterpermissions'";

// What the policy says about fields, subjects, ClusterRoles, bindings and owners.
const NOTHING_BUT: &str = "must contain nothing but roleBindings";
const ACCOUNT: &str = "only grant permissions to the account";
const ALLOWED_ROLES: &str = "only bind the ClusterRoles in consumerAccess.allowedClusterRoles";
const KINDS: &str = "only bindings with the name of its account";
const OWNED: &str = "must be owned by its account";

async fn hub() -> Hub {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
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
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
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

/// What may not be created, and may not be made of permissions that exist either.
fn escalations(right: &Object) -> Vec<(Attempt, &'static str)> {
    use Attempt::Patch;
    let mut cases = Vec::new();
    let changed = |field: &str, edit: fn(&mut Value)| {
        let mut binding = if field == "roleBindings" {
            binding("edit", Some("jobs"))
        } else {
            binding("view", None)
        };
        edit(&mut binding);
        Patch(right.clone(), json!({ "spec": { (field): [binding] } }))
    };
    for field in ["clusterRoleBindings", "roleBindings"] {
        cases.extend([
            (
                changed(field, |it| {
                    it["subjects"] = json!([{ "kind": "Group", "name": "system:masters" }]);
                }),
                KINDS,
            ),
            (changed(field, |it| it["subject"]["name"] = json!("eve")), ACCOUNT),
            (changed(field, |it| it["roleRef"]["name"] = json!("cluster-admin")), ALLOWED_ROLES),
        ]);
    }
    let spec = |patch: Value| Patch(right.clone(), json!({ "spec": patch }));
    let metadata = |patch: Value| Patch(right.clone(), json!({ "metadata": patch }));
    let mut of_eve = owner();
    of_eve["name"] = json!("eve");
    cases.extend([
        (spec(json!({ "clusterRole": { "rules": [] } })), NOTHING_BUT),
        (spec(json!({ "roles": [{ "namespace": "jobs", "rules": [] }] })), NOTHING_BUT),
        (spec(json!({ "validate": true })), NOTHING_BUT),
        (metadata(json!({ "ownerReferences": [] })), OWNED),
        (metadata(json!({ "ownerReferences": [of_eve] })), OWNED),
        (metadata(json!({ "finalizers": ["example.com/hold"] })), OWNED),
        (metadata(json!({ "labels": null })), "must have its labels"),
    ]);
    cases
}

#[tokio::test]
async fn consumer_access_is_held_to_bindings_of_allowed_cluster_roles_in_a_cluster_permission() {
    use Attempt::{Create, Delete, Patch};
    let hub = hub().await;
    let names = "with the names of its accounts";
    let own = "only change and delete ClusterPermissions that it has created";
    let fresh = |edit: fn(&mut Value)| Create(ours(edit));
    let mut cases = vec![
        (fresh(|it| it["metadata"]["labels"] = json!({})), "must have its labels"),
        (fresh(|it| it["metadata"]["ownerReferences"] = json!([])), OWNED),
        (fresh(|it| it["metadata"]["finalizers"] = json!(["example.com/hold"])), OWNED),
        // Roles of its own, and the older field for a binding.
        (fresh(|it| it["spec"]["clusterRole"] = json!({ "rules": [] })), NOTHING_BUT),
        (
            fresh(|it| it["spec"]["roles"] = json!([{ "namespace": "jobs", "rules": [] }])),
            NOTHING_BUT,
        ),
        (fresh(|it| it["spec"]["clusterRoleBinding"] = binding("view", None)), NOTHING_BUT),
        (fresh(|it| it["spec"]["validate"] = json!(true)), NOTHING_BUT),
        // Wherever a label says.
        (
            bound("roleBindings", |it| {
                it["namespaceSelector"] = json!({ "matchLabels": { "a": "b" } });
            }),
            KINDS,
        ),
        // A binding in the whole cluster that looks like one in a namespace.
        (fresh(|it| it["spec"]["roleBindings"][0] = binding("edit", None)), ALLOWED_ROLES),
    ];
    for field in ["clusterRoleBindings", "roleBindings"] {
        let subject = |name: &'static str, value: &'static str| {
            bound(field, |it| it["subject"][name] = json!(value))
        };
        let eve =
            json!([{ "kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io" }]);
        cases.extend([
            (bound(field, |it| it["name"] = json!("cluster-admin")), KINDS),
            (bound(field, |it| it["name"] = Value::Null), KINDS),
            (bound(field, |it| it["subjects"] = eve), KINDS),
            (bound(field, |it| it["roleRef"]["name"] = json!("cluster-admin")), ALLOWED_ROLES),
            (bound(field, |it| it["roleRef"]["kind"] = json!("Role")), ALLOWED_ROLES),
            (bound(field, |it| it["roleRef"]["more"] = json!("view")), ALLOWED_ROLES),
            (bound(field, |it| it["roleRef"]["apiGroup"] = Value::Null), ALLOWED_ROLES),
            (subject("name", "eve"), ACCOUNT),
            (subject("kind", "User"), ACCOUNT),
            (subject("kind", "Group"), ACCOUNT),
            (subject("kind", "ServiceAccount"), ACCOUNT),
            (subject("apiGroup", "rbac.authorization.k8s.io"), ACCOUNT),
            (subject("namespace", "kube-system"), ACCOUNT),
        ]);
    }
    refused(&hub, &user(COMPONENT), cases, POLICY).await;
    let right = ours(|_| {});
    allowed(&hub, &user(COMPONENT), vec![Create(right.clone())]).await;
    let gvk = ("rbac.open-cluster-management.io", "v1alpha1", "ClusterPermission");
    let foreign = |namespace: &str| {
        Object::new(gvk, "clusterpermissions", Some(namespace), "theirs").field("spec", json!({}))
    };
    let theirs = foreign("team");
    let bare = cluster_permission("team", "app").field("spec", json!({}));
    world::create(&hub.ocm, [right.clone(), theirs.clone(), bare.clone()]).await;
    let marked = json!({ "metadata": { "labels": marks() } });
    let mut cases =
        vec![(Patch(theirs.clone(), marked.clone()), names), (Delete(theirs.clone()), own)];
    cases.extend(escalations(&right));
    refused(&hub, &user(COMPONENT), cases, POLICY).await;

    // Other users.
    let create = "only consumer access may create";
    let change = "only consumer access may set or remove its labels";
    let metadata = |patch: Value| json!({ "metadata": patch });
    let mut cases = vec![
        (Create(ours(|it| it["metadata"]["name"] = json!("hub-addons-consumer-eve"))), create),
        (Create(cluster_permission("kube-system", "app").field("spec", json!({}))), create),
        (Patch(theirs.clone(), marked), change),
        (Patch(right.clone(), json!({ "spec": { "roleBindings": null } })), change),
        (Patch(right.clone(), metadata(json!({ "ownerReferences": [] }))), change),
        (Patch(right.clone(), metadata(json!({ "finalizers": ["example.com/hold"] }))), change),
    ];
    for label in marks().as_object().unwrap().keys() {
        let stripped = metadata(json!({ "labels": { (label.as_str()): null } }));
        cases.push((Patch(right.clone(), stripped), change));
    }
    refused(&hub, "eve", cases, OTHERS).await;
    let attempts = vec![
        Create(foreign("default")),
        Patch(theirs, metadata(json!({ "labels": { "theirs": "1" } }))),
        Patch(right.clone(), metadata(json!({ "annotations": { "theirs": "1" } }))),
        Attempt::PatchStatus(right.clone(), applied("True")),
        Delete(right.clone()),
    ];
    allowed(&hub, "eve", attempts).await;
    // The names of the permissions of consumers are reserved, so that nothing that is stripped from them remains.
    let restored = json!({ "metadata": { "labels": marks(), "ownerReferences": [owner()] } });
    allowed(&hub, &user(COMPONENT), vec![Patch(bare.clone(), restored), Delete(bare)]).await;
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

/// With this, the audit log has a use of each permission for both kinds.
#[tokio::test]
async fn permissions_of_the_other_kind_end_when_those_of_the_configured_kind_exist() {
    let hub = hub().await;
    let joins = async |cluster: &str| {
        world::ensure_namespace(&hub.ocm, cluster).await;
        ManagedCluster::named(cluster).in_set("s").create(&hub.ocm).await.unwrap();
    };
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    for cluster in ["edited", "leaves"] {
        joins(cluster).await;
    }
    let exists = async |object: Object, wanted: bool| {
        eventually(&format!("whether {object} exists is {wanted}"), SOON, async || {
            get(&hub.ocm, &object).await.is_some() == wanted
        })
        .await;
    };
    let process = start(&hub, COMPONENT).await;
    for cluster in ["edited", "leaves"] {
        exists(cluster_permission(cluster, "app"), true).await;
    }
    process.stop().await;

    let edited = cluster_permission("edited", "app");
    merge(&hub.ocm, &edited, &json!({ "spec": { "roleBindings": null } })).await;
    let other = work("edited", "app");
    let metadata =
        json!({ "name": other.name(), "namespace": other.namespace(), "labels": marks() });
    let other =
        other.field("metadata", metadata).field("spec", json!({ "workload": { "manifests": [] } }));
    other.create(&hub.ocm).await.unwrap();
    world::delete(&hub.ocm, &ManagedCluster::named("leaves").into()).await;
    let process = start(&hub, COMPONENT).await;
    joins("joins").await;
    exists(cluster_permission("joins", "app"), true).await;
    exists(cluster_permission("leaves", "app"), false).await;
    exists(other, false).await;
    assert!(get(&hub.ocm, &edited).await.unwrap()["spec"]["roleBindings"].is_array());
    process.stop().await;
}
