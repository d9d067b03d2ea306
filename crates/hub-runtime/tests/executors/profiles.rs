//! Writes of ClusterProfiles, and what follows from their failures.

use std::time::Duration;

use http::Method;
use hub_api::names::ProfileKey;
use serde_json::{Value, json};

use crate::api::{Api, failure};
use crate::{Running, Traits, eventually};

const PROFILES: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/app/clusterprofiles";

pub fn key(cluster: &str) -> ProfileKey {
    ProfileKey { namespace: "app".into(), cluster: cluster.into() }
}

fn projector(clusters: impl IntoIterator<Item = String>) -> Traits {
    let wants = clusters.into_iter().map(|cluster| key(&cluster)).collect();
    Traits { name: "projector", needs: &[], wants: Some(wants) }
}

pub fn one() -> Traits {
    projector(["c1".to_owned()])
}

/// Refuses creates.
fn creates(code: u16, status: Value) -> impl Fn(&Method, &str) -> Option<(u16, Value)> + Send + 'static {
    move |method, path| (method == Method::POST && path == PROFILES).then(|| (code, status.clone()))
}

fn tried(api: &Api) -> usize {
    api.requests(&format!("POST {PROFILES}")).len()
}

pub fn exists(api: &Api) -> bool {
    api.get(&format!("{PROFILES}/c1")).is_some()
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_is_wanted_is_created_once_and_one_that_is_not_is_deleted() {
    let api = Api::default();
    let spec = json!({"clusterManager": {"name": "open-cluster-management"}, "displayName": "old"});
    let labels = json!({"x-k8s.io/cluster-manager": "open-cluster-management"});
    api.put(&format!("{PROFILES}/old"), json!({"spec": spec, "metadata": {"labels": labels}}));
    let running = Running::start(&api, None, &[one()]);
    eventually("it is created", || exists(&api)).await;
    eventually("the other is deleted", || api.get(&format!("{PROFILES}/old")).is_none()).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(tried(&api), 1);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_does_not_exist_is_tried_once_a_minute() {
    let api = Api::default();
    let mut status = failure(404, "NotFound");
    status["details"] = json!({"name": "app", "kind": "namespaces"});
    api.refuse(creates(404, status));
    let running = Running::start(&api, None, &[one()]);
    eventually("it is tried", || tried(&api) == 1).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(tried(&api), 1);
    api.allow();
    eventually("it is created", || exists(&api)).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_tried_by_a_few_keys_and_written_soon_after_it_is_back() {
    for (code, status) in [(404, json!("404 page not found\n")), (405, failure(405, "MethodNotAllowed"))] {
        let api = Api::default();
        api.refuse(creates(code, status));
        let running = Running::start(&api, None, &[projector((0..200).map(|n| format!("c{n}")))]);
        eventually("it is tried", || tried(&api) > 0).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(tried(&api) <= 16, "no more than there are workers: {}", tried(&api));
        api.allow();
        let back = tokio::time::Instant::now();
        eventually("it is created", || exists(&api)).await;
        assert!(back.elapsed() < Duration::from_secs(6));
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_create_is_reported_until_it_is_allowed() {
    let api = Api::default();
    api.refuse(creates(403, failure(403, "Forbidden")));
    let running = Running::start(&api, None, &[one()]);
    let reported = |count: u32| {
        let line = format!("hub_addons_findings{{reason=\"WriteRefused\"}} {count}");
        running.shared.host.metrics.text().contains(&line)
    };
    eventually("it is reported", || reported(1)).await;
    api.allow();
    eventually("it is created", || exists(&api)).await;
    eventually("the report ends", || reported(0)).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_names_a_wait_is_left_alone_for_that_long() {
    let api = Api::default();
    let mut status = failure(503, "ServiceUnavailable");
    status["details"] = json!({"retryAfterSeconds": 30});
    api.refuse(creates(503, status));
    let running = Running::start(&api, None, &[one()]);
    eventually("it is tried", || tried(&api) == 1).await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(tried(&api), 1);
    api.allow();
    eventually("it is created", || exists(&api)).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_when_the_process_stops_is_finished() {
    let api = Api::default();
    api.hold_up(PROFILES);
    let running = Running::start(&api, None, &[one()]);
    eventually("the create is in flight", || tried(&api) == 1).await;
    running.stop.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!running.task.is_finished());
    api.release();
    running.task.await.unwrap().unwrap();
    assert!(exists(&api));
}
