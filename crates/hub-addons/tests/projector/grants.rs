//! Which clusters a namespace sees, on a real hub: every rule of grants.

use crate::support::shared::{Stage, stage};
use crate::support::shown::names;
use crate::support::world::{delete, events, merge_status, told};
use local_hub::Flavour;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::json;

fn in_set(name: &str, set: &str) -> Object {
    ManagedCluster::named(name).in_set(set).into()
}

fn labelled(name: &str, key: &str, value: &str) -> Object {
    ManagedCluster::named(name).label(key, value).into()
}

async fn move_to(stage: &Stage, cluster: &str, set: &str) {
    ManagedCluster::named(cluster).in_set(set).update(&stage.ocm).await.unwrap();
}

async fn write_bound(stage: &Stage, binding: &Object, status: &str) {
    let condition = json!({
        "type": "Bound", "status": status, "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    merge_status(&stage.ocm, binding, &json!({ "conditions": [condition] })).await;
}

#[tokio::test]
async fn an_exclusive_set_shows_the_clusters_whose_label_names_it() {
    let stage = stage(Flavour::Map).await;
    let unsaid = ocm::cluster_set("exclusive-unsaid").field("spec", json!({ "clusterSelector": {} }));
    stage
        .create([
            ocm::namespace("exclusive"),
            ocm::namespace("exclusive-unsaid"),
            ocm::cluster_set("exclusive"),
            unsaid,
            in_set("exclusive-1", "exclusive"),
            in_set("exclusive-2", "exclusive-unsaid"),
            ManagedCluster::named("exclusive-3").into(),
            ocm::bound("exclusive", "exclusive"),
            ocm::bound("exclusive-unsaid", "exclusive-unsaid"),
        ])
        .await;
    stage.sees("exclusive", &["exclusive-1"]).await;
    stage.sees("exclusive-unsaid", &["exclusive-2"]).await;

    move_to(&stage, "exclusive-3", "exclusive").await;
    stage.sees("exclusive", &["exclusive-1", "exclusive-3"]).await;
    ManagedCluster::named("exclusive-1").update(&stage.ocm).await.unwrap();
    stage.sees("exclusive", &["exclusive-3"]).await;
    delete(&stage.ocm, &in_set("exclusive-3", "exclusive")).await;
    stage.sees("exclusive", &[]).await;
}

#[tokio::test]
async fn only_a_binding_that_is_bound_grants() {
    let stage = stage(Flavour::Map).await;
    let silent = ocm::binding("bound-absent", "bound");
    let refused = ocm::unbound("bound-false", "bound");
    stage
        .create([
            ocm::namespace("bound-absent"),
            ocm::namespace("bound-false"),
            ocm::cluster_set("bound"),
            in_set("bound-1", "bound"),
            silent.clone(),
            refused.clone(),
        ])
        .await;
    stage.caught_up().await;
    assert!(names(&stage.ocm, "bound-absent").await.is_empty());
    assert!(names(&stage.ocm, "bound-false").await.is_empty());

    write_bound(&stage, &silent, "True").await;
    write_bound(&stage, &refused, "True").await;
    stage.sees("bound-absent", &["bound-1"]).await;
    stage.sees("bound-false", &["bound-1"]).await;
    write_bound(&stage, &refused, "Unknown").await;
    stage.sees("bound-false", &[]).await;
    merge_status(&stage.ocm, &silent, &json!({ "conditions": null })).await;
    stage.sees("bound-absent", &[]).await;
}

#[tokio::test]
async fn a_broken_selector_neither_adds_nor_removes_and_affects_no_other_set() {
    let stage = stage(Flavour::Map).await;
    let set = |operator: &str| {
        let expression = json!({ "key": "broken", "operator": operator, "values": ["yes"] });
        ocm::selecting_cluster_set("broken", &json!({ "matchExpressions": [expression] }))
    };
    stage
        .create([
            ocm::namespace("broken"),
            ocm::namespace("broken-not"),
            set("In"),
            ocm::cluster_set("broken-not"),
            labelled("broken-1", "broken", "yes"),
            labelled("broken-2", "broken", "yes"),
            labelled("broken-3", "broken", "no"),
            ocm::bound("broken", "broken"),
            ocm::bound("broken-not", "broken-not"),
        ])
        .await;
    stage.sees("broken", &["broken-1", "broken-2"]).await;

    set("Like").update(&stage.ocm).await.unwrap();
    let note = told(&stage.ocm, &set("Like"), "InvalidSelector").await;
    assert!(note.contains("\"Like\""), "{note}");
    let finding = "hub_addons_findings{reason=\"InvalidSelector\"}";
    stage.shared.addons.measures(finding, 1.0).await;

    // One that would leave, one that would join, and one of another set.
    labelled("broken-1", "broken", "no").update(&stage.ocm).await.unwrap();
    labelled("broken-3", "broken", "yes").update(&stage.ocm).await.unwrap();
    stage.create([in_set("broken-4", "broken-not")]).await;
    stage.sees("broken-not", &["broken-4"]).await;
    stage.caught_up().await;
    assert_eq!(names(&stage.ocm, "broken").await, ["broken-1", "broken-2"]);
    assert_eq!(events(&stage.ocm, &set("Like"), "InvalidSelector").await.len(), 1);

    // A cluster that is known not to be granted is removed: it is being deleted.
    delete(&stage.ocm, &labelled("broken-2", "broken", "yes")).await;
    stage.sees("broken", &["broken-1"]).await;

    set("In").update(&stage.ocm).await.unwrap();
    stage.sees("broken", &["broken-3"]).await;
    stage.shared.addons.measures(finding, 0.0).await;
}
