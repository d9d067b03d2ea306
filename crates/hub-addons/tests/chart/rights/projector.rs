//! The profile projector.

use local_hub::ocm;
use serde_json::json;

use super::trial::{BASE, FLEET, Trial, shown};
use crate::support::proxy::TEAM;
use crate::support::shown::{names, sees};
use crate::support::world::{self, get, merge};

/// A missing profile is created.
pub async fn makes(t: &mut Trial) {
    t.take().await;
    let name = t.name.clone();
    t.joins(&name).await;
    t.tells_refusal(&shown(&name)).await;
    t.later_mends().await;
    assert!(!names(&t.hub.ocm, TEAM).await.contains(&name));
    t.give().await;
    t.changes(&name).await;
    t.has_profile(TEAM, &name).await;
}

/// A profile that was changed manually is repaired.
pub async fn mends(t: &mut Trial) {
    t.take().await;
    let drift = json!({ "spec": { "displayName": "drift" } });
    merge(&t.hub.ocm, &shown(BASE), &drift).await;
    t.tells_refusal(&shown(BASE)).await;
    t.later_shows().await;
    assert_eq!(get(&t.hub.ocm, &shown(BASE)).await.unwrap()["spec"]["displayName"], "drift");
    t.give().await;
    t.touch(&shown(BASE)).await;
    t.is_mended().await;
}

/// The profile of a deleted cluster is deleted.
pub async fn deletes(t: &mut Trial) {
    let name = t.name.clone();
    t.joins(&name).await;
    t.has_profile(TEAM, &name).await;
    t.take().await;
    world::delete(&t.hub.ocm, &t.cluster(&name, FLEET)).await;
    t.tells_refusal(&shown(&name)).await;
    t.later_shows().await;
    assert!(names(&t.hub.ocm, TEAM).await.contains(&name));
    t.give().await;
    world::gone(&t.hub.ocm, &shown(&name)).await;
}

/// A profile has a status.
pub async fn describes(t: &mut Trial) {
    t.take().await;
    let name = t.name.clone();
    t.joins(&name).await;
    t.tells_refusal(&shown(&name)).await;
    t.later_mends().await;
    assert!(get(&t.hub.ocm, &shown(&name)).await.unwrap()["status"].is_null());
    t.give().await;
    t.changes(&name).await;
    t.has_profile(TEAM, &name).await;
}

/// A new cluster gets a profile.
pub async fn follows_clusters(t: &mut Trial) {
    t.take_and_restart().await;
    let name = t.name.clone();
    t.joins(&name).await;
    t.later_mends().await;
    assert!(!names(&t.hub.ocm, TEAM).await.contains(&name));
    t.give().await;
    t.has_profile(TEAM, &name).await;
}

/// A new set grants its clusters.
pub async fn follows_sets(t: &mut Trial) {
    let name = t.name.clone();
    world::create(&t.hub.ocm, [ocm::namespace(&name), t.cluster(&name, &name), ocm::bound(&name, &name)])
        .await;
    t.take_and_restart().await;
    ocm::cluster_set(&name).create(&t.hub.ocm).await.unwrap();
    t.later_mends().await;
    sees(&t.hub.ocm, &name, &[]).await;
    t.give().await;
    t.has_profile(&name, &name).await;
}

/// A namespace with a newly bound set sees it.
pub async fn follows_bindings(t: &mut Trial) {
    let name = t.name.clone();
    world::create(&t.hub.ocm, [ocm::namespace(&name), t.cluster(&name, &name), ocm::cluster_set(&name)])
        .await;
    t.take_and_restart().await;
    ocm::bound(&name, &name).create(&t.hub.ocm).await.unwrap();
    t.later_mends().await;
    sees(&t.hub.ocm, &name, &[]).await;
    t.give().await;
    t.has_profile(&name, &name).await;
}

/// A manual change is noticed.
pub async fn follows_profiles(t: &mut Trial) {
    t.take_and_restart().await;
    let drift = json!({ "spec": { "displayName": "drift" } });
    merge(&t.hub.ocm, &shown(BASE), &drift).await;
    t.later_makes().await;
    assert_eq!(get(&t.hub.ocm, &shown(BASE)).await.unwrap()["spec"]["displayName"], "drift");
    t.give().await;
    t.is_mended().await;
}
