//! OCM's registration controller, with its gate `ClusterProfile` off, as every hub has it: it writes the condition
//! `Bound`, and manages the default sets. The tests of the controllers' rules also run next to it.

use local_hub::{LocalHub, ocm};
use serde_json::Value;

use crate::support::field::{self, UPSTREAM};
use crate::support::shown::{condition, names, sees};
use crate::support::world::{self, create, delete};
use crate::support::{Addons, Hub, PROJECTOR, USER, rights};

/// Waits until a binding's condition `Bound` has this reason.
async fn becomes(hub: &Hub, binding: &ocm::Object, wanted: &str) {
    let is_wanted = |it: &Value| condition(it, "Bound")["reason"] == wanted;
    world::becomes(&hub.ocm, binding, wanted, is_wanted).await;
}

#[tokio::test]
async fn ocm_writes_bound_and_manages_the_default_sets_and_the_projector_follows() {
    let hub = Hub::start(LocalHub::builder(), rights::projector()).await;
    let _registration = field::registered(&hub).await;
    let _addons = Addons::start(&hub, &[PROJECTOR]).await;

    let early = ocm::binding("team", "later");
    create(&hub.ocm, [ocm::namespace("team"), ocm::namespace("all"), early.clone()]).await;
    becomes(&hub, &early, "ClusterSetNotFound").await;
    create(
        &hub.ocm,
        [
            ocm::ManagedCluster::named("one").in_set("later").into(),
            ocm::ManagedCluster::named("two").in_set("default").into(),
            ocm::ManagedCluster::named("three").into(),
            ocm::binding("all", "global"),
        ],
    )
    .await;
    // The global set selects all clusters, also one without an exclusive set.
    sees(&hub.ocm, "all", &["one", "three", "two"]).await;
    assert!(names(&hub.ocm, "team").await.is_empty());

    // Nobody writes a status here but OCM.
    create(&hub.ocm, [ocm::cluster_set("later")]).await;
    becomes(&hub, &early, "ClusterSetBound").await;
    sees(&hub.ocm, "team", &["one"]).await;
    create(&hub.ocm, [ocm::binding("team", "default")]).await;
    sees(&hub.ocm, "team", &["one", "two"]).await;

    delete(&hub.ocm, &ocm::cluster_set("later")).await;
    sees(&hub.ocm, "team", &["two"]).await;
    delete(&hub.ocm, &ocm::binding("all", "global")).await;
    sees(&hub.ocm, "all", &[]).await;
}

#[tokio::test]
async fn with_its_gate_off_ocm_does_not_touch_profiles() {
    let hub = Hub::start(LocalHub::builder(), rights::projector()).await;
    let _registration = field::registered(&hub).await;
    let addons = Addons::start(&hub, &[PROJECTOR]).await;
    let cluster = ocm::ManagedCluster::named("one").in_set("default");
    create(&hub.ocm, [ocm::namespace("team"), cluster.into(), ocm::binding("team", "default")])
        .await;
    sees(&hub.ocm, "team", &["one"]).await;
    // Its first writes to the cluster: a finalizer, conditions, labels of features.
    world::becomes(
        &hub.ocm,
        &ocm::ManagedCluster::named("one").into(),
        "has OCM's finalizer",
        |it| it["metadata"]["finalizers"].is_array(),
    )
    .await;
    let requests = hub.audit().requests().await.unwrap();
    let theirs = requests.of_user(UPSTREAM);
    assert!(!theirs.is_empty(), "it has its own user");
    assert_eq!(theirs.count(|request| request.resource == "clusterprofiles"), 0, "{theirs}");
    let ours =
        requests.of_user(USER).matching(|request| request.resource == "managedclustersetbindings");
    assert_eq!(
        ours.count(|request| !["list", "watch"].contains(&request.verb.as_str())),
        0,
        "{ours}"
    );
    addons.stop().await;
}
