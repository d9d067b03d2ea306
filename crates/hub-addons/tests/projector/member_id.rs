//! The member ID of profiles, on a real hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::cell::Cell;

use crate::support::shared::{Stage, caught_up, stage};
use crate::support::shown::profile;
use crate::support::world::{self, delete, get, merge, profile_of, told};
use crate::support::{Hub, SOON, user};
use hub_api::labels::MEMBER_ID;
use local_hub::Flavour;
use local_hub::eventually;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

const CHANGED: &str = "MemberIdChanged";

fn cluster(name: &str, id: &str) -> ManagedCluster {
    ManagedCluster::named(name).in_set(name).label(MEMBER_ID, id)
}

/// A namespace, a set and its binding, all of this name.
fn bound(name: &str) -> [Object; 3] {
    [ocm::namespace(name), ocm::cluster_set(name), ocm::bound(name, name)]
}

fn ours(name: &str) -> Object {
    profile_of("open-cluster-management", name, name)
}

fn id_of(profile: &Value) -> &str {
    profile["metadata"]["labels"][MEMBER_ID].as_str().unwrap_or_default()
}

async fn has_id(stage: &Stage, (namespace, name): (&str, &str), id: &str) -> Value {
    profile(&stage.ocm, (namespace, name), &format!("has the ID {id}"), |profile| id_of(profile) == id).await
}

/// Waits until objects created now have a later timestamp than this, by the API server's clock, which has a resolution
/// of seconds.
async fn created_later(hub: &Hub, than: &Value) {
    let number = Cell::new(0);
    eventually("the API server's clock has advanced", SOON, async || {
        number.update(|number| number + 1);
        let namespace = ocm::namespace(&format!("tick-{}", number.get()));
        world::create(&hub.ocm, [namespace.clone()]).await;
        let created = get(&hub.ocm, &namespace).await.unwrap()["metadata"]["creationTimestamp"].clone();
        created.as_str() > than.as_str()
    })
    .await;
}

#[tokio::test]
async fn an_id_is_repaired_when_it_is_removed_and_when_it_is_edited() {
    let stage = stage(Flavour::Map).await;
    stage.create(bound("repaired-id")).await;
    stage.create([cluster("repaired-id", "repaired-member").into()]).await;
    let key = ("repaired-id", "repaired-id");
    has_id(&stage, key, "repaired-member").await;
    for edited in [json!(null), json!(""), json!("by-hand")] {
        merge(&stage.ocm, &ours("repaired-id"), &json!({ "metadata": { "labels": { MEMBER_ID: edited } } }))
            .await;
        has_id(&stage, key, "repaired-member").await;
    }
    stage.caught_up().await;
    let writes = stage.asked_in("repaired-id").await.of_user(user()).writes();
    assert_eq!(
        writes
            .count(|request| request.verb == "patch" && request.subresource.is_empty() && request.code < 300),
        3,
        "{writes}"
    );
}

#[tokio::test]
async fn a_changed_id_is_kept_and_reported_through_a_restart_and_applied_where_that_is_asked_for() {
    let hub = Hub::for_projector().await;
    world::create(&hub.ocm, bound("c1")).await;
    world::create(&hub.ocm, [cluster("c1", "before").into()]).await;
    let mut projector = hub.projector(&[]).await;
    let key = ("c1", "c1");
    profile(&hub.ocm, key, "has a status", |profile| profile["status"].is_object()).await;
    cluster("c1", "after").update(&hub.ocm).await.unwrap();
    let note = told(&hub.ocm, &ours("c1"), CHANGED).await;
    assert!(note.contains("\"before\"") && note.contains("\"after\""), "{note}");
    projector.measures("hub_addons_findings{reason=\"MemberIdChanged\"}", 1.0).await;

    let before = get(&hub.ocm, &ours("c1")).await.unwrap();
    projector.stop().await;
    projector = hub.projector(&[]).await;
    caught_up(&hub.ocm, "after-the-restart").await;
    projector.measures("hub_addons_findings{reason=\"MemberIdChanged\"}", 1.0).await;
    assert_eq!(get(&hub.ocm, &ours("c1")).await.unwrap(), before);
    assert_eq!(id_of(&before), "before");
    projector.stop().await;

    // Another cluster of that name, registered while no projector ran.
    delete(&hub.ocm, &cluster("c1", "after").into()).await;
    world::gone(&hub.ocm, &cluster("c1", "after").into()).await;
    created_later(&hub, &before["metadata"]["creationTimestamp"]).await;
    world::create(&hub.ocm, [cluster("c1", "another").into()]).await;
    let _projector = hub.projector(&[]).await;
    profile(&hub.ocm, key, "has the ID of the new cluster", |profile| id_of(profile) == "another").await;
}
