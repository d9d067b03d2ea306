//! Kueue's objects for the consumer that declares a MultiKueueConfig: one for each cluster that its namespace is granted,
//! and the list of these.

use kube::Client;
use local_hub::ocm::{self, ManagedCluster, Object};
use local_hub::{LocalHub, Mark, eventually};
use serde_json::json;

use crate::support::kueue::{install_kueue, multi_kueue_cluster, multi_kueue_config};
use crate::support::world::{self, get, merge, merge_status, told};
use crate::support::{Addons, Hub, SOON, USER, rights};
use crate::{GATE, cluster};

const IDLE: &str = "hub_addons_queue_depth{controller=\"consumer-access\"}";
const KUEUE: &str = "kueue-system";

async fn hub() -> Hub {
    let rules = [rights::consumer_access(&["multikueue"]), rights::kueue()].concat();
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rules).await;
    world::create(&hub.ocm, [ocm::namespace(KUEUE), ocm::cluster_set("s")]).await;
    hub
}

async fn start(hub: &Hub) -> Addons {
    let kueue = json!({ "configs": [{ "name": "multikueue" }] });
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["kueue"], "multiKueue": kueue });
    world::ensure(&hub.ocm, &ocm::cluster_access(KUEUE, "multikueue", &spec)).await;
    Addons::beside(hub, &[GATE]).await
}

/// Waits until the MultiKueueConfig lists these clusters and no others, and each has its MultiKueueCluster.
async fn listed(client: &Client, names: &[&str]) {
    eventually(&format!("{names:?} are listed"), SOON, async || {
        let config = get(client, &multi_kueue_config("multikueue")).await.unwrap_or_default();
        let clusters = config["spec"]["clusters"].clone();
        if clusters != json!(names) {
            return Err(clusters.to_string());
        }
        for name in names {
            let shown = get(client, &multi_kueue_cluster(name)).await.unwrap_or_default();
            if shown["spec"]["clusterSource"]["clusterProfileRef"]["name"] != *name {
                return Err(format!("{name}: {shown}"));
            }
        }
        Ok(())
    })
    .await;
}

/// The writes of Kueue's objects since a mark.
async fn writes(hub: &Hub, mark: &Mark) -> Vec<String> {
    let requests = hub.audit().since(mark).await.unwrap().of_user(USER).writes();
    let requests = requests.matching(|it| it.resource.starts_with("multikueue"));
    requests.iter().map(|it| format!("{} {} {}", it.verb, it.resource, it.name)).collect()
}

#[tokio::test]
async fn each_granted_cluster_takes_one_write_the_list_one_more_and_a_restart_none() {
    let hub = hub().await;
    install_kueue(&hub).await;
    for name in ["c1", "c2", "c3"] {
        cluster(&hub.ocm, name, "s").await;
    }
    ocm::bound(KUEUE, "s").create(&hub.ocm).await.unwrap();
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    listed(&hub.ocm, &["c1", "c2", "c3"]).await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(writes(&hub, &mark).await.len(), 4);
    addons.stop().await;

    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    cluster(&hub.ocm, "c4", "s").await;
    listed(&hub.ocm, &["c1", "c2", "c3", "c4"]).await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(writes(&hub, &mark).await.len(), 2);

    // What Kueue reports changes nothing, an edit by hand is undone, and what Kueue's users set is kept.
    let mark = hub.audit().mark().await.unwrap();
    merge_status(&hub.ocm, &multi_kueue_cluster("c1"), &json!({ "conditions": [] })).await;
    let manual = json!({ "spec": { "quotaManagement": "Manual", "clusters": ["c1"] } });
    merge(&hub.ocm, &multi_kueue_config("multikueue"), &manual).await;
    let other = json!({ "spec": { "clusterSource": { "clusterProfileRef": null, "kubeConfig": { "location": "a" } } } });
    merge(&hub.ocm, &multi_kueue_cluster("c2"), &other).await;
    listed(&hub.ocm, &["c1", "c2", "c3", "c4"]).await;
    addons.measures(IDLE, 0.0).await;
    let mut repaired = writes(&hub, &mark).await;
    repaired.sort();
    assert_eq!(repaired, ["patch multikueueclusters c2", "patch multikueueconfigs multikueue"]);
    let config = get(&hub.ocm, &multi_kueue_config("multikueue")).await.unwrap();
    assert_eq!(config["spec"]["quotaManagement"], "Manual");

    // The grant of one ends, then all of them.
    world::delete(&hub.ocm, &ManagedCluster::named("c3").into()).await;
    listed(&hub.ocm, &["c1", "c2", "c4"]).await;
    world::gone(&hub.ocm, &multi_kueue_cluster("c3")).await;
    world::delete(&hub.ocm, &ocm::bound(KUEUE, "s")).await;
    world::gone(&hub.ocm, &multi_kueue_config("multikueue")).await;
    for name in ["c1", "c2", "c4"] {
        world::gone(&hub.ocm, &multi_kueue_cluster(name)).await;
    }
}

#[tokio::test]
async fn a_hub_without_kueue_is_reported_everything_else_works_and_kueue_is_picked_up_when_it_comes() {
    let hub = hub().await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(KUEUE, "s").create(&hub.ocm).await.unwrap();
    let mark = hub.audit().mark().await.unwrap();
    let addons = start(&hub).await;
    let crd = Object::new(
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        "customresourcedefinitions",
        None,
        "multikueueconfigs.kueue.x-k8s.io",
    );
    told(&hub.ocm, &crd, "KindUnreadable").await;
    eventually("the cluster has its account", SOON, async || {
        get(&hub.ocm, &ocm::managed_service_account("c1", "multikueue")).await.is_some()
    })
    .await;
    addons.measures(IDLE, 0.0).await;
    assert_eq!(writes(&hub, &mark).await, [""; 0]);
    install_kueue(&hub).await;
    listed(&hub.ocm, &["c1"]).await;
    addons.measures("hub_addons_findings{reason=\"KindUnreadable\"}", 0.0).await;
}
