//! The Role of an application: it names copies of its account alone, and is bound to the ServiceAccounts of its
//! ClusterAccess alone. Which copies those are is in `rules/consumer_role`.

use local_hub::ocm::{self, ManagedCluster, Object, ServiceAccountToken};
use local_hub::{LocalHub, eventually};
use serde_json::{Value, json};

use crate::consumers::{allowed, declare, refused};
use crate::support::chart::{Attempt, install, start_all, user};
use crate::support::credentials::{copied, token};
use crate::support::world::{self, get, merge};
use crate::support::{Hub, SOON, stop_all};

const ENABLED: &str = "consumerAccess.enabled=true";

fn rbac(kind: &'static str, resource: &'static str, name: &str) -> Object {
    Object::new(("rbac.authorization.k8s.io", "v1", kind), resource, Some("team"), name)
}

/// The application's Role.
pub(crate) fn role() -> Object {
    rbac("Role", "roles", "hub-addons-cluster-access-app")
}

fn binding() -> Object {
    rbac("RoleBinding", "rolebindings", "hub-addons-cluster-access-app")
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

/// A RoleBinding of a Role of the namespace.
fn binds(binding: Object, role: &str, kind: &str, subject: &str) -> Object {
    let subject = match kind {
        "ServiceAccount" => json!({ "kind": kind, "name": subject, "namespace": "team" }),
        _ => json!({ "kind": kind, "name": subject, "apiGroup": "rbac.authorization.k8s.io" }),
    };
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role });
    binding.field("roleRef", role).field("subjects", json!([subject]))
}

/// The rule that lets the consumer read these copies.
fn rules_of(copies: &[&str]) -> Value {
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": copies, "verbs": ["get"] });
    if copies.is_empty() { json!([]) } else { json!([rule]) }
}

/// Waits until the Role names these Secrets and grants nothing else.
async fn names(hub: &Hub, copies: &[&str]) {
    let wanted = rules_of(copies);
    eventually(&format!("the Role names {copies:?}"), SOON, async || {
        let rules = get(&hub.ocm, &role()).await.unwrap_or_default()["rules"].clone();
        let rules = if rules.is_null() { json!([]) } else { rules };
        if rules == wanted { Ok(()) } else { Err(rules.to_string()) }
    })
    .await;
}

fn application(more: &Value) -> Object {
    let mut spec = json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ocm::cluster_access("team", "app", &spec)
}

async fn hub(values: &[&str]) -> Hub {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    world::create(&hub.ocm, [ocm::namespace("team"), ocm::cluster_set("s")]).await;
    install(&hub, &[&[ENABLED], values].concat()).await;
    declare(&hub, application(&json!({}))).await;
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
    use Attempt::{Create, Delete, Patch};
    const ROLES: &str = "'hub-addons-profiles-roles'";
    const ACCESSES: &str = "'hub-addons-profiles-accesses'";
    const CONSUMERS: &str = "'hub-addons-profiles-consumers'";
    let hub = hub(&[]).await;
    let keeper = user("profiles");
    let with = |verbs: &[&str], resource: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": verbs, "resourceNames": ["c1-app"] });
    let rules = |rules: Value| Patch(role(), json!({ "rules": rules }));
    let metadata = |patch: Value| Patch(role(), json!({ "metadata": patch }));
    let account = |name: &str| json!({ "annotations": { "authentication.open-cluster-management.io/managed-serviceaccount": name } });
    let app = binds(ours(&binding()), role().name(), "ServiceAccount", "app");
    let to = |role: &str, subject: &str| {
        Create(binds(ours(&binding()), role, "ServiceAccount", subject))
    };
    let theirs = rbac("Role", "roles", "theirs").field("rules", json!([]));
    let system = Object::new(
        ("rbac.authorization.k8s.io", "v1", "Role"),
        "roles",
        Some("kube-system"),
        role().name(),
    );
    allowed(&hub, &keeper, vec![Create(ours(&role())), Create(app.clone())]).await;
    world::create(&hub.ocm, [ours(&role()), theirs.clone()]).await;
    let cases = vec![
        (
            rules(json!([with(&["get", "list"], "secrets")])),
            "only grant an application get on copies",
        ),
        (rules(json!([with(&["get"], "configmaps")])), "only grant an application get on copies"),
        (
            rules(json!([with(&["get"], "secrets"), with(&["get"], "secrets")])),
            "only grant an application get",
        ),
        (
            rules(json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }])),
            "only grant an application",
        ),
        (rules(rules_of(&["c1-other"])), "only grant an application get on copies"),
        (rules(rules_of(&["c1-app", "signing-key"])), "only grant an application get on copies"),
        (
            metadata(json!({ "labels": { "app.kubernetes.io/component": "theirs" } })),
            "that have its labels",
        ),
        (
            metadata(json!({ "labels": { "a": "b" } })),
            "labels and annotations that are not its own",
        ),
        (
            metadata(json!({ "annotations": { "a": "b" } })),
            "labels and annotations that are not its own",
        ),
        (metadata(json!({ "ownerReferences": null })), "must be owned by its ClusterAccess"),
        (
            metadata(json!({ "finalizers": ["example.com/hold"] })),
            "must be owned by its ClusterAccess",
        ),
        (Delete(role()), "only create and change"),
        (
            Create(rbac("Role", "roles", "another").field("rules", json!([]))),
            "only create and change",
        ),
        (Patch(theirs, json!({ "rules": rules_of(&["c1-app"]) })), "only create and change"),
        (Create(ours(&system)), "protected namespaces"),
        (
            Create(binds(ours(&binding()), role().name(), "User", "app")),
            "only bind ServiceAccounts of the namespace",
        ),
        (
            to("theirs", "app"),
            "only bind ServiceAccounts of the namespace to the Role of a ClusterAccess",
        ),
    ];
    refused(&hub, &keeper, cases, ROLES).await;
    let cases = vec![
        (metadata(account("other")), "must name the ManagedServiceAccount of its ClusterAccess"),
        (to(role().name(), "other"), "only bind the ServiceAccounts that the ClusterAccess lists"),
    ];
    refused(&hub, &keeper, cases, ACCESSES).await;
    allowed(&hub, &keeper, vec![rules(rules_of(&["c1-app"]))]).await;

    // A user who may create RoleBindings could bind an empty Role without having any of its later permissions.
    let another = |kind: &str, subject: &str| {
        Create(binds(rbac("RoleBinding", "rolebindings", "another"), role().name(), kind, subject))
    };
    let words = "only credential rights may bind the Role of a ClusterAccess";
    let cases = [("User", "eve"), ("Group", "system:authenticated"), ("ServiceAccount", "other")];
    refused(
        &hub,
        "eve",
        cases.map(|(kind, subject)| (another(kind, subject), words)).into(),
        CONSUMERS,
    )
    .await;

    // A Role that has lost its labels is another owner's.
    merge(&hub.ocm, &role(), &json!({ "metadata": { "labels": null } })).await;
    refused(&hub, &keeper, vec![(rules(rules_of(&["c1-app"])), "that have its labels")], ROLES)
        .await;
}

#[tokio::test]
async fn a_copy_of_an_account_whose_name_ends_like_that_of_the_application_is_not_granted() {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    world::create(&hub.ocm, [ocm::namespace("team"), ocm::cluster_set("s")]).await;
    install(&hub, &[ENABLED]).await;
    declare(&hub, application(&json!({ "managedServiceAccountName": "kueue" }))).await;
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
    let patch = |copies| Attempt::Patch(role(), json!({ "rules": rules_of(copies) }));
    let words = "a Secret that is not a copy of its ManagedServiceAccount";
    // Nor a Secret that is no copy.
    let cases =
        vec![(patch(&["c-kueue", "c-x-kueue"]), words), (patch(&["c-kueue", "db-kueue"]), words)];
    refused(&hub, &user("profiles"), cases, "'hub-addons-profiles-copies'").await;
    let copies = [&["c-kueue"][..], &[], &["c-kueue", "later-kueue"]].map(patch);
    allowed(&hub, &user("profiles"), copies.into()).await;
}
