//! Kueue's objects on a hub without Kueue.

use local_hub::ocm;
use serde_json::{Value, json};

use crate::support::kueue::{install_kueue, multi_kueue_cluster};
use crate::support::world::{self, told};
use crate::support::{Addons, Hub, USER, rights};
use crate::{GATE, cluster};

const IDLE: &str = "hub_addons_queue_depth{controller=\"consumer-access\"}";
const KUEUE: &str = "kueue-system";

#[tokio::test]
async fn a_hub_without_kueue_is_reported_everything_else_works_and_kueue_is_picked_up_when_it_comes()
 {
    let rules = [rights::consumer_access(&["multikueue"]), rights::kueue()].concat();
    let hub = Hub::of(rules).await;
    world::create(&hub.ocm, [ocm::namespace(KUEUE), ocm::cluster_set("s")]).await;
    cluster(&hub.ocm, "c1", "s").await;
    ocm::bound(KUEUE, "s").create(&hub.ocm).await.unwrap();
    let mark = hub.audit().mark().await.unwrap();
    let kueue = json!({ "configs": [{ "name": "multikueue" }] });
    let spec = json!({ "identity": "Copy", "serviceAccountNames": ["kueue"], "multiKueue": kueue });
    world::create(&hub.ocm, [ocm::cluster_access(KUEUE, "multikueue", &spec)]).await;
    let addons = Addons::start(&hub, &[GATE]).await;
    let crd = world::object("CustomResourceDefinition", None, "multikueueconfigs.kueue.x-k8s.io");
    told(&hub.ocm, &crd, "KindUnreadable").await;
    ready(&hub, "Unavailable").await;
    world::exists(&hub.ocm, &ocm::managed_service_account("c1", "multikueue")).await;
    addons.measures(IDLE, 0.0).await;
    let requests = hub.audit().since(&mark).await.unwrap().of_user(USER).writes();
    assert_eq!(
        requests.count(|request| request.resource.starts_with("multikueue")),
        0,
        "{requests}"
    );
    install_kueue(&hub).await;
    world::exists(&hub.ocm, &multi_kueue_cluster("c1")).await;
    addons.measures("hub_addons_findings{reason=\"KindUnreadable\"}", 0.0).await;
    // Its account has no token.
    ready(&hub, "ClustersNotReady").await;
}

/// Waits until the condition Ready of the object has this reason.
async fn ready(hub: &Hub, reason: &str) {
    let object = ocm::cluster_access(KUEUE, "multikueue", &json!({}));
    let says = |it: &Value| it["status"]["conditions"][1]["reason"] == reason;
    world::becomes(&hub.ocm, &object, reason, says).await;
}
