//! Trust anchors are never stale and never missing: overlaps, restarts, and invalid certificates.

#![cfg(test)]

use std::time::{Duration, Instant};

use crate::support::proxy::{
    self, Authority, HOME, LONG, TEAM, addon, anchors_in, configuration, cost_since, has_written, hub,
    install, project, projected, provisioner, publishes, publishes_nothing, serving, state,
};
use crate::support::shown::{profile, provider};
use crate::support::{Addons, Hub, SOON, user, world};
use local_hub::{Flavour, eventually};
use serde_json::json;

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

#[tokio::test]
async fn one_certificate_of_a_bundle_that_is_replaced_overlaps_alone() {
    let (a, b, c) = (Authority::new("a"), Authority::new("b"), Authority::new("c"));
    let hub = hub_with_one(&a).await;
    let addons = provisioner(&hub, &[SHORT]).await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    // An addition: nothing is removed later.
    renew(&hub, &format!("{}{}", a.chain(), b.pem())).await;
    publishes(&hub, "c1", HOME, &[&a, &b]).await;
    renew(&hub, &format!("{}{}", c.chain(), b.pem())).await;
    publishes(&hub, "c1", HOME, &[&a, &b, &c]).await;
    publishes(&hub, "c1", HOME, &[&b, &c]).await;
    has_written(&addons, 4).await;
}

#[tokio::test]
async fn a_restart_within_an_overlap_publishes_both_for_another_one() {
    let (a, b) = (Authority::new("a"), Authority::new("b"));
    let hub = hub_with_one(&a).await;
    let addons = provisioner(&hub, &[LONG]).await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    renew(&hub, &b.chain()).await;
    let both = publishes(&hub, "c1", HOME, &[&a, &b]).await;
    addons.kill().await;

    let restarted = Instant::now();
    let mark = hub.audit().mark().await.unwrap();
    let addons = provisioner(&hub, &[SHORT, "--leader-elect=false"]).await;
    let shown = publishes(&hub, "c1", HOME, &[&b]).await;
    assert!(restarted.elapsed() >= OVERLAP, "{:?}", restarted.elapsed());
    assert_ne!(shown["metadata"]["resourceVersion"], both["metadata"]["resourceVersion"]);
    let cost = cost_since(&hub, &addons, &mark).await;
    assert_eq!(cost.writes().len(), 1, "the restart itself wrote nothing: {cost}");
}

#[tokio::test]
async fn a_change_that_was_missed_overlaps_from_the_start_on() {
    let (a, b, c) = (Authority::new("a"), Authority::new("b"), Authority::new("c"));
    let hub = hub_with_one(&a).await;
    let addons = provisioner(&hub, &[LONG]).await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    addons.stop().await;
    renew(&hub, &b.chain()).await;
    let restarted = Instant::now();
    let addons = provisioner(&hub, &[SHORT]).await;
    publishes(&hub, "c1", HOME, &[&a, &b]).await;
    publishes(&hub, "c1", HOME, &[&b]).await;
    assert!(restarted.elapsed() >= OVERLAP, "{:?}", restarted.elapsed());
    has_written(&addons, 2).await;
    addons.stop().await;

    renew(&hub, &c.chain()).await;
    let addons = provisioner(&hub, &["--ca-overlap=0"]).await;
    publishes(&hub, "c1", HOME, &[&c]).await;
    has_written(&addons, 1).await;
}

#[tokio::test]
async fn anchors_that_cannot_be_read_at_the_start_overlap_from_when_they_can() {
    let (a, b) = (Authority::new("a"), Authority::new("b"));
    let hub = hub_with_one(&a).await;
    let addons = provisioner(&hub, &[LONG]).await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    addons.stop().await;
    renew(&hub, "not yet").await;
    let addons = provisioner(&hub, &["--ca-overlap=1s"]).await;
    addons.measures(&state("cluster_proxy", "no_trust_anchor"), 1.0).await;
    // Longer than the overlap, measured by the renewals of the Lease: one every two seconds.
    let mark = hub.audit().mark().await.unwrap();
    eventually("the Lease is renewed twice", SOON, async || {
        let requests = hub.audit().since(&mark).await.unwrap().of_user(user());
        requests.count(|request| request.verb == "update" && request.resource == "leases") >= 2
    })
    .await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    let changed = Instant::now();
    renew(&hub, &b.chain()).await;
    publishes(&hub, "c1", HOME, &[&b]).await;
    assert!(changed.elapsed() >= Duration::from_secs(1), "{:?}", changed.elapsed());
    has_written(&addons, 2).await;
}

#[tokio::test]
async fn an_anchor_that_was_added_to_one_profile_reaches_no_other() {
    let (a, theirs) = (Authority::new("a"), Authority::new("theirs"));
    let hub = hub_with_one(&a).await;
    addon_on(&hub, "c2").await;
    projected(TEAM, "c2").create(&hub.ocm).await.unwrap();
    let addons = provisioner(&hub, &[LONG]).await;
    let whole = publishes(&hub, "c1", HOME, &[&a]).await;
    let other = publishes(&hub, "c2", HOME, &[&a]).await;
    addons.stop().await;
    let mut entry = provider(&whole, proxy::NAME).clone();
    let both = k8s_openapi::ByteString(format!("{}{}", a.pem(), theirs.pem()).into_bytes());
    entry["cluster"]["certificate-authority-data"] = serde_json::to_value(both).unwrap();
    world::merge_status(&hub.ocm, &projected(TEAM, "c1"), &json!({ "accessProviders": [entry] })).await;

    let _addons = provisioner(&hub, &["--ca-overlap=2s"]).await;
    publishes(&hub, "c1", HOME, &[&a]).await;
    let untouched = world::get(&hub.ocm, &projected(TEAM, "c2")).await.unwrap();
    assert_eq!(untouched["metadata"]["resourceVersion"], other["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn an_overlap_that_is_too_large_to_be_published_is_reported_until_it_ends() {
    let many = |name: &str| -> String {
        (0..70).map(|number| Authority::new(&format!("{name} {number:0>50}")).pem()).collect()
    };
    let (old, new) = (many("old"), many("new"));
    assert!(old.len() < 60_000 && new.len() < 60_000 && old.len() + new.len() > 65_536, "{}", old.len());
    let hub = hub_with_one(&Authority::new("a")).await;
    renew(&hub, &old).await;
    let addons = provisioner(&hub, &["--ca-overlap=10s"]).await;
    let published = async |text: &str| {
        profile(&hub.ocm, (TEAM, "c1"), "has these anchors and no others", |shown| {
            let anchors = anchors_in(shown);
            anchors.len() == 70 && anchors.iter().all(|anchor| text.contains(anchor))
        })
        .await;
    };
    published(&old).await;
    renew(&hub, &new).await;
    published(&new).await;
    let note = world::told(&hub.ocm, &serving(HOME, ""), "OverlapTooLarge").await;
    assert!(note.contains("the limit for clients is 65536"), "{note}");
    addons.measures("hub_addons_findings{reason=\"OverlapTooLarge\"}", 0.0).await;
}

async fn addon_on(hub: &Hub, cluster: &str) {
    local_hub::ocm::namespace(cluster).create(&hub.ocm).await.unwrap();
    addon(cluster).create(&hub.ocm).await.unwrap();
}

#[tokio::test]
async fn invalid_certificates_keep_what_is_published_and_are_reported() {
    let a = Authority::new("a");
    let hub = hub_with_one(&a).await;
    let addons = provisioner(&hub, &[LONG]).await;
    let kept = publishes(&hub, "c1", HOME, &[&a]).await;
    addon_on(&hub, "c2").await;
    projected(TEAM, "c2").create(&hub.ocm).await.unwrap();
    publishes(&hub, "c2", HOME, &[&a]).await;

    let leaf = |chain: &str| chain.split_inclusive("-----END CERTIFICATE-----").next().unwrap().to_owned();
    let many: String = (0..150).map(|number| Authority::new(&format!("authority {number}")).pem()).collect();
    let findings = "hub_addons_findings{reason=\"NoTrustAnchor\"}";
    for (certificates, told) in [
        ("c2VjcmV0LWJ5dGVz", "it contains no certificate"),
        ("", "it contains no certificate"),
        (&leaf(&a.chain()), "without its issuer"),
        (&a.pem()[..200], "malformed"),
        (&many, "the limit for clients is 65536"),
    ] {
        renew(&hub, certificates).await;
        addons.logs(told, told).await;
        addons.measures(findings, 1.0).await;
        addons.measures(&state("cluster_proxy", "no_trust_anchor"), 2.0).await;
    }
    let secret = serving(HOME, "").field("stringData", json!({ "other.crt": a.chain() }));
    secret.update(&hub.ocm).await.unwrap();
    addons.measures(findings, 1.0).await;
    world::delete(&hub.ocm, &secret).await;
    addons.logs("the Secret is gone", "it does not exist").await;
    eventually("every finding has its own Event", SOON, async || {
        let notes = world::events(&hub.ocm, &secret, "NoTrustAnchor").await;
        let texts =
            ["in key \"tls.crt\": it contains no certificate", "without its issuer", "is 65536", "not exist"];
        texts.iter().all(|text| notes.iter().any(|note| note.contains(text)))
    })
    .await;
    addons.measures(&state("cluster_proxy", "published"), 0.0).await;
    // Nothing new is published, and existing entries stay.
    addon_on(&hub, "c3").await;
    projected(TEAM, "c3").create(&hub.ocm).await.unwrap();
    addons.measures(&state("cluster_proxy", "no_trust_anchor"), 3.0).await;
    publishes_nothing(&hub, "c3").await;
    let now = world::get(&hub.ocm, &projected(TEAM, "c1")).await.unwrap();
    assert_eq!(now["metadata"]["resourceVersion"], kept["metadata"]["resourceVersion"]);
    assert!(!addons.log().contains("c2VjcmV0LWJ5dGVz"), "no byte of a Secret in the log");

    serving(HOME, &a.chain()).create(&hub.ocm).await.unwrap();
    publishes(&hub, "c3", HOME, &[&a]).await;
    addons.measures(findings, 0.0).await;
    addons.measures(&state("cluster_proxy", "published"), 3.0).await;
    // Also if the certificates were valid until the Secret was deleted.
    world::delete(&hub.ocm, &secret).await;
    addons.measures(&state("cluster_proxy", "no_trust_anchor"), 3.0).await;
    has_written(&addons, 3).await;
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

#[tokio::test]
async fn every_reason_has_its_series_from_the_start() {
    let hub = hub(Flavour::Map).await;
    let addons = provisioner(&hub, &[]).await;
    for reason in ["published", "no_configuration", "configuration_unknown", "no_addon", "addons_unknown"] {
        addons.measures(&state("cluster_proxy", reason), 0.0).await;
    }
    for reason in ["no_trust_anchor", "invalid_cluster_name"] {
        addons.measures(&state("cluster_proxy", reason), 0.0).await;
    }
    // Without a configuration there is one finding, whatever else changes.
    let absent = configuration(HOME);
    world::told(&hub.ocm, &absent, "NoProxyConfiguration").await;
    project(&hub, &["c1"]).await;
    addons.measures(&state("cluster_proxy", "no_configuration"), 1.0).await;
    assert_eq!(world::events(&hub.ocm, &absent, "NoProxyConfiguration").await.len(), 1);
    addons.measures("hub_addons_events_total{result=\"published\"}", 1.0).await;
}
