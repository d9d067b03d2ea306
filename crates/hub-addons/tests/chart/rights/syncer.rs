//! The credential syncer.

use local_hub::ocm;
use serde_json::{Value, json};

use super::trial::{FLEET, Trial};
use crate::support::credentials::{
    CONDITION, SYNCED_FROM, condition, copied, copy, name_of, rotated, withdrawn, withheld,
};
use crate::support::proxy::TEAM;
use crate::support::world::{self, get, merge};

/// A missing copy is created.
pub async fn copies(t: &mut Trial) {
    t.take().await;
    let name = t.name.clone();
    t.joins(&name).await;
    let token = t.has_token(&name).await;
    t.tells_refusal(&copy(TEAM, &token)).await;
    t.later_copies().await;
    assert_eq!(t.copy(&token).await, None);
    t.give().await;
    let token = rotated(&token, 1);
    token.report(&t.hub.ocm).await.unwrap();
    copied(&t.hub.ocm, TEAM, &token).await;
}

/// A copy that lost its label is not watched, and found again when it blocks a new copy.
pub async fn meets(t: &mut Trial) {
    let name = t.name.clone();
    t.joins(&name).await;
    let token = t.has_token(&name).await;
    copied(&t.hub.ocm, TEAM, &token).await;
    t.take().await;
    let bare = json!({ "metadata": { "labels": null, "annotations": null, "ownerReferences": null } });
    merge(&t.hub.ocm, &copy(TEAM, &token), &bare).await;
    t.tells_refusal(&copy(TEAM, &token)).await;
    t.later_copies().await;
    assert_eq!(t.copy(&token).await.unwrap()["metadata"]["labels"][SYNCED_FROM], Value::Null);
    t.give().await;
    let token = rotated(&token, 1);
    token.report(&t.hub.ocm).await.unwrap();
    copied(&t.hub.ocm, TEAM, &token).await;
}

/// A rotated token is copied.
pub async fn renews(t: &mut Trial) {
    t.take().await;
    let before = t.copy(t.base()).await.unwrap()["data"].clone();
    let token = t.rotates().await;
    t.tells_refusal(&copy(TEAM, &token)).await;
    t.later_reports().await;
    assert_eq!(t.copy(&token).await.unwrap()["data"], before);
    t.give().await;
    t.later_copies().await;
}

/// A copy is deleted with its grant.
pub async fn revokes(t: &mut Trial) {
    let name = t.name.clone();
    t.joins(&name).await;
    let token = t.has_token(&name).await;
    copied(&t.hub.ocm, TEAM, &token).await;
    t.take().await;
    world::delete(&t.hub.ocm, &t.cluster(&name, FLEET)).await;
    t.tells_refusal(&copy(TEAM, &token)).await;
    t.later_copies().await;
    assert!(t.copy(&token).await.is_some());
    t.give().await;
    withdrawn(&t.hub.ocm, TEAM, &token).await;
}

/// An account with a missing copy has the condition.
pub async fn reports(t: &mut Trial) {
    t.take().await;
    let name = t.name.clone();
    let token = t.has_token(&name).await;
    t.is_refused().await;
    let text = format!("cannot patch_status managedserviceaccounts {name}/app");
    t.process().logs("refused", &text).await;
    t.later_copies().await;
    assert_eq!(condition(&t.hub.ocm, &token).await, Value::Null, "{CONDITION}");
    t.give().await;
    t.touch(&token.account()).await;
    withheld(&t.hub.ocm, &token, "NotGranted").await;
}

/// A new cluster with a profile gets copies of its tokens.
pub async fn follows_clusters(t: &mut Trial) {
    t.take_and_restart().await;
    let name = t.name.clone();
    t.joins(&name).await;
    let token = t.has_token(&name).await;
    t.is_projected(&name).await;
    t.later_copies().await;
    assert_eq!(t.copy(&token).await, None);
    t.give().await;
    copied(&t.hub.ocm, TEAM, &token).await;
}

/// A new set grants its clusters.
pub async fn follows_sets(t: &mut Trial) {
    let (name, cluster) = (t.name.clone(), own_cluster(t));
    world::create(&t.hub.ocm, [ocm::namespace(&name), t.cluster(&cluster, &name), ocm::bound(&name, &name)])
        .await;
    let token = t.has_token(&cluster).await;
    t.take_and_restart().await;
    ocm::cluster_set(&name).create(&t.hub.ocm).await.unwrap();
    appears(t, &token).await;
}

/// A namespace with a newly bound set gets copies.
pub async fn follows_bindings(t: &mut Trial) {
    let (name, cluster) = (t.name.clone(), own_cluster(t));
    world::create(&t.hub.ocm, [ocm::namespace(&name), t.cluster(&cluster, &name), ocm::cluster_set(&name)])
        .await;
    let token = t.has_token(&cluster).await;
    t.take_and_restart().await;
    ocm::bound(&name, &name).create(&t.hub.ocm).await.unwrap();
    appears(t, &token).await;
}

/// The syncer finds the namespaces in which it has permission for copies.
pub async fn follows_grants(t: &mut Trial) {
    t.take_and_restart().await;
    let (name, cluster) = (t.name.clone(), own_cluster(t));
    t.binds(&name).await;
    t.cluster(&cluster, &name).create(&t.hub.ocm).await.unwrap();
    let token = t.has_token(&cluster).await;
    appears(t, &token).await;
}

/// The only cluster of the trial's set, whose own namespace is not the one that the set is bound in.
fn own_cluster(t: &Trial) -> String {
    format!("{}-cluster", t.name)
}

/// The copy in the trial's namespace comes with the right, and not before.
async fn appears(t: &mut Trial, token: &ocm::ServiceAccountToken) {
    let (namespace, cluster) = (t.name.clone(), own_cluster(t));
    t.has_profile(&namespace, &cluster).await;
    t.later_copies().await;
    assert_eq!(get(&t.hub.ocm, &copy(&namespace, token)).await, None);
    t.give().await;
    copied(&t.hub.ocm, &namespace, token).await;
}

/// The accounts must be listed.
pub async fn knows_accounts(t: &mut Trial) {
    let leaving = t.fresh();
    t.joins(&leaving).await;
    let old = t.has_token(&leaving).await;
    copied(&t.hub.ocm, TEAM, &old).await;
    t.stop().await;
    let name = t.name.clone();
    t.joins(&name).await;
    let token = t.has_token(&name).await;
    t.is_projected(&name).await;
    t.take_and_restart().await;
    // The end of a grant deletes the copy, whether or not the account is known.
    world::delete(&t.hub.ocm, &t.cluster(&leaving, FLEET)).await;
    withdrawn(&t.hub.ocm, TEAM, &old).await;
    assert_eq!(t.copy(&token).await, None);
    t.give().await;
    copied(&t.hub.ocm, TEAM, &token).await;
}

/// An account that opts in later gets copies.
pub async fn follows_accounts(t: &mut Trial) {
    let name = t.name.clone();
    t.joins(&name).await;
    t.take_and_restart().await;
    let token = t.has_token(&name).await;
    t.later_copies().await;
    assert_eq!(t.copy(&token).await, None);
    t.give().await;
    copied(&t.hub.ocm, TEAM, &token).await;
}

/// Copies, and with permission for all Secrets also tokens, must be listed.
pub async fn knows_secrets(t: &mut Trial) {
    t.stop().await;
    let name = t.name.clone();
    t.joins(&name).await;
    let token = t.has_token(&name).await;
    t.take_and_restart().await;
    t.is_projected(&name).await;
    t.later_reports().await;
    assert_eq!(t.copy(&token).await, None, "{}", name_of(&token));
    t.give().await;
    copied(&t.hub.ocm, TEAM, &token).await;
}

/// A copy that was changed manually is repaired.
pub async fn follows_secrets(t: &mut Trial) {
    t.take_and_restart().await;
    t.is_refused_copies().await;
    merge(&t.hub.ocm, &copy(TEAM, t.base()), &json!({ "data": { "more": "bW9yZQ==" } })).await;
    t.later_reports().await;
    assert!(t.is_edited().await);
    t.give().await;
    copied(&t.hub.ocm, TEAM, t.base()).await;
}
