//! The provisioner beside cluster-proxy's own controller: they write each profile at most once each for a change, and
//! one profile for a probe; the provisioner keeps no entry but the one that this controller publishes.

#![cfg(test)]

use hub_api::names::ProfileKey;
use hub_core::access::{AccessIndex, AccessSource, Known, Offer, Probe, Withheld};
use hub_core::finding::Reason;
use hub_core::profile::ObservedProfile;
use hub_core::trust::TrustBundle;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const NAME: &str = "open-cluster-management";
const ROOT: &str = include_str!("certificates/rsa-root.crt");
const OTHER_ROOT: &str = include_str!("certificates/ecdsa-root.crt");
const LEAF: &str = include_str!("certificates/rsa-leaf.crt");
const RENEWED: &str = include_str!("certificates/rsa-leaf-renewed.crt");
const CLUSTERS: [&str; 3] = ["c1", "c2", "c3"];

/// A hub on which both work, or one of them.
struct Hub {
    index: AccessIndex,
    /// The content of the serving Secret.
    served: String,
    /// The entries of the profiles, and how often each has been written.
    entries: [Value; 3],
    writes: [usize; 3],
    is_ocm_on: bool,
}

fn key(cluster: &str) -> ProfileKey {
    ProfileKey { namespace: "team".into(), cluster: cluster.into() }
}

fn observed(cluster: &str, entry: &Value) -> ObservedProfile {
    observed_entries(cluster, Some(entry).filter(|entry| !entry.is_null()).into_iter())
}

fn observed_entries<'a>(cluster: &str, entries: impl Iterator<Item = &'a Value>) -> ObservedProfile {
    observed_in("", cluster, entries)
}

fn observed_in<'a>(
    version: &str,
    cluster: &str,
    entries: impl Iterator<Item = &'a Value>,
) -> ObservedProfile {
    let labels = json!({
        "x-k8s.io/cluster-manager": NAME, "open-cluster-management.io/cluster-name": cluster,
    });
    let entries: Vec<_> = entries.collect();
    let object =
        json!({ "spec": { "clusterManager": { "name": NAME } }, "status": { "accessProviders": entries } });
    let metadata = json!({ "labels": labels, "resourceVersion": version });
    ObservedProfile::read(&serde_json::from_value(metadata).unwrap(), &object)
}

/// What cluster-proxy's own controller publishes.
fn ocms(cluster: &str, served: &str) -> Value {
    ocms_in("proxy", cluster, served)
}

fn ocms_in(namespace: &str, cluster: &str, served: &str) -> Value {
    json!({ "name": NAME, "cluster": {
        "server": format!("https://cluster-proxy-addon-user.{namespace}:9092/{cluster}"),
        "certificate-authority-data": ByteString(served.as_bytes().to_vec()),
        "extensions": [
            { "name": "client.authentication.k8s.io/exec", "extension": { "clusterName": cluster } },
        ],
    } })
}

impl Hub {
    /// A hub whose profiles have these entries; c3 does not have the addon. `port` is that of our entry.
    fn new(served: &str, entry: impl Fn(&str) -> Value, port: u16, is_ocm_on: bool) -> Self {
        let service = "cluster-proxy-addon-user".to_owned();
        let source = AccessSource::ClusterProxy { service, port, require_addon: true, ca: None };
        let mut index = AccessIndex::new(NAME, source, true);
        index.set_configuration(Known::Present("proxy".into()));
        index.set_addon(&"c1".into(), true);
        index.set_addon(&"c2".into(), true);
        index.addons_listed();
        let mut hub =
            Self { index, served: String::new(), entries: CLUSTERS.map(entry), writes: [0; 3], is_ocm_on };
        hub.serve(served);
        hub
    }

    fn serve(&mut self, served: &str) {
        let place = self.index.place();
        self.index.set_served(place, served.as_bytes());
        self.index.set_anchors(place, TrustBundle::from_pem(served.as_bytes()));
        served.clone_into(&mut self.served);
    }

    /// Lets both work until neither writes any more, and returns how often each profile was written.
    fn settle(&mut self) -> [usize; 3] {
        self.writes = [0; 3];
        for round in 0.. {
            assert!(round < 20, "they write without end: {:?}", self.writes);
            let before = self.writes;
            for (number, cluster) in CLUSTERS.into_iter().enumerate() {
                let wanted = match self.decide(cluster) {
                    Offer::Publish(entry) => serde_json::to_value(entry).unwrap(),
                    Offer::Withdraw(_) => Value::Null,
                    Offer::Keep(_) => continue,
                };
                if self.write(number, wanted) {
                    // After the response to its write, the provisioner decides again.
                    self.decide(cluster);
                    if self.is_ocm_on {
                        self.write(number, ocms(cluster, &self.served));
                    }
                }
            }
            if self.writes == before {
                break;
            }
        }
        self.writes
    }

    fn write(&mut self, number: usize, entry: Value) -> bool {
        let differs = self.entries[number] != entry;
        self.entries[number] = entry;
        self.writes[number] += usize::from(differs);
        differs
    }

    fn decide(&mut self, cluster: &str) -> Offer {
        let number = CLUSTERS.iter().position(|it| *it == cluster).unwrap();
        self.index.decide(&key(cluster), Some(&observed(cluster, &self.entries[number]))).unwrap()
    }

    /// The certificates that a profile publishes, if it has an entry.
    fn published(&self, number: usize) -> Option<String> {
        let data = self.entries[number].pointer("/cluster/certificate-authority-data")?;
        let data: ByteString = serde_json::from_value(data.clone()).unwrap();
        Some(String::from_utf8(data.0).unwrap())
    }

    fn is_reported(&self) -> bool {
        self.index
            .competing_writer_finding()
            .is_some_and(|note| note.reason == Reason::AccessProviderContested)
    }
}

fn chain(leaf: &str) -> String {
    format!("{leaf}{ROOT}")
}

#[test]
fn without_ocms_controller_its_entries_are_replaced_once() {
    let served = chain(LEAF);
    let mut hub = Hub::new(&served, |cluster| ocms(cluster, &served), 9092, false);
    for cluster in CLUSTERS {
        let anchors = TrustBundle::from_published(served.as_bytes()).unwrap();
        assert!(!hub.index.inherit(&key(cluster), &anchors), "the serving certificate was not replaced");
    }
    assert_eq!(hub.settle(), [1, 1, 1]);
    assert_eq!((hub.published(0).as_deref(), hub.published(2)), (Some(ROOT), None));
    assert!(!hub.is_reported());
    hub.serve(&chain(RENEWED));
    assert_eq!(hub.settle(), [0, 0, 0], "a renewed certificate of the same authority");
}

#[test]
fn beside_ocms_controller_a_change_causes_at_most_two_writes_of_a_profile() {
    let served = chain(LEAF);
    let none: fn(&str) -> Value = |_| Value::Null;
    let theirs: fn(&str) -> Value = |cluster| ocms(cluster, &chain(LEAF));
    // Whatever the profiles show first, also where our entry leads to another port.
    for (entry, port) in [(none, 9092), (theirs, 9092), (theirs, 443)] {
        let mut hub = Hub::new(&served, entry, port, true);
        let first = hub.settle();
        assert!(first.iter().all(|writes| *writes <= 2), "{first:?}");
        assert!(hub.is_reported());
        assert_eq!(hub.settle(), [0, 0, 0]);
        assert_eq!(hub.decide("c1"), Offer::Keep(Withheld::Contested));

        for (what, served) in
            [("renewed", chain(RENEWED)), ("another authority", format!("{LEAF}{OTHER_ROOT}"))]
        {
            hub.serve(&served);
            assert!(!hub.is_reported(), "{what}: nothing shows that it still works");
            let writes = hub.settle();
            assert!(writes.iter().all(|writes| *writes <= 2), "{what}: {writes:?}");
            assert!(hub.is_reported() && hub.published(0).as_deref() == Some(&served), "{what}");
        }
        // It is off: its entries stay until the next change, and are then replaced for good.
        hub.is_ocm_on = false;
        assert_eq!(hub.settle(), [0, 0, 0]);
        hub.serve(&chain(LEAF));
        let writes = hub.settle();
        assert!(writes.iter().all(|writes| *writes <= 1), "{writes:?}");
        assert!(!hub.is_reported());
        assert_eq!(hub.published(2), None, "c3 does not have the addon");
    }
}

#[test]
fn an_entry_that_both_publish_is_withdrawn_with_the_addon() {
    // Of a self-signed certificate, both publish the same.
    let mut hub = Hub::new(ROOT, |_| Value::Null, 9092, false);
    hub.settle();
    assert_eq!(hub.published(2), None, "the profile exists before its addon");
    for (has_addon, published) in [(true, Some(ROOT)), (false, None)] {
        hub.index.set_addon(&"c3".into(), has_addon);
        assert_eq!(hub.settle(), [0, 0, 1]);
        assert_eq!(hub.published(2).as_deref(), published);
        assert!(!hub.is_reported(), "our own entry is not evidence of another controller");
    }
}

#[test]
fn a_contest_ends_once_ocms_controller_leaves_the_entry_that_a_probe_replaced() {
    let begun = |cluster| Probe::Begun(key(cluster));
    let served = chain(LEAF);
    let mut hub = Hub::new(&served, |cluster| ocms(cluster, &served), 9092, true);
    assert_eq!(hub.index.probe_contest(), Probe::Needless);
    hub.settle();
    for (is_ocm_on, probe, writes, is_reported) in [
        // While it works, each probe is one write of each.
        (true, begun("c1"), [2, 0, 0], true),
        (true, begun("c2"), [0, 2, 0], true),
        (true, begun("c3"), [0, 0, 2], true),
        (true, begun("c1"), [2, 0, 0], true),
        // It is turned off.
        (false, begun("c2"), [0, 1, 0], true),
        (false, Probe::Over, [1, 0, 1], false),
        (false, Probe::Needless, [0, 0, 0], false),
    ] {
        hub.is_ocm_on = is_ocm_on;
        assert_eq!(hub.index.probe_contest(), probe);
        assert_eq!((hub.settle(), hub.is_reported()), (writes, is_reported), "{probe:?}");
        assert_eq!(hub.settle(), [0, 0, 0], "{probe:?}");
    }
    assert_eq!((hub.published(0).as_deref(), hub.published(2)), (Some(ROOT), None));
    // It is turned on again.
    hub.is_ocm_on = true;
    hub.entries[0] = ocms("c1", &served);
    assert_eq!((hub.settle(), hub.is_reported()), ([0, 0, 0], true));
}

#[test]
fn an_entry_that_a_probe_did_not_replace_does_not_end_a_contest() {
    let served = chain(LEAF);
    let mut hub = Hub::new(&served, |cluster| ocms(cluster, &served), 9092, true);
    hub.settle();
    let probed: Vec<_> = (0..3).map(|_| hub.index.probe_contest()).collect();
    assert_eq!(probed, CLUSTERS.map(|cluster| Probe::Begun(key(cluster))), "none is written in time");
    // A write that fails is not repeated.
    assert!(matches!(hub.decide("c3"), Offer::Withdraw(Withheld::NoAddon)));
    assert_eq!(hub.decide("c3"), Offer::Keep(Withheld::Contested));
    assert_eq!(hub.index.probe_contest(), Probe::Begun(key("c1")));
    // Nothing is left to be probed.
    for cluster in CLUSTERS {
        hub.index.decide(&key(cluster), None);
    }
    assert_eq!((hub.index.probe_contest(), hub.is_reported()), (Probe::Over, false));
}

#[test]
fn no_other_entry_is_kept() {
    let served = chain(LEAF);
    let mut hub = Hub::new(&served, |cluster| ocms(cluster, &served), 9092, true);
    hub.settle();
    let kept = ocms("c1", &served);
    assert_eq!(hub.entries[0], kept);
    let edit = |pointer: &str, value: Value| {
        let mut entry = kept.clone();
        *entry.pointer_mut(pointer).unwrap() = value;
        entry
    };
    let with_another = ByteString(format!("{served}{OTHER_ROOT}").into_bytes());
    for entry in [
        edit("/cluster/server", json!("https://elsewhere.example/c1")),
        edit("/cluster/server", json!("https://cluster-proxy-addon-user.proxy:9092/c2")),
        edit("/cluster/certificate-authority-data", json!(with_another)),
        edit("/cluster/extensions/0/extension", json!({ "clusterName": "c2" })),
        Value::Null,
    ] {
        hub.entries[0] = entry.clone();
        let Offer::Publish(ours) = hub.decide("c1") else { panic!("{entry} is kept") };
        assert_ne!(serde_json::to_value(ours).unwrap(), entry);
    }
}

#[test]
fn whether_it_works_is_known_only_where_its_entry_is() {
    let served = chain(LEAF);
    let entry = ocms("c1", &served);
    let profile = observed("c1", &entry);
    let hub = || Hub::new(&served, |_| Value::Null, 9092, true);
    assert_eq!(hub().index.is_ocms(&key("c1"), &profile), Some(true));
    assert_eq!(hub().index.is_ocms(&key("c1"), &observed("c1", &Value::Null)), Some(false));
    assert_eq!(hub().index.is_ocms(&key("c2"), &profile), Some(false), "the entry of another cluster");

    let mut unreadable = hub();
    unreadable.index.anchors_unknown(unreadable.index.place());
    assert_eq!(unreadable.index.is_ocms(&key("c1"), &profile), None);
    let mut moved = hub();
    let before = moved.index.place();
    moved.index.set_configuration(Known::Present("north".into()));
    assert_eq!(moved.index.is_ocms(&key("c1"), &profile), None);
    moved.index.set_served(before, b"late");
    moved.serve(&served);
    assert_eq!(moved.index.is_ocms(&key("c1"), &profile), Some(false), "it leads to the former namespace");
    // With a self-signed certificate, both publish the same.
    let lone = Hub::new(ROOT, |_| Value::Null, 9092, true);
    assert_eq!(lone.index.is_ocms(&key("c1"), &observed("c1", &ocms("c1", ROOT))), None);
}

#[test]
fn where_the_serving_certificate_is_not_read_the_entry_of_ocms_controller_is_recognized_by_its_server() {
    let source = AccessSource::ClusterProxy {
        service: "cluster-proxy-addon-user".to_owned(),
        port: 9092,
        require_addon: false,
        ca: Some("configmap/proxy/front/ca.crt".parse().unwrap()),
    };
    let mut index = AccessIndex::new(NAME, source, true);
    index.set_configuration(Known::Present("own-proxy".into()));
    index.set_anchors(index.place(), TrustBundle::from_pem(ROOT.as_bytes()));
    let is_ocms =
        |namespace| index.is_ocms(&key("c1"), &observed("c1", &ocms_in(namespace, "c1", &chain(LEAF))));
    assert_eq!(is_ocms("own-proxy"), Some(true));
    assert_eq!(is_ocms("team"), Some(false), "anybody can publish that");
}

/// With the source `static`, the provisioner does not read cluster-proxy's configuration and certificate.
fn configured(provider: &str) -> AccessIndex {
    let source = AccessSource::Static("https://front.example/{cluster}".parse().unwrap());
    let mut index = AccessIndex::new(provider, source, true);
    index.set_anchors(index.place(), TrustBundle::from_pem(ROOT.as_bytes()));
    index
}

#[test]
fn with_a_static_proxy_the_entry_of_ocms_controller_is_recognized_by_its_service() {
    let ours = |index: &mut AccessIndex| {
        let Some(Offer::Publish(ours)) = index.decide(&key("c1"), Some(&observed("c1", &Value::Null))) else {
            panic!("our entry is published")
        };
        serde_json::to_value(ours).unwrap()
    };
    for namespace in ["open-cluster-management-addon", "multicluster-engine"] {
        let mut index = configured(NAME);
        let theirs = ocms_in(namespace, "c1", &chain(LEAF));
        for (entry, is_left) in [(ours(&mut index), false), (theirs.clone(), true), (theirs, true)] {
            let offer = index.decide(&key("c1"), Some(&observed("c1", &entry)));
            assert_eq!(offer == Some(Offer::Keep(Withheld::Contested)), is_left, "{entry}");
        }
        assert!(
            index
                .competing_writer_finding()
                .is_some_and(|note| note.reason == Reason::AccessProviderContested)
        );
        // One profile is probed, and The competition ends if its entry stays.
        assert_eq!(index.probe_contest(), Probe::Begun(key("c1")));
        let entry = ours(&mut index);
        index.decide(&key("c1"), Some(&observed("c1", &entry)));
        assert_eq!((index.probe_contest(), index.competing_writer_finding()), (Probe::Over, None));
    }
}

#[test]
fn with_a_static_proxy_no_entry_that_leads_to_a_namespace_of_a_tenant_is_left() {
    let hubs = "open-cluster-management-addon";
    let edit = |pointer: &str, value: Value| {
        let mut entry = ocms_in(hubs, "c1", &chain(LEAF));
        *entry.pointer_mut(pointer).unwrap() = value;
        entry
    };
    let mut unverified = ocms_in(hubs, "c1", &chain(LEAF));
    unverified["cluster"]["insecure-skip-tls-verify"] = json!(true);
    let mut proxied = ocms_in(hubs, "c1", &chain(LEAF));
    proxied["cluster"]["proxy-url"] = json!("https://elsewhere.example");
    for entry in [
        ocms_in("team", "c1", &chain(LEAF)),
        ocms_in("open-cluster-management-team", "c1", &chain(LEAF)),
        ocms_in(hubs, "c2", &chain(LEAF)),
        edit("/cluster/server", json!("https://elsewhere.example:9092/c1")),
        edit("/cluster/server", json!(format!("https://cluster-proxy-addon-user.{hubs}.example:9092/c1"))),
        edit("/cluster/server", json!(format!("https://cluster-proxy-addon-user.{hubs}:9093/c1"))),
        edit("/cluster/extensions/0/extension", json!({ "clusterName": "c2" })),
        unverified,
        proxied,
    ] {
        let mut index = configured(NAME);
        for seen in [&Value::Null, &entry] {
            let offer = index.decide(&key("c1"), Some(&observed("c1", seen)));
            assert!(matches!(offer, Some(Offer::Publish(_))), "{seen}");
        }
        assert_eq!(index.competing_writer_finding(), None, "{entry}");
    }
    // An entry of another name is not contested.
    let theirs = observed("c1", &ocms_in(hubs, "c1", &chain(LEAF)));
    assert_eq!(configured("front").is_ocms(&key("c1"), &theirs), None);
}

#[test]
fn an_entry_whose_name_another_one_has_is_not_ocms() {
    // Consumers use the last entry of a name.
    let evil = json!({ "name": NAME, "cluster": { "server": "https://elsewhere.example" } });
    let served = chain(LEAF);
    let theirs = ocms("c1", &served);
    let twice = observed_entries("c1", [&theirs, &evil].into_iter());
    let mut hub = Hub::new(&served, |cluster| ocms(cluster, &served), 9092, true);
    hub.settle();
    assert!(matches!(hub.index.decide(&key("c1"), Some(&twice)), Some(Offer::Publish(_))));
    let theirs = ocms_in("multicluster-engine", "c1", &served);
    let twice = observed_entries("c1", [&theirs, &evil].into_iter());
    assert_eq!(configured(NAME).is_ocms(&key("c1"), &twice), Some(false));
}

/// Where the serving Secret holds nothing but the authority, both publish the same entry, and a backup can contain one
/// that was withdrawn since.
#[test]
fn an_entry_that_a_restored_backup_brings_back_is_no_contest() {
    for (restored, contested) in [("5", false), ("9", false), ("12", true)] {
        let mut hub = Hub::new(ROOT, |_| Value::Null, 9092, false);
        let theirs = ocms("c3", ROOT);
        assert!(hub.index.decide(&key("c3"), Some(&observed_in("9", "c3", [].into_iter()))).is_some());
        let offer = hub.index.decide(&key("c3"), Some(&observed_in(restored, "c3", [&theirs].into_iter())));
        let is_left = matches!(offer, Some(Offer::Keep(Withheld::Contested)));
        assert_eq!((is_left, hub.index.is_contested()), (contested, contested), "{restored}");
    }
}
