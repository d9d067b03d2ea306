//! A consumer's Role that follows the grant: it names exactly the copies that its namespace is granted, loses names
//! when grants end, and is the only Role that the component writes.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{LocalHub, eventually};
use serde_json::{Value, json};

use crate::support::chart::{Attempt, MASTERS, install, start, start_all, user};
use crate::support::credentials::{copied, narrow, token};
use crate::support::shown::sees;
use crate::support::world::{self, get, merge, told};
use crate::support::{Hub, SOON};

const FOLLOWS: [&str; 4] = [
    "consumers.app.namespace=team",
    "consumers.app.serviceAccountName=app",
    "consumers.app.managedServiceAccount=app",
    "consumers.app.follow=true",
];
const FOREIGN: &str = "hub_addons_findings{reason=\"ForeignRole\"}";
const MISSING: &str = "hub_addons_findings{reason=\"MissingRole\"}";

fn rbac(kind: &'static str, resource: &'static str, name: &str) -> Object {
    Object::new(("rbac.authorization.k8s.io", "v1", kind), resource, Some("team"), name)
}

/// The consumer's Role.
fn role() -> Object {
    rbac("Role", "roles", "hub-addons:cp-creds:app:app")
}

/// A RoleBinding of the consumer's Role.
fn bound_to(kind: &str, subject: &str) -> Object {
    let subject = match kind {
        "ServiceAccount" => json!({ "kind": kind, "name": subject, "namespace": "team" }),
        _ => json!({ "kind": kind, "name": subject, "apiGroup": "rbac.authorization.k8s.io" }),
    };
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role().name() });
    rbac("RoleBinding", "rolebindings", "another").field("roleRef", role).field("subjects", json!([subject]))
}

/// The rule that lets the consumer read these copies.
fn rules_of(copies: &[&str]) -> Value {
    let rule =
        json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": copies, "verbs": ["get"] });
    if copies.is_empty() { json!([]) } else { json!([rule]) }
}

async fn version(hub: &Hub) -> Value {
    get(&hub.ocm, &role()).await.unwrap()["metadata"]["resourceVersion"].clone()
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

async fn hub(values: &[&str]) -> Hub {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    world::create(&hub.ocm, [ocm::namespace("team"), ocm::cluster_set("s")]).await;
    install(&hub, &[&FOLLOWS[..], values].concat()).await;
    hub
}

/// A cluster of the set with a token of the account.
async fn joins(hub: &Hub, cluster: &str) {
    ManagedCluster::named(cluster).in_set("s").create(&hub.ocm).await.unwrap();
    token(cluster, "app").create(&hub.ocm).await.unwrap();
}

#[tokio::test]
async fn a_role_names_what_is_granted_as_it_changes() {
    let hub = hub(&[]).await;
    let running = start_all(&hub, &["profiles", "credentials"]).await;
    joins(&hub, "c1").await;
    token("c1", "other").create(&hub.ocm).await.unwrap();
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    names(&hub, &["c1-app"]).await;
    copied(&hub.ocm, "team", &token("c1", "app")).await;
    copied(&hub.ocm, "team", &token("c1", "other")).await;
    let client = hub.service_account("team", "app").await.unwrap().client().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, "team");
    let may = async |name: &str| secrets.get(name).await.map(drop).map_err(|error| error.to_string());
    eventually("the application reads its copy", SOON, async || may("c1-app").await).await;
    assert!(may("c1-other").await.is_err());

    // A cluster joins; its account limits its namespaces, and ends the limit.
    joins(&hub, "c2").await;
    names(&hub, &["c1-app", "c2-app"]).await;
    narrow(&hub.ocm, &token("c2", "app"), Some("elsewhere")).await;
    names(&hub, &["c1-app"]).await;
    narrow(&hub.ocm, &token("c2", "app"), None).await;
    names(&hub, &["c1-app", "c2-app"]).await;

    // A change by hand is undone.
    merge(&hub.ocm, &role(), &json!({ "rules": rules_of(&["c1-app", "signing-key"]) })).await;
    names(&hub, &["c1-app", "c2-app"]).await;

    // Neither an upgrade nor a restart writes the Role.
    let before = version(&hub).await;
    for process in running {
        process.stop().await;
    }
    install(&hub, &FOLLOWS).await;
    let mark = hub.audit().mark().await.unwrap();
    let running = start_all(&hub, &["profiles", "credentials"]).await;
    ManagedCluster::named("c3").in_set("s").create(&hub.ocm).await.unwrap();
    sees(&hub.ocm, "team", &["c1", "c2", "c3"]).await;
    let requests = hub.audit().since(&mark).await.unwrap().of_user(&user("profiles"));
    assert!(requests.writes().matching(|request| request.resource == "roles").is_empty(), "{requests}");
    assert_eq!(version(&hub).await, before);

    // The grant ends.
    world::delete(&hub.ocm, &ocm::bound("team", "s")).await;
    names(&hub, &[]).await;
    eventually("the application reads nothing", SOON, async || may("c1-app").await.is_err()).await;
    for process in running {
        process.stop().await;
    }
}

#[tokio::test]
async fn a_role_of_another_owner_is_reported_and_left_alone() {
    let hub = hub(&[]).await;
    let ours = get(&hub.ocm, &role()).await.unwrap()["metadata"]["labels"].clone();
    let theirs = role().field("rules", rules_of(&["mine"]));
    world::delete(&hub.ocm, &role()).await;
    theirs.create(&hub.ocm).await.unwrap();
    let before = version(&hub).await;
    joins(&hub, "c1").await;
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    let addons = start(&hub, "profiles").await;
    addons.works().await;
    let note = told(&hub.ocm, &role(), "ForeignRole").await;
    assert!(note.contains("is not changed"), "{note}");
    addons.measures(FOREIGN, 1.0).await;
    // Another cluster would change the Role, and the projector has already reacted to the cluster.
    joins(&hub, "c2").await;
    sees(&hub.ocm, "team", &["c1", "c2"]).await;
    assert_eq!(version(&hub).await, before);
    assert_eq!(get(&hub.ocm, &role()).await.unwrap()["rules"], rules_of(&["mine"]));

    // A deleted Role is reported. With the labels of the chart, the Role follows again.
    world::delete(&hub.ocm, &role()).await;
    told(&hub.ocm, &role(), "MissingRole").await;
    addons.measures(FOREIGN, 0.0).await;
    addons.measures(MISSING, 1.0).await;
    role()
        .field("metadata", json!({ "name": role().name(), "namespace": "team", "labels": ours }))
        .create(&hub.ocm)
        .await
        .unwrap();
    names(&hub, &["c1-app", "c2-app"]).await;
    addons.measures(MISSING, 0.0).await;
    addons.stop().await;
}

#[tokio::test]
async fn who_keeps_a_role_is_held_to_copies_of_its_account_and_nobody_else_is_bound_to_it() {
    const ROLES: &str = "'hub-addons-profiles-roles'";
    const CONSUMERS: &str = "'hub-addons-profiles-consumers'";
    let hub = hub(&[]).await;
    let keeper = hub.client_like(&user("profiles"), MASTERS).await.unwrap();
    let refused = async |attempt: Attempt, policy: &str| {
        eventually(&format!("{attempt:?} is refused"), SOON, async || {
            let refusal = attempt.by(&keeper).await.err().unwrap_or_default();
            if refusal.contains(policy) { Ok(()) } else { Err(refusal) }
        })
        .await;
    };
    let with = |verbs: &[&str], resource: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": verbs, "resourceNames": ["c1-app"] });
    let copy = rules_of(&["c1-app"]);
    for rules in [
        json!([with(&["get", "list"], "secrets")]),
        json!([with(&["get"], "configmaps")]),
        json!([with(&["get"], "secrets"), with(&["get"], "secrets")]),
        json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]),
        rules_of(&["c1-other"]),
        rules_of(&["c1-app", "signing-key"]),
    ] {
        refused(Attempt::Patch(role(), json!({ "rules": rules })), ROLES).await;
    }
    let labels = json!({ "metadata": { "labels": { "app.kubernetes.io/component": "theirs" } } });
    refused(Attempt::Patch(role(), labels.clone()), ROLES).await;
    refused(Attempt::Delete(role()), ROLES).await;
    assert_eq!(Attempt::Patch(role(), json!({ "rules": copy })).by(&keeper).await, Ok(()));
    let other = rbac("Role", "roles", "theirs").field("rules", json!([]));
    refused(Attempt::Create(other.clone()), ROLES).await;
    other.create(&hub.ocm).await.unwrap();
    refused(Attempt::Patch(other, json!({ "rules": copy })), ROLES).await;

    // A user who may create RoleBindings could bind an empty Role without having any of its later permissions.
    let eve = hub.client_like("eve", MASTERS).await.unwrap();
    for (kind, subject) in [("User", "eve"), ("Group", "system:authenticated"), ("ServiceAccount", "other")] {
        let attempt = Attempt::Create(bound_to(kind, subject));
        eventually(&format!("{subject} is not bound"), SOON, async || {
            let refusal = attempt.by(&eve).await.err().unwrap_or_default();
            if refusal.contains(CONSUMERS) { Ok(()) } else { Err(refusal) }
        })
        .await;
    }
    assert_eq!(Attempt::Create(bound_to("ServiceAccount", "app")).by(&eve).await, Ok(()));

    // A Role that has lost its labels is another owner's.
    merge(&hub.ocm, &role(), &labels).await;
    refused(Attempt::Patch(role(), json!({ "rules": copy })), ROLES).await;
}

#[tokio::test]
async fn a_copy_of_an_account_whose_name_ends_like_that_of_the_consumer_is_not_granted() {
    let hub = hub(&["consumers.app.managedServiceAccount=kueue"]).await;
    let role = rbac("Role", "roles", "hub-addons:cp-creds:app:kueue");
    let running = start_all(&hub, &["profiles", "credentials"]).await;
    ManagedCluster::named("c").in_set("s").create(&hub.ocm).await.unwrap();
    for account in ["kueue", "x-kueue"] {
        token("c", account).create(&hub.ocm).await.unwrap();
    }
    ocm::bound("team", "s").create(&hub.ocm).await.unwrap();
    for account in ["kueue", "x-kueue"] {
        copied(&hub.ocm, "team", &token("c", account)).await;
    }
    for process in running {
        process.stop().await;
    }
    let keeper = hub.client_like(&user("profiles"), MASTERS).await.unwrap();
    let patch = |copies| Attempt::Patch(role.clone(), json!({ "rules": rules_of(copies) }));
    eventually("the copy of x-kueue is refused", SOON, async || {
        let refusal = patch(&["c-kueue", "c-x-kueue"]).by(&keeper).await.err().unwrap_or_default();
        if refusal.contains("'hub-addons-profiles-copies'") { Ok(()) } else { Err(refusal) }
    })
    .await;
    // Nor a Secret that is no copy.
    crate::support::credentials::secret("team", "db-kueue").create(&hub.ocm).await.unwrap();
    eventually("the Secret of the team is refused", SOON, async || {
        let refusal = patch(&["c-kueue", "db-kueue"]).by(&keeper).await.err().unwrap_or_default();
        if refusal.contains("'hub-addons-profiles-copies'") { Ok(()) } else { Err(refusal) }
    })
    .await;
    for copies in [&["c-kueue"][..], &[], &["c-kueue", "later-kueue"]] {
        assert_eq!(patch(copies).by(&keeper).await, Ok(()));
    }
}
