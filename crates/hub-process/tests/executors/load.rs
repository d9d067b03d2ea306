//! Priorities under load, and the effects of a failing namespace or API server.

use std::time::Duration;

use http::Method;
use hub_api::names::ProfileKey;
use hub_core::priority::Priority;
use serde_json::json;
use tokio::time::Instant;

use crate::api::{Api, failure};
use crate::{Running, Traits, eventually};

const WORKERS: usize = 16;

fn path(namespace: &str) -> String {
    format!("/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{namespace}/clusterprofiles")
}

fn keys(namespace: &str, count: usize) -> impl Iterator<Item = ProfileKey> {
    (0..count).map(move |n| ProfileKey {
        namespace: namespace.into(),
        cluster: format!("c{n}").as_str().into(),
    })
}

fn projector(wants: impl IntoIterator<Item = ProfileKey>) -> Traits {
    Traits { name: "projector", needs: &[], wants: Some(wants.into_iter().collect()) }
}

fn is_write(method: &Method) -> bool {
    *method != Method::GET
}

fn created(api: &Api, keys: impl IntoIterator<Item = ProfileKey>) -> bool {
    keys.into_iter()
        .all(|key| api.get(&format!("{}/{}", path(key.namespace.as_str()), key.cluster)).is_some())
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_grant_overtakes_tens_of_thousands_of_pending_status_writes() {
    let api = Api::default();
    let manager = "open-cluster-management";
    for key in keys("app", 35_000) {
        let spec =
            json!({"clusterManager": {"name": manager}, "displayName": key.cluster.as_str()});
        let metadata = json!({"labels": {"x-k8s.io/cluster-manager": manager}});
        let profile = json!({"metadata": metadata, "spec": spec});
        api.put(&format!("{}/{}", path("app"), key.cluster), profile);
    }
    api.delay(|method, _| if is_write(method) { Duration::from_millis(5) } else { Duration::ZERO });
    let running = Running::start(&api, None, &[projector(keys("app", 35_000))]);
    eventually("it works", || running.shared.host.is_working()).await;
    running.wishes.lock().unwrap().version = Some("v1.34.0".to_owned());
    running.shared.profiles.enqueue_where(|_| true);
    eventually("status writes are sent", || api.requests("PATCH").len() > 100).await;
    let before = api.requests("/clusterprofiles/").len();

    let ended = ProfileKey { namespace: "app".into(), cluster: "c34999".into() };
    running.wishes.lock().unwrap().profiles.remove(&ended);
    running.shared.profiles.queue.add_with(ended, Priority::End);
    eventually("the delete is sent", || !api.requests("DELETE").is_empty()).await;
    let since = api.requests("/clusterprofiles/").split_off(before);
    let overtaken = since.iter().position(|request| request.starts_with("DELETE")).unwrap();
    assert!(overtaken <= WORKERS, "{overtaken} other writes were sent before the delete");
    running.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_writes_do_not_return_delays_no_other() {
    let api = Api::default();
    let slow = path("slow");
    api.delay(move |method, path| {
        if is_write(method) && path.starts_with(&slow) {
            Duration::from_mins(1)
        } else {
            Duration::ZERO
        }
    });
    let others = || ["a", "b", "c", "d", "e"].into_iter().flat_map(|namespace| keys(namespace, 40));
    let running = Running::start(&api, None, &[projector(keys("slow", 200))]);
    eventually("the writes are in flight", || !api.requests("POST").is_empty()).await;
    for round in 0..10 {
        let begin = Instant::now();
        let version = format!("v1.{round}.0");
        {
            let mut wish = running.wishes.lock().unwrap();
            wish.profiles.extend(others());
            wish.version = Some(version.clone());
        }
        for key in others() {
            running.shared.profiles.queue.add_with(key, Priority::Start);
        }
        let is_written = |key: ProfileKey| {
            let object = api.get(&format!("{}/{}", path(key.namespace.as_str()), key.cluster));
            object
                .is_some_and(|object| object["status"]["version"]["kubernetes"] == version.as_str())
        };
        eventually("the others are written", || others().all(is_written)).await;
        assert!(begin.elapsed() < Duration::from_secs(1), "round {round}: {:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_secs(7)).await;
    }
    assert!(!created(&api, keys("slow", 1)), "the slow namespace is still slow");
    running.task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_a_few_requests_however_many_keys_wait_and_then_all_converge() {
    for (code, reason) in [(503, "ServiceUnavailable"), (429, "TooManyRequests")] {
        let api = Api::default();
        api.refuse(move |method, _| is_write(method).then(|| (code, failure(code, reason))));
        let running = Running::start(&api, None, &[projector(keys("app", 10_000))]);
        let is_out = |out: u8| running.measures(&format!("api_server_outage {out}"));
        eventually("the outage is noticed", || is_out(1)).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let sent = api.requests("POST").len();
        assert!((100..=120 + WORKERS + 1).contains(&sent), "{sent} requests");
        let text = running.shared.host.metrics.text();
        let held = |line: &str| {
            line.contains("errors_total") && line.contains("held") && !line.ends_with(" 0")
        };
        assert!(!text.lines().any(held), "what is not sent is no error: {text}");
        api.allow();
        eventually("all converge", || created(&api, keys("app", 10_000))).await;
        assert!(is_out(0));
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_grant_is_among_the_probes_of_an_outage() {
    let api = Api::default();
    let running = Running::start(&api, None, &[projector(keys("app", 100))]);
    eventually("the profiles exist", || created(&api, keys("app", 100))).await;
    api.refuse(|method, _| is_write(method).then(|| (503, failure(503, "ServiceUnavailable"))));
    running.wishes.lock().unwrap().version = Some("v1.34.0".to_owned());
    running.shared.profiles.enqueue_where(|_| true);
    eventually("the outage is noticed", || api.requests("PATCH").len() >= WORKERS / 2).await;
    let ended = keys("app", 1).next().unwrap();
    running.wishes.lock().unwrap().profiles.remove(&ended);
    running.shared.profiles.queue.add_with(ended, Priority::End);
    let before = api.requests("PATCH").len();
    eventually("the delete is tried", || !api.requests("DELETE").is_empty()).await;
    assert!(api.requests("PATCH").len() <= before + 2);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn creates_that_begin_to_hang_in_hundreds_of_namespaces_at_once_delay_no_update_in_another() {
    let api = Api::default();
    api.delay(|method, path| {
        let hangs = *method == Method::POST && path.contains("/hanging-");
        if hangs { Duration::from_mins(1) } else { Duration::ZERO }
    });
    let running = Running::start(&api, None, &[projector(keys("app", 5))]);
    eventually("the healthy profiles exist", || created(&api, keys("app", 5))).await;
    let hanging =
        || (0..400).flat_map(|number| keys(&format!("hanging-{number}"), 2).collect::<Vec<_>>());
    running.wishes.lock().unwrap().profiles.extend(hanging());
    hanging().for_each(|key| running.shared.profiles.queue.add_with(key, Priority::Start));
    eventually("creates hang", || api.requests("/hanging-").len() >= 10).await;
    for minor in 0..20 {
        let begin = Instant::now();
        running.wishes.lock().unwrap().version = Some(format!("v1.{minor}.0"));
        let before = api.requests("PATCH").len();
        keys("app", 5)
            .for_each(|key| running.shared.profiles.queue.add_with(key, Priority::Update));
        eventually("they are written", || api.requests("PATCH").len() == before + 5).await;
        assert!(begin.elapsed() <= Duration::from_secs(1), "round {minor}: {:?}", begin.elapsed());
        // More often, and the keys reach their limit of writes.
        tokio::time::sleep(Duration::from_millis(1900)).await;
    }
    running.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_fails_is_retried_every_five_seconds_and_reported_once_it_lasts() {
    let api = Api::default();
    let running = Running::start(&api, None, &[projector(keys("app", 1))]);
    eventually("the profile exists", || created(&api, keys("app", 1))).await;
    api.refuse(|method, _| {
        (*method == Method::DELETE).then(|| (500, failure(500, "InternalError")))
    });
    running.wishes.lock().unwrap().profiles.clear();
    keys("app", 1).for_each(|key| running.shared.profiles.queue.add_with(key, Priority::End));
    let refused = || running.measures("findings{reason=\"WriteRefused\"} 1");
    let begin = Instant::now();
    eventually("it is reported", refused).await;
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    tokio::time::sleep(Duration::from_mins(10)).await;
    api.allow();
    let allowed = Instant::now();
    eventually("it is deleted", || !created(&api, keys("app", 1))).await;
    assert!(allowed.elapsed() <= Duration::from_secs(6), "{:?}", allowed.elapsed());
    eventually("the finding is over", || !refused()).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_create_that_the_end_of_a_grant_waits_for_is_retried_every_five_seconds() {
    let api = Api::default();
    api.refuse(|method, _| (*method == Method::POST).then(|| (403, failure(403, "Forbidden"))));
    let running = Running::start(&api, None, &[projector(keys("app", 1))]);
    eventually("the create is tried", || !api.requests("POST").is_empty()).await;
    // As `credential-rights` queues the permission to delete copies.
    keys("app", 1).for_each(|key| running.shared.profiles.queue.add_with(key, Priority::End));
    tokio::time::sleep(Duration::from_mins(10)).await;
    let before = api.requests("POST").len();
    tokio::time::sleep(Duration::from_secs(50)).await;
    let tried = api.requests("POST").len() - before;
    assert!((10..=30).contains(&tried), "{tried} in 50 seconds");
    api.allow();
    let allowed = Instant::now();
    eventually("it is created", || created(&api, keys("app", 1))).await;
    assert!(allowed.elapsed() <= Duration::from_secs(6), "{:?}", allowed.elapsed());
    running.stop().await.unwrap();
}
