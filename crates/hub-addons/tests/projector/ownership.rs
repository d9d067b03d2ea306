//! A profile that a finalizer holds, on a real hub.

use crate::support::shared::caught_up;
use crate::support::shown::profile;
use crate::support::world::{delete, events, get, grant, hold, let_go, profile_of, told};
use crate::support::{Hub, USER};
use local_hub::ocm::ManagedCluster;
use serde_json::{Value, json};

/// Argo CD adds it to every profile that it uses.
const ARGO: &str = "argoproj.io/cluster-profile-finalizer";

#[tokio::test]
async fn a_terminating_profile_is_reported_and_recreated_once_it_is_gone() {
    let hub = Hub::for_projector().await;
    let projector = hub.projector(&[]).await;
    let cluster = ManagedCluster::named("held").in_set("held");
    grant(&hub.ocm, "held", &["held"]).await;
    let uid = |profile: &Value| profile["metadata"]["uid"].clone();
    let first = profile(&hub.ocm, ("held", "held"), "has its status", |profile| {
        profile["status"]["version"].is_object()
    })
    .await;
    let ours = profile_of("open-cluster-management", "held", "held");
    let asked = async || {
        let requests = hub.audit().requests().await.unwrap().of_user(USER);
        requests.matching(|it| it.namespace == "held" && it.resource == "clusterprofiles")
    };
    caught_up(&hub.ocm, "before").await;
    let before = asked().await.len();
    hold(&hub.ocm, &ours, ARGO).await;
    delete(&hub.ocm, &ours).await;
    let note = told(&hub.ocm, &ours, "ProfileTerminating").await;
    assert!(note.contains(ARGO), "{note}");
    projector.measures("hub_addons_findings{reason=\"ProfileTerminating\"}", 1.0).await;

    cluster.version("v1.2.3").update(&hub.ocm).await.unwrap();
    caught_up(&hub.ocm, "after").await;
    let requests = asked().await;
    assert_eq!(requests.len(), before, "nothing is written while it is being deleted: {requests}");
    assert_eq!(events(&hub.ocm, &ours, "ProfileTerminating").await.len(), 1);
    let held = get(&hub.ocm, &ours).await.unwrap();
    assert_eq!(held["metadata"]["finalizers"], json!([ARGO]));

    let_go(&hub.ocm, &ours).await;
    let second = profile(&hub.ocm, ("held", "held"), "is a new one", |profile| {
        uid(profile) != uid(&first) && profile["status"]["version"]["kubernetes"] == "v1.2.3"
    })
    .await;
    assert!(second["metadata"].get("deletionTimestamp").is_none());
    projector.measures("hub_addons_findings{reason=\"ProfileTerminating\"}", 0.0).await;
}
