//! The cache: which of an event, a list and a response counts.

use kube::client::Body;

use super::*;
use crate::process::{Process, Setup};

fn process() -> Process {
    let service = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
    });
    Process::builder(Setup::new(Client::new(service, "default"))).build()
}

fn key() -> ProfileKey {
    ProfileKey { namespace: "app".into(), cluster: "c1".into() }
}

fn object(uid: &str, version: u64) -> StoredProfile {
    let metadata =
        json!({ "namespace": "app", "name": "c1", "uid": uid, "resourceVersion": version.to_string() });
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

fn observed(uid: &str, version: u64) -> ObservedProfile {
    ObservedProfile::of(&object(uid, version))
}

/// The uid and version of the cached profile.
fn cached(profiles: &Profiles) -> Option<(String, String)> {
    profiles.observed(&key()).map(|known| (known.uid, known.resource_version))
}

fn version(uid: &str, version: u64) -> (String, String) {
    (uid.to_owned(), version.to_string())
}

#[tokio::test]
async fn a_list_counts_whatever_its_version_and_an_event_only_if_it_is_newer() {
    let process = process();
    let profiles = &process.shared().profiles;
    let mut sink = ProfileSink { cached: Some(Arc::clone(profiles)), followers: Vec::new() };
    assert!(profiles.show(&key(), observed("a", 9)));
    assert!(!profiles.show(&key(), observed("a", 8)), "an event of before");
    assert_eq!(cached(profiles), Some(version("a", 9)));
    for (listed, is_new) in [(9, false), (3, true), (3, false)] {
        sink.listing();
        assert_eq!(profiles.show(&key(), observed("a", listed)), is_new, "version {listed}");
        sink.listed("9");
    }
    assert_eq!(cached(profiles), Some(version("a", 3)));
    profiles.observe(&key(), &object("a", 4));
    sink.listing();
    sink.listed("9");
    assert_eq!(cached(profiles), None, "what was written before the list is not in it");
}

#[tokio::test]
async fn what_is_written_during_a_list_that_includes_it_exists_only_if_the_list_shows_it() {
    let process = process();
    let profiles = &process.shared().profiles;
    let mut sink = ProfileSink { cached: Some(Arc::clone(profiles)), followers: Vec::new() };
    for (listed, exists) in [("4", true), ("5", false), ("6", false)] {
        sink.listing();
        profiles.observe(&key(), &object("a", 5));
        sink.listed(listed);
        assert_eq!(cached(profiles).is_some(), exists, "created as version 5, listed as of version {listed}");
        profiles.forget(&key(), None);
    }
    profiles.show(&key(), observed("a", 5));
    sink.listing();
    profiles.mark_deleted(&key(), "a");
    // The watch has shown it before, and the list does not.
    sink.delete(&ObjectKey { namespace: "app".into(), name: "c1".into() });
    sink.listed("7");
    assert_eq!(
        cached(profiles),
        None,
        "our delete was processed before the list, and its response read after it began"
    );
}

#[tokio::test]
async fn the_response_to_a_patch_counts_for_the_same_object_if_it_is_newer() {
    let process = process();
    let profiles = &process.shared().profiles;
    profiles.observe_patched(&key(), &object("a", 4));
    assert_eq!(cached(profiles), None, "its deletion was shown");
    profiles.show(&key(), observed("b", 5));
    profiles.observe_patched(&key(), &object("a", 9));
    profiles.observe_patched(&key(), &object("b", 5));
    profiles.observe_patched(&key(), &object("b", 4));
    assert_eq!(cached(profiles), Some(version("b", 5)));
    profiles.observe_patched(&key(), &object("b", 6));
    assert_eq!(cached(profiles), Some(version("b", 6)));
}

#[tokio::test]
async fn a_profile_that_was_recreated_is_neither_deleted_nor_forgotten_with_the_one_before() {
    let process = process();
    let profiles = &process.shared().profiles;
    let is_terminating = || profiles.observed(&key()).unwrap().terminating;
    profiles.show(&key(), observed("b", 5));
    profiles.mark_deleted(&key(), "a");
    profiles.forget(&key(), Some("a"));
    assert!(!is_terminating());
    profiles.mark_deleted(&key(), "b");
    assert!(is_terminating());
    profiles.forget(&key(), Some("b"));
    assert_eq!(cached(profiles), None);
}

#[tokio::test]
async fn the_known_profiles_are_those_in_the_cache_and_those_that_are_queued() {
    let process = process();
    let profiles = &process.shared().profiles;
    profiles.show(&key(), observed("a", 1));
    assert_eq!(profiles.namespaces_with(&"c1".into()), ["app".into()]);
    assert!(profiles.namespaces_with(&"c2".into()).is_empty());
    assert_eq!(profiles.clusters_in(&"app".into()), ["c1".into()]);
    assert!(profiles.clusters_in(&"other".into()).is_empty());
    assert!(!profiles.is_pending(&key()));
    profiles.enqueue(key(), Priority::Update);
    assert!(profiles.is_pending(&key()));
}

#[test]
fn a_patch_applies_to_one_version_of_one_object() {
    let version = Version { uid: "a".to_owned(), resource_version: "5".to_owned() };
    assert_eq!(
        under(&version, &json!({ "metadata": { "labels": { "x": "y" } }, "spec": {} })),
        json!({ "metadata": { "uid": "a", "resourceVersion": "5", "labels": { "x": "y" } }, "spec": {} })
    );
}
