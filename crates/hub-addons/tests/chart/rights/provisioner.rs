//! The access-provider provisioner, and direct access.

use local_hub::ocm;
use serde_json::Value;

use super::trial::{BASE, FLEET, Trial, shown};
use crate::support::proxy::{self, HOME, TEAM, addon, configuration};
use crate::support::world;

/// A profile that another process has created gets the access provider.
pub async fn publishes(t: &mut Trial) {
    t.take().await;
    let name = t.name.clone();
    t.joins(&name).await;
    t.tells_refusal(&shown(&name)).await;
    assert_eq!(t.entry(&name).await, Value::Null);
    t.give().await;
    t.touch(&shown(&name)).await;
    t.has_entry(&name).await;
}

/// The same for a profile that is created later.
pub async fn follows_profiles(t: &mut Trial) {
    t.take_and_restart().await;
    let name = t.name.clone();
    t.joins(&name).await;
    t.is_projected(&name).await;
    t.later_publishes().await;
    assert_eq!(t.entry(&name).await, Value::Null);
    t.give().await;
    t.has_entry(&name).await;
}

/// Every source of the entry must be listed: `watch` is the name of its watch.
pub async fn knows(t: &mut Trial, watch: &str) {
    t.stop().await;
    let name = t.name.clone();
    t.joins(&name).await;
    t.take_before_start().await;
    t.process().works().await;
    t.process().logs("without a list", &format!("cannot watch {watch}, retrying")).await;
    t.has_profile(TEAM, &name).await;
    t.later_shows().await;
    assert_eq!(t.entry(&name).await, Value::Null);
    t.give().await;
    t.has_entry(&name).await;
}

/// The entry is withdrawn with the proxy.
pub async fn follows_configuration(t: &mut Trial) {
    t.take_and_restart().await;
    world::delete(&t.hub.ocm, &configuration(HOME)).await;
    let name = t.later_shows().await;
    t.has_entry(&name).await;
    assert_ne!(t.entry(BASE).await, Value::Null);
    t.give().await;
    proxy::publishes_nothing(&t.hub, BASE).await;
    configuration(HOME).create(&t.hub.ocm).await.unwrap();
    t.has_entry(BASE).await;
}

/// A cluster that gets the addon later gets the entry.
pub async fn follows_addons(t: &mut Trial) {
    let name = t.name.clone();
    world::create(&t.hub.ocm, [ocm::namespace(&name), t.cluster(&name, FLEET)]).await;
    t.take_and_restart().await;
    addon(&name).create(&t.hub.ocm).await.unwrap();
    t.later_publishes().await;
    assert_eq!(t.entry(&name).await, Value::Null);
    t.give().await;
    t.has_entry(&name).await;
}

/// A renewed certificate is published.
pub async fn follows_anchors(t: &mut Trial) {
    t.take_and_restart().await;
    let authority = t.renews_certificate().await;
    let name = t.later_shows().await;
    t.has_entry(&name).await;
    assert!(!t.has_published(&authority).await);
    t.give().await;
    t.publishes(&authority).await;
}

/// A cluster's own API server moves.
pub async fn follows_clusters(t: &mut Trial) {
    t.take_and_restart().await;
    let url = format!("https://{}.example:6443", t.name);
    t.moves_to(&url).await;
    t.later_publishes().await;
    assert_ne!(t.address().await, url);
    t.give().await;
    t.leads_to(&url).await;
}
