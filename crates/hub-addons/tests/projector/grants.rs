//! Which clusters a namespace sees, on a real hub, as the labels of clusters change.

use crate::support::shared::{Stage, stage};
use crate::support::world::delete;
use local_hub::Flavour;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::json;

fn in_set(name: &str, set: &str) -> Object {
    ManagedCluster::named(name).in_set(set).into()
}

async fn move_to(stage: &Stage, cluster: &str, set: &str) {
    ManagedCluster::named(cluster).in_set(set).update(&stage.ocm).await.unwrap();
}

#[tokio::test]
async fn an_exclusive_set_shows_the_clusters_whose_label_names_it() {
    let stage = stage(Flavour::Map).await;
    let unsaid =
        ocm::cluster_set("exclusive-unsaid").field("spec", json!({ "clusterSelector": {} }));
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
