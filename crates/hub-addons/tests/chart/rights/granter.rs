//! Credential rights, which grant the syncer its permissions.

use local_hub::{eventually, ocm};
use serde_json::{Value, json};

use super::host::waits_for;
use super::trial::{Trial, grant, tokens_role};
use crate::support::proxy::TEAM;
use crate::support::world::{self, get, merge};
use crate::support::{SOON, chart};

/// A namespace with a bound set gets its RoleBinding.
pub async fn grants(t: &mut Trial) {
    t.take().await;
    let name = t.name.clone();
    t.binds(&name).await;
    t.is_refused().await;
    says_so(t).await;
    t.later_names().await;
    assert_eq!(get(&t.hub.ocm, &grant(&name)).await, None);
    t.give().await;
    let binding = ocm::bound(&name, &name);
    world::delete(&t.hub.ocm, &binding).await;
    binding.create(&t.hub.ocm).await.unwrap();
    t.is_granted(&name).await;
}

/// A RoleBinding with another role is recreated.
pub async fn makes_anew(t: &mut Trial) {
    let name = t.name.clone();
    t.binds(&name).await;
    t.is_granted(&name).await;
    t.take().await;
    let grant = grant(&name);
    merge(&t.hub.ocm, &grant, &json!({ "subjects": null })).await;
    t.is_refused().await;
    says_so(t).await;
    t.later_names().await;
    assert_eq!(get(&t.hub.ocm, &grant).await.unwrap()["subjects"], Value::Null);
    t.give().await;
    t.is_granted(&name).await;
}

/// The role for tokens contains the names of accounts that opt in.
pub async fn names(t: &mut Trial) {
    t.take().await;
    let name = t.name.clone();
    t.asks(&name).await;
    t.is_refused().await;
    says_so(t).await;
    t.later_grants().await;
    assert!(!t.is_named(&name).await);
    t.give().await;
    t.later_names().await;
    t.becomes_named(&name).await;
}

/// There is no Event, since there is no object for it.
async fn says_so(t: &Trial) {
    let (verb, resource) = t.right.asked();
    let text = format!("cannot {verb} {resource}");
    eventually("it says what it lacks", SOON, async || {
        let log = t.process().log();
        log.lines()
            .any(|line| line.contains(&text) && line.contains("the syncer lacks a permission until this"))
    })
    .await;
}

/// The process must list these objects before it begins; `watch` is the name of its watch.
pub async fn begins(t: &mut Trial, watch: &str) {
    t.stop().await;
    let name = t.name.clone();
    t.binds(&name).await;
    t.asks(&name).await;
    t.take_before_start().await;
    waits_for(t, watch).await;
    assert_eq!(get(&t.hub.ocm, &grant(&name)).await, None);
    assert!(!t.is_named(&name).await);
    t.give().await;
    t.is_granted(&name).await;
    t.becomes_named(&name).await;
}

/// A new set takes effect where it is bound.
pub async fn follows_sets(t: &mut Trial) {
    let name = t.name.clone();
    world::create(&t.hub.ocm, [ocm::namespace(&name), ocm::bound(&name, &name)]).await;
    t.take_and_restart().await;
    ocm::cluster_set(&name).create(&t.hub.ocm).await.unwrap();
    appears(t, &name).await;
}

/// A namespace with a newly bound set is noticed.
pub async fn follows_bindings(t: &mut Trial) {
    t.take_and_restart().await;
    let name = t.name.clone();
    t.binds(&name).await;
    appears(t, &name).await;
}

/// The RoleBinding of a namespace is created when the permission is granted, and not before.
async fn appears(t: &mut Trial, namespace: &str) {
    t.later_names().await;
    assert_eq!(get(&t.hub.ocm, &grant(namespace)).await, None);
    t.give().await;
    t.is_granted(namespace).await;
}

/// The accounts that opt in are known.
pub async fn knows_accounts(t: &mut Trial) {
    t.stop().await;
    let name = t.name.clone();
    t.asks(&name).await;
    t.take_and_restart().await;
    t.later_grants().await;
    assert!(!t.is_named(&name).await);
    t.give().await;
    t.becomes_named(&name).await;
}

/// An account that opts in later is noticed.
pub async fn follows_accounts(t: &mut Trial) {
    t.take_and_restart().await;
    let name = t.name.clone();
    t.asks(&name).await;
    t.later_grants().await;
    assert!(!t.is_named(&name).await);
    t.give().await;
    t.becomes_named(&name).await;
}

/// The permission to read the tokens of a joining cluster's accounts is granted.
pub async fn follows_clusters(t: &mut Trial) {
    t.take_and_restart().await;
    let name = t.name.clone();
    t.joins(&name).await;
    let account = ocm::managed_service_account(&name, &name).label(ocm::SYNC_LABEL, "true");
    account.create(&t.hub.ocm).await.unwrap();
    t.later_grants().await;
    assert!(!t.is_named(&name).await);
    t.give().await;
    t.becomes_named(&name).await;
}

/// A RoleBinding that was changed manually is repaired.
pub async fn follows_grants(t: &mut Trial) {
    let name = t.name.clone();
    t.binds(&name).await;
    t.is_granted(&name).await;
    t.take_and_restart().await;
    let grant = grant(&name);
    merge(&t.hub.ocm, &grant, &json!({ "subjects": null })).await;
    t.later_names().await;
    assert_eq!(get(&t.hub.ocm, &grant).await.unwrap()["subjects"], Value::Null);
    t.give().await;
    t.is_granted(&name).await;
}

/// RoleBindings are owned by their role: if it is recreated, so are they.
pub async fn follows_copies_role(t: &mut Trial) {
    t.take_and_restart().await;
    let role = chart::cluster_role(&format!("{}-credentials-copies", chart::RELEASE));
    let before = get(&t.hub.ocm, &role).await.unwrap();
    world::delete(&t.hub.ocm, &role).await;
    let metadata = json!({
        "name": role.name(), "labels": before["metadata"]["labels"], "annotations": before["metadata"]["annotations"],
    });
    let anew = role.clone().field("metadata", metadata).field("rules", before["rules"].clone());
    anew.create(&t.hub.ocm).await.unwrap();
    let uid = get(&t.hub.ocm, &role).await.unwrap()["metadata"]["uid"].clone();
    t.later_names().await;
    assert_ne!(owner(t).await, uid);
    t.give().await;
    eventually("the RoleBinding goes with the new role", SOON, async || owner(t).await == uid).await;
}

/// A permission that is no longer needed is withdrawn as soon as the syncer has had time to delete its copies.
pub async fn withdraws(t: &mut Trial) {
    let name = t.name.clone();
    t.binds(&name).await;
    t.is_granted(&name).await;
    t.stop().await;
    t.take().await;
    t.start_with(&["--credential-rights-grace=1s"]).await;
    t.process().works().await;
    t.is_refused().await;
    world::delete(&t.hub.ocm, &ocm::bound(&name, &name)).await;
    t.later_names().await;
    t.syncer_runs().await;
    t.later_names().await;
    assert!(get(&t.hub.ocm, &grant(&name)).await.is_some(), "it cannot know that the syncer runs");
    t.give().await;
    eventually("the permission is withdrawn", SOON, async || {
        t.syncer_renews().await;
        get(&t.hub.ocm, &grant(&name)).await.is_none()
    })
    .await;
    t.stop().await;
    t.start_with(&[]).await;
    t.process().works().await;
}

/// The owner of the RoleBinding of the first namespace.
async fn owner(t: &Trial) -> Value {
    let grant = get(&t.hub.ocm, &grant(TEAM)).await.unwrap_or_default();
    grant["metadata"]["ownerReferences"][0]["uid"].clone()
}

/// Names that were removed from the role manually are restored.
pub async fn follows_tokens_role(t: &mut Trial) {
    t.take_and_restart().await;
    merge(&t.hub.ocm, &tokens_role(), &json!({ "rules": [] })).await;
    t.later_grants().await;
    assert!(!t.is_named("app").await);
    t.give().await;
    t.becomes_named("app").await;
}
