//! The checks of SIG Multicluster's conformance suite for one inventory, item by item. The suite lists profiles through
//! v1alpha2 and writes nothing; an inventory is a namespace. Optional items are checked here, too.

use crate::support::credentials::MANAGER;
use crate::support::shown::{condition, profile};
use crate::support::{Hub, rights, world};
use hub_api::cluster_profile::ProfileVersion;
use hub_api::labels::{CLUSTER_MANAGER, MEMBER_ID};
use kube::api::{Api, DynamicObject, ListParams};
use local_hub::ocm::{self, ManagedCluster};
use local_hub::{Flavour, LocalHub};
use serde_json::Value;

/// The profiles of a namespace, as v1alpha2 shows them.
async fn listed(hub: &Hub, namespace: &str) -> Vec<Value> {
    let resource = ProfileVersion::V1alpha2.resource();
    let api: Api<DynamicObject> = Api::namespaced_with(hub.ocm.clone(), namespace, &resource);
    let list = api.list(&ListParams::default()).await.unwrap();
    list.into_iter().map(|profile| serde_json::to_value(profile).unwrap()).collect()
}

#[tokio::test]
async fn an_inventory_passes_each_item_of_the_conformance_suite() {
    let builder = LocalHub::builder().without_controller_manager().flavour(Flavour::V1alpha2);
    let hub = Hub::start(builder, rights::projector()).await;
    let _projector = hub.projector(&[]).await;
    let cluster = |name: &str| ManagedCluster::named(name).in_set("inventory");
    let registered =
        [cluster("first"), cluster("second"), cluster("third").label(MEMBER_ID, "member")];
    world::create(&hub.ocm, ["inventory", "another"].map(ocm::namespace)).await;
    world::create(&hub.ocm, [ocm::cluster_set("inventory")]).await;
    world::create(&hub.ocm, registered.map(Into::into)).await;
    let group = hub.ocm.list_api_group_resources("multicluster.x-k8s.io/v1alpha2").await.unwrap();
    let resource =
        group.resources.iter().find(|resource| resource.name == "clusterprofiles").unwrap();
    assert!(resource.namespaced);
    assert_eq!(resource.categories.as_deref(), Some(&["multicluster".to_owned()][..]));
    // The same clusters in another namespace are another inventory, with the same IDs.
    for namespace in ["inventory", "another"] {
        world::create(&hub.ocm, [ocm::bound(namespace, "inventory")]).await;
        for name in ["first", "second", "third"] {
            let has_status = |profile: &Value| profile["status"].is_object();
            profile(&hub.ocm, (namespace, name), "has a status", has_status).await;
        }
        let profiles = listed(&hub, namespace).await;
        let all = |pointer: &str| {
            profiles
                .iter()
                .map(|it| it.pointer(pointer).unwrap().as_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(all("/metadata/name"), ["first", "second", "third"], "each is represented once");
        assert_eq!(all("/apiVersion"), ["multicluster.x-k8s.io/v1alpha2"; 3]);
        assert_eq!(all("/spec/clusterManager/name"), [MANAGER; 3]);
        assert_eq!(all("/status/version/kubernetes"), ["v1.36.3"; 3]);
        for (profile, id) in profiles.iter().zip(["first", "second", "member"]) {
            let labels = &profile["metadata"]["labels"];
            assert_eq!(
                (&labels[CLUSTER_MANAGER], &labels[MEMBER_ID]),
                (&MANAGER.into(), &id.into())
            );
            for kind in ["ControlPlaneHealthy", "Joined"] {
                assert!(condition(profile, kind)["status"].is_string(), "{kind}: {profile:#}");
            }
        }
    }
}
