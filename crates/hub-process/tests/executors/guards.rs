//! Guards that show only when something goes wrong: against a panic, a second leader, and the other process that is about
//! to write.

use std::time::Duration;

use hub_core::priority::Priority;
use hub_process::process::ProcessError;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::Api;
use crate::profiles::{exists, key, one};
use crate::{Running, Traits, eventually};

const PROFILES: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/app/clusterprofiles";
const PROFILE: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/app/clusterprofiles/c1";

fn version(api: &Api) -> Option<Value> {
    Some(api.get(PROFILE)?["status"]["version"]["kubernetes"].clone())
}

/// The profile as another process creates it.
fn projected() -> Value {
    json!({
        "metadata": { "labels": {
            "x-k8s.io/cluster-manager": "open-cluster-management",
            "open-cluster-management.io/cluster-name": "c1",
        } },
        "spec": { "clusterManager": { "name": "open-cluster-management" }, "displayName": "c1" },
    })
}

/// A process that writes into profiles of another one.
async fn beside(api: &Api) -> Running {
    let beside = Traits { name: "beside", needs: &[], wants: Some([].into()) };
    let running = Running::start(api, None, &[beside]);
    {
        let mut wishes = running.wishes.lock().unwrap();
        wishes.undecided = true;
        wishes.version = Some("v1".to_owned());
    }
    eventually("it works", || running.has("beside work")).await;
    running
}

#[tokio::test(start_paused = true)]
async fn a_new_profile_of_another_process_is_left_alone_for_a_second_or_until_it_has_a_status() {
    for (alone, gets_status) in [(900, false), (100, true)] {
        let api = Api::default();
        let running = beside(&api).await;
        let mut profile = projected();
        api.put(PROFILE, profile.clone());
        tokio::time::sleep(Duration::from_millis(alone)).await;
        assert_eq!(api.requests("PATCH"), [""; 0]);
        if gets_status {
            profile["status"] = json!({ "properties": [{ "name": "a", "value": "b" }] });
            api.put(PROFILE, profile);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(version(&api), Some("v1".into()), "{alone}");
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_ends_the_process() {
    let api = Api::default();
    let running = Running::start(&api, None, &[one()]);
    running.wishes.lock().unwrap().panics = true;
    assert_eq!(running.task.await.unwrap().unwrap_err(), ProcessError::TaskEnded("a worker"));
    assert!(!exists(&api));
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_renewals_get_no_response_stops_writing_two_seconds_before_its_lease_expires()
 {
    let api = Api::default();
    let running = Running::start(&api, Some("first"), &[one()]);
    eventually("it works", || exists(&api)).await;
    let before = api.requests("PUT").len();
    eventually("it renews its lease", || api.requests("PUT").len() > before).await;
    let renewed = Instant::now();
    api.delay(|_, path| Duration::from_hours(u64::from(path.contains("/leases/"))));
    // The lease is valid for 15 seconds.
    for (cluster, millis, is_written) in [("c2", 12_000, true), ("c3", 13_200, false)] {
        tokio::time::sleep_until(renewed + Duration::from_millis(millis)).await;
        running.wishes.lock().unwrap().profiles.insert(key(cluster));
        running.shared.profiles.queue.add_with(key(cluster), Priority::Start);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(api.get(&format!("{PROFILES}/{cluster}")).is_some(), is_written, "{cluster}");
    }
    let lost = running.task.await.unwrap().unwrap_err();
    assert!(matches!(lost, ProcessError::LeadershipLost(_)), "{lost:?}");
    assert_eq!(api.get(&format!("{PROFILES}/c3")), None);
}
