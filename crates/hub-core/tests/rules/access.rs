//! The entry and trust anchors of a profile: what is gone withdraws the entry, what is unknown keeps it, and what was
//! replaced stays for its overlap.

use std::collections::BTreeSet;

use hub_api::cluster_profile::AccessProvider;
use hub_api::names::{ManagerName, Namespace, ProfileKey};
use hub_core::access::{
    self, AccessIndex, AccessSource, AnchorChange, DirectOffers, Offer, Overlap, Withheld,
};
use hub_core::effort;
use hub_core::finding::Reason;
use hub_core::fleet::{BoundSource, Fleet, ObservedCluster, Part};
use hub_core::known::Known;
use hub_core::profile::ObservedProfile;
use hub_core::trust::{TrustBundle, TrustError};
use serde_json::{Value, json};

use crate::trust::large;

pub const NAME: &str = "open-cluster-management";
pub const RSA: &str = include_str!("certificates/rsa-root.crt");
pub const ECDSA: &str = include_str!("certificates/ecdsa-root.crt");
pub const EXPIRED: &str = include_str!("certificates/expired-root.crt");

pub fn bundle(pems: &[&str]) -> TrustBundle {
    TrustBundle::from_pem(pems.concat().as_bytes()).unwrap()
}

fn profile(labels: &Value, status: &Value) -> ObservedProfile {
    let object = json!({ "spec": { "clusterManager": { "name": NAME } }, "status": status });
    ObservedProfile::read(&serde_json::from_value(json!({ "labels": labels })).unwrap(), &object)
}

pub fn of_cluster(cluster: &str) -> ObservedProfile {
    let labels = json!({
        "x-k8s.io/cluster-manager": NAME, "open-cluster-management.io/cluster-name": cluster,
    });
    profile(&labels, &Value::Null)
}

pub fn key(name: &str) -> ProfileKey {
    ProfileKey { namespace: "team".into(), cluster: name.into() }
}

fn cluster_proxy(require_addon: bool) -> AccessIndex {
    let source = AccessSource::ClusterProxy { require_addon, ca: None };
    AccessIndex::new(NAME, source, true)
}

pub fn home() -> Known<Namespace> {
    Known::Present("proxy".into())
}

/// A proxy with these anchors in its default namespace, and the addon on c1.
pub fn ready(pems: &[&str]) -> AccessIndex {
    let mut index = cluster_proxy(true);
    index.set_configuration(home());
    index.set_anchors(index.place(), Ok(bundle(pems)));
    index.set_addon(&"c1".into(), true);
    index.set_addons_read(true);
    index
}

pub fn published(index: &AccessIndex, cluster: &str) -> AccessProvider {
    match index.offer(&key(cluster), &of_cluster(cluster)) {
        Offer::Publish(entry) => *entry,
        other => panic!("{other:?}"),
    }
}

/// The anchors that the profile of a cluster publishes.
pub fn anchors(index: &AccessIndex, cluster: &str) -> TrustBundle {
    let data = published(index, cluster).cluster.unwrap().certificate_authority_data.unwrap();
    TrustBundle::from_published(&data.0).unwrap()
}

#[test]
fn the_entry_is_the_server_the_anchors_and_the_cluster_s_name() {
    let entry = serde_json::to_value(published(&ready(&[RSA]), "c1")).unwrap();
    let data = entry["cluster"]["certificate-authority-data"].clone();
    let wanted = json!({ "name": NAME, "cluster": {
        "server": "https://cluster-proxy-addon-user.proxy:9092/c1",
        "certificate-authority-data": data,
        "extensions": [
            { "name": "client.authentication.k8s.io/exec", "extension": { "clusterName": "c1" } },
        ],
    } });
    assert_eq!(entry, wanted);
    let text: k8s_openapi::ByteString = serde_json::from_value(data).unwrap();
    assert_eq!(text.0, RSA.as_bytes());
}

#[test]
fn what_is_known_to_be_gone_withdraws_and_what_is_unknown_keeps() {
    type Loss = fn(&mut AccessIndex);
    let offer = |index: &AccessIndex| index.offer(&key("c1"), &of_cluster("c1"));
    // A provisioner that starts.
    let mut index = cluster_proxy(true);
    assert_eq!(offer(&index), Offer::Keep(Withheld::ConfigurationUnknown));
    index.set_configuration(Known::Absent);
    assert_eq!(offer(&index), Offer::Withdraw(Withheld::NoConfiguration));
    index.set_configuration(home());
    assert_eq!(offer(&index), Offer::Keep(Withheld::AddonsUnknown));
    index.set_addons_read(true);
    assert_eq!(offer(&index), Offer::Withdraw(Withheld::NoAddon));
    index.set_addon(&"c1".into(), true);
    assert_eq!(offer(&index), Offer::Keep(Withheld::NoTrustAnchor));
    // One that has published an entry.
    let losses: [(Loss, Offer); 5] = [
        (|it| _ = it.set_addon(&"c1".into(), false), Offer::Withdraw(Withheld::NoAddon)),
        (|it| _ = it.set_addons_read(false), Offer::Keep(Withheld::AddonsUnknown)),
        (|it| _ = it.set_configuration_read(false), Offer::Keep(Withheld::ConfigurationUnknown)),
        (|it| _ = it.anchors_unknown(it.place()), Offer::Keep(Withheld::NoTrustAnchor)),
        (
            |it| _ = it.set_anchors(it.place(), Err(TrustError::NoCertificate)),
            Offer::Keep(Withheld::NoTrustAnchor),
        ),
    ];
    for (loss, expected) in losses {
        let mut index = ready(&[RSA]);
        loss(&mut index);
        assert_eq!(offer(&index), expected);
    }
}

#[test]
fn the_label_says_which_cluster_a_profile_shows() {
    let index = ready(&[RSA]);
    let elsewhere = index.offer(&key("another-name"), &of_cluster("c1"));
    assert_eq!(elsewhere, Offer::Publish(Box::new(published(&index, "c1"))));
    for label in ["", "A", "a_b", "a/b", "-a", "a..b", "c1?x", "c1#", "../c1"] {
        let offer = index.offer(&key("c1"), &of_cluster(label));
        assert_eq!(offer, Offer::Withdraw(Withheld::InvalidClusterName), "{label:?}");
    }
    let unlabelled = index.offer(&key("c1"), &profile(&json!({}), &Value::Null));
    assert_eq!(unlabelled, Offer::Withdraw(Withheld::InvalidClusterName));
}

#[test]
fn a_profile_is_ours_by_label_and_spec() {
    let manager = |name: &str| name.parse::<ManagerName>().unwrap();
    assert!(access::is_ours(&of_cluster("c1"), &manager(NAME)));
    assert!(!access::is_ours(&of_cluster("c1"), &manager("another")));
    assert!(!access::is_ours(&profile(&json!({}), &Value::Null), &manager(NAME)));
    let labelled = profile(&json!({ "x-k8s.io/cluster-manager": "another" }), &Value::Null);
    for name in ["another", NAME] {
        assert!(!access::is_ours(&labelled, &manager(name)), "{name}");
    }
}

/// Replaces the anchors, and returns the overlap that begins.
pub fn replaced(index: &mut AccessIndex, pems: &[&str]) -> Overlap {
    match index.set_anchors(index.place(), Ok(bundle(pems))) {
        AnchorChange::Overlapping(overlap) => overlap,
        other => panic!("{other:?}"),
    }
}

#[test]
fn replaced_anchors_stay_until_their_overlap_ends() {
    let mut index = ready(&[RSA]);
    let first = replaced(&mut index, &[ECDSA]);
    assert_eq!(anchors(&index, "c1"), bundle(&[RSA, ECDSA]));
    let second = replaced(&mut index, &[EXPIRED]);
    assert_eq!(anchors(&index, "c1"), bundle(&[RSA, ECDSA, EXPIRED]));
    index.end_overlap(first);
    assert_eq!(anchors(&index, "c1"), bundle(&[ECDSA, EXPIRED]));
    index.end_overlap(first);
    index.end_overlap(second);
    assert_eq!(anchors(&index, "c1"), bundle(&[EXPIRED]));
}

#[test]
fn anchors_that_come_back_within_their_overlap_stay_when_it_ends() {
    let mut index = ready(&[RSA]);
    let first = replaced(&mut index, &[ECDSA]);
    let second = replaced(&mut index, &[RSA]);
    index.end_overlap(first);
    assert_eq!(anchors(&index, "c1"), bundle(&[RSA, ECDSA]), "each once");
    index.end_overlap(second);
    assert_eq!(anchors(&index, "c1"), bundle(&[RSA]));
}

#[test]
fn only_a_reading_that_changes_something_is_returned_as_a_change() {
    let mut index = ready(&[RSA]);
    let place = index.place();
    let bad = || Err(TrustError::NoCertificate);
    let one_more = || Ok(bundle(&[RSA, ECDSA]));
    assert_eq!(index.set_anchors(place, Ok(bundle(&[RSA]))), AnchorChange::None);
    assert_eq!(index.set_anchors(place, one_more()), AnchorChange::Changed);
    assert_eq!(index.set_anchors(place, bad()), AnchorChange::Changed);
    assert_eq!(index.set_anchors(place, bad()), AnchorChange::None);
    assert_eq!(index.anchors_unknown(place), AnchorChange::None);
    assert_eq!(index.set_anchors(place, one_more()), AnchorChange::Changed);
    assert_eq!(index.anchors_unknown(place), AnchorChange::Changed);
    replaced(&mut index, &[ECDSA]);
    assert!(!index.set_configuration(home()) && !index.set_addons_read(true));
    assert!(!index.set_addon(&"c1".into(), true));
}

#[test]
fn without_an_overlap_replaced_anchors_leave_at_once() {
    let source = AccessSource::Static("https://{cluster}.example".parse().unwrap());
    let mut index = AccessIndex::new(NAME, source, false);
    let place = index.place();
    index.set_anchors(place, Ok(bundle(&[RSA])));
    assert_eq!(index.set_anchors(place, Ok(bundle(&[ECDSA]))), AnchorChange::Changed);
    assert!(!index.inherit(&key("c1"), &bundle(&[RSA])));
    assert_eq!(anchors(&index, "c1"), bundle(&[ECDSA]));
    assert_eq!(published(&index, "c1").cluster.unwrap().server, "https://c1.example");
}

#[test]
fn the_user_server_is_published_for_clusters_whose_name_the_tunnel_can_carry() {
    let template = || "https://user/{cluster}".parse().unwrap();
    for (cluster, is_routable) in
        [("c1", true), ("a-1", true), (&"x".repeat(63), true), ("2107au", false), ("a.b", false)]
    {
        for (source, is_published) in [
            (AccessSource::UserServer(template()), is_routable),
            (AccessSource::Static(template()), true),
        ] {
            let mut index = AccessIndex::new("own", source, true);
            index.set_anchors(index.place(), Ok(bundle(&[RSA])));
            let offer = index.offer(&key(cluster), &of_cluster(cluster));
            let reason = offer.finding().map(|finding| finding.reason);
            if is_published {
                assert!(matches!(offer, Offer::Publish(_)) && reason.is_none(), "{cluster}");
            } else {
                assert_eq!(offer, Offer::Withdraw(Withheld::NameNotRoutable), "{cluster}");
                assert_eq!(reason, Some(Reason::ClusterNameNotRoutable), "{cluster}");
            }
        }
    }
}

#[test]
fn an_overlap_that_is_too_large_to_be_published_is_reported_while_it_lasts() {
    let (old, new) = (large(0..60), large(60..120));
    let mut index = ready(&[&old]);
    assert_eq!(index.overlap_finding(), None);
    let overlap = replaced(&mut index, &[&new]);
    assert_eq!(anchors(&index, "c1"), bundle(&[&new]));
    let note = index.overlap_finding().unwrap();
    assert_eq!(note.reason, Reason::OverlapTooLarge);
    assert!(note.message.contains("120 CA certificates"), "{}", note.message);
    index.end_overlap(overlap);
    assert_eq!(index.overlap_finding(), None);

    // One that fits is published, and nothing is to be said.
    let mut index = ready(&[RSA]);
    index.set_anchors(index.place(), Ok(bundle(&[ECDSA])));
    assert_eq!(index.overlap_finding(), None);
}

#[test]
fn a_proxy_that_moves_takes_no_anchor_of_its_old_place_along() {
    let mut index = ready(&[RSA]);
    let old = index.place();
    assert!(index.set_configuration(Known::Present("north".into())));
    let offer = |index: &AccessIndex| index.offer(&key("c1"), &of_cluster("c1"));
    assert_eq!(offer(&index), Offer::Keep(Withheld::NoTrustAnchor));
    // What was on its way from there.
    assert_eq!(index.set_anchors(old, Ok(bundle(&[RSA]))), AnchorChange::None);
    assert_eq!(index.set_anchors(old, Ok(bundle(&[EXPIRED]))), AnchorChange::None);
    assert_eq!(offer(&index), Offer::Keep(Withheld::NoTrustAnchor));
    replaced(&mut index, &[ECDSA]);
    assert_eq!(index.anchors_unknown(old), AnchorChange::None);
    assert_eq!(anchors(&index, "c1"), bundle(&[RSA, ECDSA]));
    let server = published(&index, "c1").cluster.unwrap().server;
    assert_eq!(server, "https://cluster-proxy-addon-user.north:9092/c1");
}

#[test]
fn what_a_profile_published_before_we_began_stays_in_that_profile_for_an_overlap() {
    let mut index = ready(&[RSA]);
    index.set_addon(&"c2".into(), true);
    assert!(!index.inherit(&key("c1"), &bundle(&[RSA])), "nothing was replaced");
    assert!(index.inherit(&key("c1"), &bundle(&[RSA, ECDSA])));
    assert_eq!(anchors(&index, "c1"), bundle(&[RSA, ECDSA]));
    assert_eq!(anchors(&index, "c2"), bundle(&[RSA]));
    index.end_overlap(Overlap::INHERITED);
    assert_eq!(anchors(&index, "c1"), bundle(&[RSA]));
}

#[test]
fn what_a_profile_publishes_is_read_from_our_entry_alone() {
    let data = k8s_openapi::ByteString(RSA.as_bytes().to_vec());
    let status = |name: &str, data: &Value| {
        json!({ "accessProviders": [{ "name": name, "cluster": {
            "server": "https://x.example", "certificate-authority-data": data,
        } }] })
    };
    let good = serde_json::to_value(data).unwrap();
    let read = |status: &Value| access::published_anchors(&profile(&json!({}), status), NAME);
    assert_eq!(read(&status(NAME, &good)), Some(bundle(&[RSA])));
    for other in [
        status("another", &good),
        status(NAME, &json!("bm9uZQ==")),
        status(NAME, &json!("not base64!")),
        status(NAME, &json!(7)),
        json!({ "accessProviders": [{ "name": NAME }] }),
        json!({ "accessProviders": NAME }),
        Value::Null,
    ] {
        assert_eq!(read(&other), None, "{other}");
    }
}

fn fleet_with(configs: &Value) -> Fleet {
    let object = json!({
        "metadata": { "name": "c1" }, "spec": { "managedClusterClientConfigs": configs },
    });
    let cluster = ObservedCluster::read(Ok(serde_json::from_value(object).unwrap()));
    let mut fleet = Fleet::new(BoundSource::Status);
    fleet.apply_cluster("c1".into(), cluster);
    fleet
}

#[test]
fn a_direct_entry_is_the_first_endpoint_that_may_be_published() {
    let data = |text: &str| json!(k8s_openapi::ByteString(text.as_bytes().to_vec()));
    let (good, local, eks) =
        ("https://api.example:6443", "https://127.0.0.1:6443", "https://0ab.eks.example");
    let at = |url: &str, pem: &str| json!({ "url": url, "caBundle": data(pem) });
    let mut offers = DirectOffers::default();
    let mut offer = |fleet: &Fleet| {
        let (cluster, endpoints) = access::reported_endpoints(fleet, &of_cluster("c1"))?;
        match offers.get("direct", &cluster, endpoints) {
            Offer::Publish(entry) => Ok(entry.cluster.unwrap().server),
            other => Err(other),
        }
    };
    let none = || Err(Offer::Withdraw(Withheld::NoEndpoint));
    for (configs, expected) in [
        (json!([]), none()),
        (json!([at(good, RSA)]), Ok(good.to_owned())),
        (json!([at(local, RSA), at(good, RSA)]), Ok(good.to_owned())),
        // EKS reports such hosts, and consumers accept DNS-1123 names only.
        (json!([at("https://0AB.EKS.example", RSA)]), Ok(eks.to_owned())),
        (json!([at("http://api.example", RSA)]), none()),
        // Without a CA bundle clients would trust the system's roots.
        (json!([{ "url": good }, at(good, ""), at(good, "garbage")]), none()),
    ] {
        let fleet = fleet_with(&configs);
        assert_eq!(offer(&fleet), expected, "{configs}");
        _ = effort::take();
        assert_eq!(
            (offer(&fleet), effort::take().parses),
            (expected.clone(), 0),
            "parsed once: {configs}"
        );
        let findings = access::endpoint_findings(fleet.cluster(&"c1".into()).unwrap());
        let refused = configs.as_array().unwrap().len() - usize::from(expected.is_ok());
        assert_eq!(findings.len(), refused, "{configs}");
    }
    let mut unread = fleet_with(&json!([at(good, RSA)]));
    unread.set_read(Part::Clusters, false);
    assert_eq!(offer(&unread), Err(Offer::Keep(Withheld::ConfigurationUnknown)));
    let without_cluster = Fleet::new(BoundSource::Status);
    assert_eq!(offer(&without_cluster), Err(Offer::Withdraw(Withheld::NoCluster)));
}

#[test]
fn every_reason_has_a_label_of_its_own() {
    let labels: BTreeSet<&str> = Withheld::ALL.iter().map(Withheld::into_str).collect();
    assert_eq!(labels.len(), Withheld::ALL.len());
}
