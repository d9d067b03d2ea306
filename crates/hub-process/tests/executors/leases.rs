//! Leader election of processes with some controllers in common.

use std::time::Duration;

use http::Method;
use hub_process::process::ProcessError;
use hub_runtime::host::lease::{Candidate, Leases};
use hub_runtime::observe::metrics::Metrics;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, failure};
use crate::{Running, Traits, eventually};

const ALPHA: Traits = Traits { name: "alpha", needs: &[], wants: None };
const BETA: Traits = Traits { name: "beta", needs: &[], wants: None };

fn path(controller: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/addons/leases/hub-addons-{controller}")
}

fn holder(api: &Api, controller: &str) -> Option<String> {
    Some(api.get(&path(controller))?["spec"]["holderIdentity"].as_str()?.to_owned())
}

#[tokio::test(start_paused = true)]
async fn processes_with_a_controller_in_common_never_work_at_the_same_time() {
    let api = Api::default();
    let first = Running::start(&api, Some("first"), &[BETA]);
    eventually("the first works", || first.has("beta work")).await;
    let second = Running::start(&api, Some("second"), &[BETA, ALPHA]);
    eventually("the second holds the free lease", || holder(&api, "alpha").as_deref() == Some("second"))
        .await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(second.calls(), [""; 0], "it waits for the rest");
    assert_eq!(holder(&api, "alpha").as_deref(), Some("second"), "and keeps its lease");
    first.stop().await.unwrap();
    eventually("the second works", || second.has("alpha work") && second.has("beta work")).await;
    second.stop().await.unwrap();
    assert_eq!((holder(&api, "alpha"), holder(&api, "beta")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_it_waits_for_leases_leaves_no_claim_behind() {
    let api = Api::default();
    let first = Running::start(&api, Some("first"), &[BETA]);
    eventually("the first works", || first.has("beta work")).await;
    let second = Running::start(&api, Some("second"), &[ALPHA, BETA]);
    eventually("the second holds the free lease", || holder(&api, "alpha").as_deref() == Some("second"))
        .await;
    second.stop().await.unwrap();
    assert_eq!(holder(&api, "alpha"), None);
    assert_eq!(holder(&api, "beta").as_deref(), Some("first"));
    first.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_loses_one_lease_ends_and_gives_up_the_others() {
    let api = Api::default();
    let process = Running::start(&api, Some("first"), &[ALPHA, BETA]);
    eventually("it works", || process.has("beta work")).await;
    let mut lease = api.get(&path("beta")).unwrap();
    lease["spec"]["holderIdentity"] = json!("thief");
    api.put(&path("beta"), lease);
    let lost = process.task.await.unwrap().unwrap_err();
    assert_eq!(lost, ProcessError::LeadershipLost("thief has acquired the lease hub-addons-beta".to_owned()));
    assert_eq!((holder(&api, "alpha"), holder(&api, "beta").as_deref()), (None, Some("thief")));
}

#[tokio::test(start_paused = true)]
async fn no_write_may_be_sent_once_one_lease_is_lost_or_released_although_other_claims_last() {
    for steals in [true, false] {
        let api = Api::default();
        let candidate = Candidate { namespace: "addons".to_owned(), identity: "first".to_owned() };
        let mut leases = Leases::new(api.client(), candidate, Metrics::new("test"));
        leases.add("alpha", Box::new(|| None));
        leases.add("beta", Box::new(|| None));
        let fence = leases.fence();
        assert_eq!(fence.remaining(), None);
        assert!(leases.acquire(&CancellationToken::new()).await);
        assert!(fence.remaining().is_some());
        if steals {
            let mut lease = api.get(&path("beta")).unwrap();
            lease["spec"]["holderIdentity"] = json!("thief");
            api.put(&path("beta"), lease);
            leases.hold().await;
        } else {
            leases.release().await;
        }
        assert_eq!(fence.remaining(), None, "stolen: {steals}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_claims_of_a_process_that_died_expire_at_the_same_time() {
    let api = Api::default();
    let all = ["alpha", "beta", "delta", "gamma"].map(|name| Traits { name, needs: &[], wants: None });
    let dead = Running::start(&api, Some("dead"), &all);
    eventually("it works", || dead.has("gamma work")).await;
    dead.task.abort();
    let begin = Instant::now();
    let next = Running::start(&api, Some("next"), &all);
    eventually("the next works", || next.has("gamma work")).await;
    // Each claim is valid for 15 seconds.
    assert!(begin.elapsed() < Duration::from_secs(25), "{:?}", begin.elapsed());
    next.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_one_request() {
    let api = Api::default();
    let process = Running::start(&api, Some("first"), &[ALPHA]);
    eventually("it works", || process.has("alpha work")).await;
    let before = api.requests("leases").len();
    tokio::time::sleep(Duration::from_secs(21)).await;
    let since = api.requests("leases").split_off(before);
    assert_eq!(since.len(), 10, "{since:?}");
    assert!(since.iter().all(|request| request.starts_with("PUT")), "{since:?}");
    process.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_next_renewal_notices_what_happened_to_a_lease() {
    let api = Api::default();
    let process = Running::start(&api, Some("first"), &[ALPHA]);
    eventually("it works", || process.has("alpha work")).await;
    api.delete(&path("alpha"));
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(holder(&api, "alpha").as_deref(), Some("first"), "it is created again");
    let mut lease = api.get(&path("alpha")).unwrap();
    lease["spec"]["holderIdentity"] = json!("thief");
    api.put(&path("alpha"), lease);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert!(process.task.is_finished(), "it stops");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_the_api_server_fails_is_one_request_too() {
    let api = Api::default();
    let process = Running::start(&api, Some("first"), &[ALPHA]);
    eventually("it works", || process.has("alpha work")).await;
    api.refuse(|method, _| (*method == Method::PUT).then(|| (500, failure(500, "InternalError"))));
    let before = api.requests("leases").len();
    eventually("it is tried", || api.requests("leases").len() > before).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.requests("leases").split_off(before), [format!("PUT {}", path("alpha"))]);
    api.allow();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!process.task.is_finished(), "it keeps its lease");
    process.stop().await.unwrap();
}
