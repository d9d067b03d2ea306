//! How the projector reacts to an unavailable API server or a terminating namespace, and to changes that it missed, on
//! a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::shared::caught_up;
use crate::support::shown::{names, sees};
use crate::support::world::{self, HOLD, delete, get, hold, let_go};
use crate::support::{Hub, SOON, rights, user};
use local_hub::ocm::{self, Fleet, Object};
use local_hub::{LocalHub, eventually};

const QUEUE: &str = "hub_addons_queue_depth{controller=\"clusterprofiles\"}";

async fn create<const N: usize>(hub: &Hub, objects: [Object; N]) {
    world::create(&hub.ocm, objects).await;
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
