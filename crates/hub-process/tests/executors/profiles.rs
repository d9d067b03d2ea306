//! Writes of ClusterProfiles, and what follows from their failures.

use std::time::Duration;

use http::Method;
use hub_api::cluster_profile::Property;
use hub_api::labels::{CLUSTER_MANAGER, MEMBER_ID};
use hub_api::names::ProfileKey;
use hub_core::concerned::KnownProfiles as _;
use hub_core::member_id::FIELD_MANAGER;
use hub_core::priority::Priority;
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

fn tried(api: &Api) -> usize {
    api.requests(&format!("POST {PROFILES}")).len()
}

pub fn exists(api: &Api) -> bool {
    api.get(&format!("{PROFILES}/c1")).is_some()
}

#[tokio::test(start_paused = true)]
async fn a_new_profile_is_planned_for_each_write_and_for_what_the_watch_shows_last() {
    // The watch shows the create while the key waits, while its status is written, and before its response.
    for (slow, late) in [("", ""), ("PATCH", ""), ("", "POST")] {
        let (api, lag) = (Api::default(), Duration::from_millis(50));
        api.respond_late("WATCH", lag);
        api.delay(move |method, _| if method == slow { lag * 2 } else { Duration::ZERO });
        api.respond_late(late, lag * 2);
        let running = Running::start(&api, None, &[one()]);
        running.wishes.lock().unwrap().version = Some("v1".to_owned());
        tokio::time::sleep(Duration::from_mins(10)).await;
        let plans = running.wishes.lock().unwrap().plans;
        assert_eq!((plans, tried(&api)), (3, 1), "{slow} {late}");
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_watch_shows_before_the_response_to_the_create_is_planned() {
    let api = Api::default();
    api.respond_late("POST", Duration::from_millis(50));
    let running = Running::start(&api, None, &[one()]);
    eventually("it is created", || exists(&api)).await;
    let profile = || api.get(&format!("{PROFILES}/c1")).unwrap();
    let mut changed = profile();
    let labels = changed["metadata"]["labels"].take();
    api.put(&format!("{PROFILES}/c1"), changed);
    eventually("it is undone", || profile()["metadata"]["labels"] == labels).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_does_not_exist_is_tried_a_few_times_a_minute_and_nothing_is_reported() {
    let api = Api::default();
    let mut status = failure(404, "NotFound");
    status["details"] = json!({"name": "app", "kind": "namespaces"});
    let created = |method: &Method, path: &str| method == Method::POST && path == PROFILES;
    api.refuse(move |method, path| created(method, path).then(|| (404, status.clone())));
    let running = Running::start(&api, None, &[one()]);
    eventually("it is tried", || tried(&api) == 1).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!((2..=20).contains(&tried(&api)), "{} requests", tried(&api));
    assert!(running.measures("findings{reason=\"WriteRefused\"} 0"));
    api.allow();
    eventually("it is created", || exists(&api)).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_profile_whose_writes_another_client_undoes_is_written_ever_more_rarely_unless_something_changes()
 {
    let api = Api::default();
    let running = Running::start(&api, None, &[one()]);
    running.wishes.lock().unwrap().version = Some("v1".to_owned());
    eventually("it is created", || exists(&api)).await;
    for n in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut undone = api.get(&format!("{PROFILES}/c1")).unwrap();
        undone["status"] = json!({ "version": { "kubernetes": format!("v{n}") } });
        api.put(&format!("{PROFILES}/c1"), undone);
    }
    let written = api.requests("PATCH").len();
    assert!((6..=12).contains(&written), "{written} requests in a minute");
    running.wishes.lock().unwrap().version = Some("v2".to_owned());
    running.shared.profiles.queue.add_with(key("c1"), Priority::Update);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(api.requests("PATCH").len(), written + 1, "a change does not wait");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn properties_that_change_every_second_are_written_once_a_minute_and_nothing_else_waits() {
    let api = Api::default();
    let running = Running::start(&api, None, &[one()]);
    let finding = "findings{reason=\"ClaimChangesOften\"}";
    let is_reported = |count| running.measures(&format!("{finding} {count}"));
    let shows = |field: &str, value: Value| {
        api.get(&format!("{PROFILES}/c1"))
            .is_some_and(|profile| *profile["status"].pointer(field).unwrap() == value)
    };
    for second in 0..570 {
        let value = second.to_string();
        let noisy = Property { name: "load".to_owned(), value };
        running.wishes.lock().unwrap().properties = Some(vec![noisy]);
        running.shared.profiles.queue.add_with(key("c1"), Priority::Update);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(second < 6 || is_reported(1), "a write does not end what is reported: {second}");
    }
    let written = api.requests("PATCH").len();
    assert!((14..=17).contains(&written), "{written} writes, after a burst of five");
    assert!(!shows("/properties/0/value", json!("569")));
    running.wishes.lock().unwrap().version = Some("v1".to_owned());
    running.shared.profiles.queue.add_with(key("c1"), Priority::Update);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        shows("/version/kubernetes", json!("v1")) && !shows("/properties/0/value", json!("569"))
    );
    eventually("the last ones are shown", || shows("/properties/0/value", json!("569"))).await;
    eventually("nothing is reported any more", || is_reported(0)).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_profiles_of_a_cluster_are_written_when_it_changes() {
    let api = Api::default();
    let running = Running::start(&api, None, &[projector(["c1", "c2"].map(str::to_owned))]);
    eventually("they are created", || exists(&api) && api.get(&format!("{PROFILES}/c2")).is_some())
        .await;
    let profiles = &running.shared.profiles;
    eventually("they are cached", || profiles.exists(&key("c1")) && profiles.exists(&key("c2")))
        .await;
    let mut names = Vec::new();
    profiles.visit(|key, profile| names.push(format!("{key} of {}", profile.manager))).await;
    assert_eq!(names, ["app/c1 of open-cluster-management", "app/c2 of open-cluster-management"]);
    running.wishes.lock().unwrap().version = Some("v1".to_owned());
    profiles.enqueue_of(&"c2".into());
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(api.requests("PATCH"), [format!("PATCH {PROFILES}/c2/status")]);
    let managers = ["PATCH", "POST"].map(|method| format!("{method} {FIELD_MANAGER}"));
    assert_eq!(api.field_managers(), managers.into());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_member_id_of_two_profiles_is_a_finding_on_those_of_this_cluster_manager() {
    let api = Api::default();
    let ours = "open-cluster-management";
    for (name, manager) in [("c1", ours), ("foreign", "another"), ("unwanted", ours)] {
        let labels = json!({ CLUSTER_MANAGER: manager, MEMBER_ID: "c1" });
        let spec = json!({ "clusterManager": { "name": manager }, "displayName": name });
        let profile = json!({ "spec": spec, "metadata": { "labels": labels } });
        api.put(&format!("{PROFILES}/{name}"), profile);
    }
    let running = Running::start(&api, None, &[projector(["c1", "foreign"].map(str::to_owned))]);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(running.measures("findings{reason=\"MemberIdShared\"} 1\n"));
    assert!(api.get(&format!("{PROFILES}/unwanted")).is_none());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_is_pending_and_counted_until_it_is_written() {
    let api = Api::default();
    api.hold_up(PROFILES);
    let running = Running::start(&api, None, &[one()]);
    let profiles = &running.shared.profiles;
    let kind = "controller=\"clusterprofiles\"";
    let depth = |count: u8| running.measures(&format!("queue_depth{{{kind}}} {count}\n"));
    eventually("the create is in flight", || tried(&api) == 1).await;
    assert!(profiles.queue.holds(&key("c1")) && !profiles.queue.holds(&key("c2")));
    assert!(!profiles.exists(&key("c1")));
    assert_eq!(profiles.namespaces_with(&"c1".into()), ["app".into()]);
    assert!(depth(1), "{}", running.shared.host.metrics.text());
    api.release();
    eventually("it is written", || !profiles.queue.holds(&key("c1"))).await;
    assert!(profiles.exists(&key("c1")) && depth(0));
    assert_eq!(profiles.namespaces_with(&"c1".into()), ["app".into()]);
    assert_eq!(profiles.clusters_in(&"app".into()), ["c1".into()]);
    assert!(profiles.namespaces_with(&"c2".into()).is_empty());
    assert!(profiles.clusters_in(&"other".into()).is_empty());
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

#[tokio::test(start_paused = true)]
async fn while_profiles_cannot_be_read_none_is_created_and_one_that_is_not_wanted_is_deleted() {
    let api = Api::default();
    let running = Running::start(&api, None, &[one()]);
    eventually("it is created", || exists(&api)).await;
    api.refuse(|method, path| {
        let is_read = method == Method::GET && path.ends_with("/clusterprofiles");
        is_read.then(|| (403, failure(403, "Forbidden")))
    });
    let kind = "controller=\"clusterprofiles\",resource=\"clusterprofiles\"";
    let is_unread = || running.measures(&format!("unread_watches{{{kind}}} 1"));
    eventually("profiles cannot be read", is_unread).await;
    running.wishes.lock().unwrap().profiles = [key("c2")].into();
    for cluster in ["c1", "c2"] {
        running.shared.profiles.queue.add_with(key(cluster), Priority::Start);
    }
    eventually("what is not wanted is deleted", || !exists(&api)).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    let new = format!("{PROFILES}/c2");
    assert!(api.get(&new).is_none() && is_unread());
    api.allow();
    eventually("it is created when profiles can be read", || api.get(&new).is_some()).await;
    running.stop().await.unwrap();
}
