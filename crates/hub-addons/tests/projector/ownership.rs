//! A profile that a finalizer holds, on a real hub.

use crate::support::shared::stage;
use crate::support::shown::profile;
use crate::support::world::{delete, events, get, hold, let_go, profile_of, told};
use local_hub::Flavour;
use local_hub::ocm::{self, ManagedCluster};
use serde_json::{Value, json};

/// Argo CD adds it to every profile that it uses.
const ARGO: &str = "argoproj.io/cluster-profile-finalizer";

#[tokio::test]
async fn a_terminating_profile_is_reported_and_recreated_once_it_is_gone() {
    let stage = stage(Flavour::Map).await;
    let cluster = ManagedCluster::named("held").in_set("held");
    let bound = [ocm::namespace("held"), ocm::cluster_set("held"), ocm::bound("held", "held")];
    stage.create(bound).await;
    stage.create([cluster.clone().into()]).await;
    let uid = |profile: &Value| profile["metadata"]["uid"].clone();
    let first = profile(&stage.ocm, ("held", "held"), "has its status", |profile| {
        profile["status"]["version"].is_object()
    })
    .await;
    let ours = profile_of("open-cluster-management", "held", "held");
    stage.caught_up().await;
    let before = stage.asked_in("held").await.len();
    hold(&stage.ocm, &ours, ARGO).await;
    delete(&stage.ocm, &ours).await;
    let note = told(&stage.ocm, &ours, "ProfileTerminating").await;
    assert!(note.contains(ARGO), "{note}");
    stage.shared.addons.measures("hub_addons_findings{reason=\"ProfileTerminating\"}", 1.0).await;

    cluster.version("v1.2.3").update(&stage.ocm).await.unwrap();
    stage.caught_up().await;
    let requests = stage.asked_in("held").await;
    assert_eq!(requests.len(), before, "nothing is written while it is being deleted: {requests}");
    assert_eq!(events(&stage.ocm, &ours, "ProfileTerminating").await.len(), 1);
    let held = get(&stage.ocm, &ours).await.unwrap();
    assert_eq!(held["metadata"]["finalizers"], json!([ARGO]));

    let_go(&stage.ocm, &ours).await;
    let second = profile(&stage.ocm, ("held", "held"), "is a new one", |profile| {
        uid(profile) != uid(&first) && profile["status"]["version"]["kubernetes"] == "v1.2.3"
    })
    .await;
    assert!(second["metadata"].get("deletionTimestamp").is_none());
    stage.shared.addons.measures("hub_addons_findings{reason=\"ProfileTerminating\"}", 0.0).await;
}
