//! How the projector reacts to an unavailable API server or a terminating namespace, and to changes that it missed, on
//! a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::shared::caught_up;
use crate::support::shown::{names, profile, sees};
use crate::support::world::{self, HOLD, delete, get, hold, let_go, merge, profile_of};
use crate::support::{Hub, SOON, rights, user};
use local_hub::ocm::{self, Fleet, ManagedCluster, Object};
use local_hub::{LocalHub, eventually};
use serde_json::json;

const QUEUE: &str = "hub_addons_queue_depth{controller=\"clusterprofiles\"}";

fn in_set(name: &str, set: &str) -> Object {
    ManagedCluster::named(name).in_set(set).into()
}

async fn create<const N: usize>(hub: &Hub, objects: [Object; N]) {
    world::create(&hub.ocm, objects).await;
}

/// Two namespaces, each with a bound set of its name and clusters in it.
async fn two_teams(hub: &Hub) {
    for team in ["red", "blue"] {
        create(hub, [ocm::namespace(team), ocm::cluster_set(team)]).await;
        for number in 1..=3 {
            create(hub, [in_set(&format!("{team}-{number}"), team)]).await;
        }
        create(hub, [ocm::bound(team, team)]).await;
    }
}

/// Makes every kind of change while no projector runs.
async fn change_everything(hub: &Hub) {
    delete(&hub.ocm, &in_set("red-1", "red")).await;
    ManagedCluster::named("red-2").in_set("blue").update(&hub.ocm).await.unwrap();
    create(hub, [in_set("red-4", "red")]).await;
    delete(&hub.ocm, &profile_of("open-cluster-management", "red", "red-3")).await;
    delete(&hub.ocm, &ocm::bound("blue", "blue")).await;
    create(hub, [ocm::namespace("green"), ocm::bound("green", "blue")]).await;
    let blue_1 = profile_of("open-cluster-management", "blue", "blue-1");
    merge(&hub.ocm, &blue_1, &json!({ "spec": { "displayName": "drift" } })).await;
}

async fn everything_is_right(hub: &Hub) {
    sees(&hub.ocm, "red", &["red-3", "red-4"]).await;
    sees(&hub.ocm, "blue", &[]).await;
    sees(&hub.ocm, "green", &["blue-1", "blue-2", "blue-3", "red-2"]).await;
    for cluster in ["blue-1", "blue-2", "blue-3", "red-2"] {
        profile(&hub.ocm, ("green", cluster), "has a status", |profile| profile["status"].is_object()).await;
    }
}

#[tokio::test]
async fn what_changed_while_no_projector_ran_is_reconciled_at_the_start() {
    let hub = Hub::for_projector().await;
    two_teams(&hub).await;
    let addons = hub.projector(&[]).await;
    sees(&hub.ocm, "red", &["red-1", "red-2", "red-3"]).await;
    sees(&hub.ocm, "blue", &["blue-1", "blue-2", "blue-3"]).await;
    addons.stop().await;
    change_everything(&hub).await;
    let addons = hub.projector(&[]).await;
    everything_is_right(&hub).await;
    addons.stop().await;
}

#[tokio::test]
async fn what_vanished_while_the_watches_were_down_is_noticed_when_they_list_again() {
    let hub = Hub::for_projector().await;
    two_teams(&hub).await;
    let addons = hub.projector(&["--leader-elect=false"]).await;
    sees(&hub.ocm, "red", &["red-1", "red-2", "red-3"]).await;
    sees(&hub.ocm, "blue", &["blue-1", "blue-2", "blue-3"]).await;

    addons.signal("STOP").await;
    // Its watches end here, and all these changes are made before new ones can begin.
    hub.stop_api_server().await.unwrap();
    hub.start_api_server().await.unwrap();
    change_everything(&hub).await;
    // A new API server has an empty watch cache: clients must list.
    hub.stop_api_server().await.unwrap();
    hub.start_api_server().await.unwrap();
    addons.signal("CONT").await;
    everything_is_right(&hub).await;
    addons.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_away_for_a_while_is_waited_for() {
    let hub = Hub::for_projector().await;
    two_teams(&hub).await;
    let addons = hub.projector(&["--leader-elect=false"]).await;
    sees(&hub.ocm, "red", &["red-1", "red-2", "red-3"]).await;
    for round in 0..3 {
        hub.stop_api_server().await.unwrap();
        addons
            .measures_at_least(
                "hub_addons_watch_errors_total{resource=\"managedclusters\",category=\"unavailable\"}",
                f64::from(round) * 2.0 + 2.0,
            )
            .await;
        assert_eq!(addons.probe("/livez").await.0, 200);
        hub.start_api_server().await.unwrap();
        caught_up(&hub.ocm, &format!("round-{round}")).await;
        assert_eq!(addons.probe("/readyz").await.0, 200);
    }
    // Nothing was treated as deleted during the outage.
    let requests = hub.audit().requests().await.unwrap().of_user(user());
    let of_teams =
        requests.matching(|r| r.verb == "delete" && ["red", "blue"].contains(&r.namespace.as_str()));
    assert!(of_teams.is_empty(), "{of_teams}");
    addons.stop().await;
}

#[tokio::test]
async fn an_api_server_that_blocks_delays_nothing_once_it_responds_again() {
    let hub = Hub::for_projector().await;
    let fleet = Fleet::of(60, 5);
    fleet.create(&hub.ocm).await.unwrap();
    let addons = hub.projector(&["--leader-elect=false"]).await;
    let created = "hub_addons_writes_total{resource=\"clusterprofiles\",verb=\"create\",result=\"ok\"}";
    addons.measures_at_least(created, 5.0).await;
    hub.pause_api_server().await.unwrap();
    // Writes in flight time out.
    let given_up = "hub_addons_reconcile_errors_total{controller=\"clusterprofiles\",category=\"timeout\"}";
    addons.measures_at_least(given_up, 1.0).await;
    assert_eq!(addons.probe("/livez").await.0, 200);
    hub.resume_api_server().await.unwrap();
    let clusters: Vec<&str> = fleet.clusters.iter().map(String::as_str).collect();
    for namespace in &fleet.namespaces {
        sees(&hub.ocm, namespace, &clusters).await;
        for cluster in &clusters {
            profile(&hub.ocm, (namespace, cluster), "has a status", |p| p["status"].is_object()).await;
        }
    }
    addons.measures(QUEUE, 0.0).await;
    addons.stop().await;
}

#[tokio::test]
async fn a_namespace_that_ends_gets_nothing_new_and_is_not_asked_hot() {
    // With the controllers that end a namespace.
    let hub = Hub::start(LocalHub::builder(), rights::projector()).await;
    let fleet = Fleet::of(50, 1);
    fleet.create(&hub.ocm).await.unwrap();
    let addons = hub.projector(&[]).await;
    let clusters: Vec<&str> = fleet.clusters.iter().map(String::as_str).collect();
    sees(&hub.ocm, "fleet-00", &clusters).await;
    addons.measures(QUEUE, 0.0).await;

    // The namespace and the binding remain: every cluster stays granted to it.
    let (namespace, binding) = (ocm::namespace("fleet-00"), ocm::bound("fleet-00", "fleet"));
    hold(&hub.ocm, &binding, HOLD).await;
    let map = Object::new(("", "v1", "ConfigMap"), "configmaps", Some("fleet-00"), "held");
    create(&hub, [map.clone()]).await;
    hold(&hub.ocm, &map, HOLD).await;
    let mark = hub.audit().mark().await.unwrap();
    delete(&hub.ocm, &namespace).await;
    sees(&hub.ocm, "fleet-00", &[]).await;
    eventually("it has tried", SOON, async || {
        let asked = hub.audit().since(&mark).await.unwrap().of_user(user());
        asked.count(|request| request.namespace == "fleet-00" && request.verb == "create") > 0
    })
    .await;

    // Changes that queue every cluster.
    for name in ["cluster-0000", "cluster-0001"] {
        fleet.cluster(name).version("v1.2.3").update(&hub.ocm).await.unwrap();
    }
    ocm::cluster_set("fleet").label("changed", "yes").update(&hub.ocm).await.unwrap();
    caught_up(&hub.ocm, "elsewhere").await;
    let asked = hub.audit().since(&mark).await.unwrap().of_user(user());
    let asked = asked.matching(|request| request.namespace == "fleet-00");
    let creates = asked.matching(|request| request.verb == "create");
    assert!(creates.iter().all(|request| request.code == 403), "{creates}");
    // As many as were in flight when the first was refused, and a probe in a second.
    assert!((1..=40).contains(&creates.len()), "{creates}");
    addons.measures("hub_addons_findings{reason=\"WriteRefused\"}", 0.0).await;
    assert_eq!(names(&hub.ocm, "fleet-00").await.len(), 0);

    // A new namespace of that name.
    let_go(&hub.ocm, &map).await;
    let_go(&hub.ocm, &binding).await;
    world::gone(&hub.ocm, &namespace).await;
    assert!(get(&hub.ocm, &binding).await.is_none());
    create(&hub, [namespace, binding]).await;
    sees(&hub.ocm, "fleet-00", &clusters).await;
    addons.stop().await;
}

#[tokio::test]
async fn a_namespace_that_has_ended_leaves_nothing_to_be_tried_again() {
    let hub = Hub::start(LocalHub::builder(), rights::projector()).await;
    let fleet = Fleet::of(20, 2);
    fleet.create(&hub.ocm).await.unwrap();
    let addons = hub.projector(&[]).await;
    let clusters: Vec<&str> = fleet.clusters.iter().map(String::as_str).collect();
    sees(&hub.ocm, "fleet-00", &clusters).await;
    let namespace = ocm::namespace("fleet-00");
    delete(&hub.ocm, &namespace).await;
    eventually("the namespace is gone", SOON, async || get(&hub.ocm, &namespace).await.is_none()).await;
    sees(&hub.ocm, "fleet-01", &clusters).await;
    // Nothing is left to retry: the pause of the namespace has ended with it.
    addons.measures(QUEUE, 0.0).await;
    addons.stop().await;
}
