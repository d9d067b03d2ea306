//! Trust anchors are never stale and never missing: overlaps, restarts, and invalid certificates.

#![cfg(test)]

use std::time::{Duration, Instant};

use crate::support::proxy::{
    Authority, HOME, has_written, hub, install, project, provisioner, publishes, serving,
};
use crate::support::{Addons, Hub, SOON};
use local_hub::{Flavour, eventually};

const OVERLAP: Duration = Duration::from_secs(6);
const SHORT: &str = "--ca-overlap=6s";

/// A hub with a proxy and one profile.
async fn hub_with_one(authority: &Authority) -> Hub {
    let hub = hub(Flavour::Map).await;
    install(&hub, authority, &["c1"]).await;
    project(&hub, &["c1"]).await;
    hub
}

async fn renew(hub: &Hub, certificates: &str) {
    serving(HOME, certificates).update(&hub.ocm).await.unwrap();
}

#[tokio::test]
async fn old_and_new_anchors_are_published_together_at_once_and_the_old_ones_leave_after_the_overlap() {
    let (a, b, c) = (Authority::new("a"), Authority::new("b"), Authority::new("c"));
    let hub = hub_with_one(&a).await;
    let addons = provisioner(&hub, &[SHORT]).await;
    publishes(&hub, "c1", HOME, &[&a]).await;

    let changed = Instant::now();
    renew(&hub, &b.chain()).await;
    publishes(&hub, "c1", HOME, &[&a, &b]).await;
    publishes(&hub, "c1", HOME, &[&b]).await;
    assert!(changed.elapsed() >= OVERLAP, "{:?}", changed.elapsed());

    // Two changes in a row: the first to be replaced is removed first.
    renew(&hub, &c.chain()).await;
    publishes(&hub, "c1", HOME, &[&b, &c]).await;
    let changed = Instant::now();
    renew(&hub, &a.chain()).await;
    publishes(&hub, "c1", HOME, &[&a, &b, &c]).await;
    publishes(&hub, "c1", HOME, &[&a, &c]).await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    assert!(changed.elapsed() >= OVERLAP, "{:?}", changed.elapsed());

    // A to B and back: what is current again is not removed, and appears once.
    renew(&hub, &b.chain()).await;
    publishes(&hub, "c1", HOME, &[&a, &b]).await;
    let changed = Instant::now();
    renew(&hub, &a.chain()).await;
    eventually("both overlaps are over", SOON, async || addons.log().matches("overlap").count() >= 10).await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    assert!(changed.elapsed() >= OVERLAP, "{:?}", changed.elapsed());
    has_written(&addons, 9).await;
}

/// Waits until the gauge has this expiry.
async fn expires(addons: &Addons, seconds: f64) {
    addons.measures("hub_addons_trust_anchor_expiry_timestamp_seconds", seconds).await;
}

#[tokio::test]
async fn a_gauge_says_when_the_first_anchor_expires() {
    let (early, late) = (Authority::until("early", 2030), Authority::until("late", 2040));
    let (in_2030, in_2040) = (1_893_456_000.0, 2_208_988_800.0);
    let hub = hub(Flavour::Map).await;
    let addons = provisioner(&hub, &["--ca-overlap=0"]).await;
    expires(&addons, 0.0).await;
    install(&hub, &late, &["c1"]).await;
    expires(&addons, in_2040).await;
    renew(&hub, &format!("{}{}", late.chain(), early.pem())).await;
    expires(&addons, in_2030).await;
    renew(&hub, &late.chain()).await;
    expires(&addons, in_2040).await;
    // An invalid Secret does not change the expiry of the published ones.
    renew(&hub, "garbage").await;
    addons.measures("hub_addons_findings{reason=\"NoTrustAnchor\"}", 1.0).await;
    expires(&addons, in_2040).await;
}
