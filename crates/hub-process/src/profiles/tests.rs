//! Which profiles are known.

use kube::Client;
use kube::client::Body;

use super::*;
use crate::process::{Process, Setup};

fn process() -> Process {
    let service = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
    });
    Process::new(Setup::new(Client::new(service, "default")))
}

fn key() -> ProfileKey {
    ProfileKey { namespace: "app".into(), cluster: "c1".into() }
}

fn observed(uid: &str, version: u64) -> ObservedProfile {
    let metadata = json!({ "namespace": "app", "name": "c1", "uid": uid, "resourceVersion": version.to_string() });
    ObservedProfile::of(&serde_json::from_value(json!({ "metadata": metadata })).unwrap())
}

#[tokio::test]
async fn the_known_profiles_are_those_in_the_cache_and_those_that_are_queued() {
    let process = process();
    let profiles = &process.shared.profiles;
    profiles.show(&key(), observed("a", 1));
    assert_eq!(profiles.namespaces_with(&"c1".into()), ["app".into()]);
    assert!(profiles.namespaces_with(&"c2".into()).is_empty());
    assert_eq!(profiles.clusters_in(&"app".into()), ["c1".into()]);
    assert!(profiles.clusters_in(&"other".into()).is_empty());
    assert!(!profiles.is_pending(&key()));
    profiles.queue.add_with(key(), Priority::Update);
    assert!(profiles.is_pending(&key()));
}
