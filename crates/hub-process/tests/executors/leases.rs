//! Leader election of the processes of one Deployment.

use std::time::Duration;

use http::Method;
use hub_core::priority::Priority;
use hub_process::process::ProcessError;
use hub_runtime::host::lease::Election;
use hub_runtime::observe::metrics::Metrics;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, failure};
use crate::profiles::{key, one};
use crate::{Running, Traits, candidate, eventually};

const ALPHA: Traits = Traits { name: "alpha", needs: &[], wants: None };
const BETA: Traits = Traits { name: "beta", needs: &[], wants: None };

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/addons/leases/hub-addons";
const PROFILES: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/app/clusterprofiles";

fn holder(api: &Api) -> Option<String> {
    Some(api.get(LEASE)?["spec"]["holderIdentity"].as_str()?.to_owned())
}

fn steal(api: &Api) {
    let mut lease = api.get(LEASE).unwrap();
    lease["spec"]["holderIdentity"] = json!("thief");
    api.put(LEASE, lease);
}

async fn working(api: &Api, identity: &str) -> Running {
    let process = Running::start(api, Some(identity), &[ALPHA]);
    eventually("it works", || process.has("alpha work")).await;
    process
}

#[tokio::test(start_paused = true)]
async fn two_processes_never_work_at_the_same_time() {
    let api = Api::default();
    let first = working(&api, "first").await;
    let second = Running::start(&api, Some("second"), &[ALPHA]);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(second.calls(), [""; 0], "it waits");
    assert_eq!(holder(&api).as_deref(), Some("first"));
    first.stop().await.unwrap();
    eventually("the second works", || second.has("alpha work")).await;
    second.stop().await.unwrap();
    assert_eq!(holder(&api), None);
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_stops_leaves_the_lease_to_its_holder() {
    let api = Api::default();
    let first = working(&api, "first").await;
    let second = Running::start(&api, Some("second"), &[ALPHA]);
    let before = api.requests("GET").len();
    eventually("it reads the lease", || api.requests("GET").len() > before).await;
    second.stop().await.unwrap();
    assert_eq!(holder(&api).as_deref(), Some("first"));
    first.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_request_that_acquires_the_lease_leaves_no_claim_behind() {
    let api = Api::default();
    api.delay(|method, _| Duration::from_secs(u64::from(*method == Method::POST)));
    let process = Running::start(&api, Some("first"), &[ALPHA]);
    eventually("the lease is being created", || !api.requests("POST").is_empty()).await;
    process.stop().await.unwrap();
    assert_eq!(holder(&api), None);
    assert!(api.get(LEASE).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_loses_its_lease_ends_and_leaves_it_to_the_next() {
    let api = Api::default();
    let process = working(&api, "first").await;
    steal(&api);
    let lost = process.task.await.unwrap().unwrap_err();
    assert_eq!(
        lost,
        ProcessError::LeadershipLost("thief has acquired the lease hub-addons".to_owned())
    );
    assert_eq!(holder(&api).as_deref(), Some("thief"));
}

#[tokio::test(start_paused = true)]
async fn no_write_may_be_sent_once_the_lease_is_lost_or_released() {
    for steals in [true, false] {
        let api = Api::default();
        let mut election = Election::new(api.client(), candidate("first"), Metrics::new("test"));
        let claim = election.claim();
        assert!(!claim.is_valid());
        assert!(election.acquire(&CancellationToken::new()).await);
        assert!(claim.is_valid());
        if steals {
            steal(&api);
            election.hold().await;
        } else {
            election.release().await;
        }
        assert!(!claim.is_valid(), "stolen: {steals}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_process_that_died_is_acquired_once_it_has_expired() {
    let api = Api::default();
    let dead = working(&api, "dead").await;
    dead.task.abort();
    let begin = Instant::now();
    let next = working(&api, "next").await;
    let passed = begin.elapsed().as_secs();
    assert!((15..20).contains(&passed), "{passed}");
    next.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_lease_names_the_controllers_of_its_holder() {
    let api = Api::default();
    let process = Running::start(&api, Some("first"), &[BETA, ALPHA]);
    eventually("it works", || process.has("alpha work")).await;
    let annotations = api.get(LEASE).unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations, json!({ "hub-addons/controllers": "beta,alpha" }));
    process.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_takes_seconds_for_each_request_has_one_leader_that_stays_and_writes() {
    for millis in [0, 1000, 2500, 3000, 4500, 5000] {
        let api = Api::default();
        api.delay(move |_, _| Duration::from_millis(millis));
        let first = Running::start(&api, Some("first"), &[one()]);
        eventually("the first leads", || holder(&api).is_some()).await;
        let second = Running::start(&api, Some("second"), &[one()]);
        for n in 0..40 {
            let cluster = format!("c-{n}");
            first.wishes.lock().unwrap().profiles.insert(key(&cluster));
            first.shared.profiles.queue.add_with(key(&cluster), Priority::Update);
            tokio::time::sleep(Duration::from_secs(10)).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        for n in 0..40 {
            let creates = api.requests(&format!("POST {PROFILES}/")).len();
            assert!(api.get(&format!("{PROFILES}/c-{n}")).is_some(), "{millis}: {n} of {creates}");
        }
        // One for each profile: none was cut off and repeated.
        assert_eq!(api.requests(&format!("POST {PROFILES}")).len(), 41, "{millis}");
        assert!(!first.task.is_finished(), "{millis}: it leads");
        assert_eq!(second.calls(), [""; 0], "{millis}");
        first.stop().await.unwrap();
        eventually("the second leads", || holder(&api).as_deref() == Some("second")).await;
        second.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_response_is_lost_does_not_end_the_claim() {
    let api = Api::default();
    let process = working(&api, "first").await;
    // The API server has executed it when it times out.
    api.respond_late("PUT", Duration::from_hours(1));
    let before = api.requests("PUT").len();
    eventually("it renews", || api.requests("PUT").len() > before).await;
    api.respond_late("PUT", Duration::ZERO);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!process.task.is_finished());
    assert_eq!(holder(&api).as_deref(), Some("first"));
    process.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_one_request_also_if_the_api_server_fails_it() {
    let api = Api::default();
    let process = working(&api, "first").await;
    let before = api.requests("leases").len();
    tokio::time::sleep(Duration::from_secs(21)).await;
    let since = api.requests("leases").split_off(before);
    assert_eq!(since.len(), 10, "{since:?}");
    assert!(since.iter().all(|request| request.starts_with("PUT")), "{since:?}");
    api.refuse(|method, _| (*method == Method::PUT).then(|| (500, failure(500, "InternalError"))));
    let before = api.requests("leases").len();
    eventually("it is tried", || api.requests("leases").len() > before).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.requests("leases").split_off(before), [format!("PUT {LEASE}")]);
    api.allow();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!process.task.is_finished(), "it keeps its lease");
    process.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_next_renewal_notices_what_happened_to_a_lease() {
    let api = Api::default();
    let process = working(&api, "first").await;
    api.delete(LEASE);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(holder(&api).as_deref(), Some("first"), "it is created again");
    steal(&api);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert!(process.task.is_finished(), "it stops");
}
