//! The checks of SIG Multicluster's conformance suite for one inventory, item by item. The suite lists profiles through
//! v1alpha2 and writes nothing; an inventory is a namespace. Optional items are checked here, too.

use std::collections::BTreeSet;

use crate::support::shared::{Stage, stage};
use crate::support::shown::{condition, profile};
use hub_api::cluster_profile::ProfileVersion;
use hub_api::labels::{CLUSTER_MANAGER, MEMBER_ID};
use kube::api::{Api, DynamicObject, ListParams};
use local_hub::Flavour;
use local_hub::ocm::{self, ManagedCluster};
use serde_json::{Value, json};

/// The clusters of an inventory; the last sets its own member ID.
const CLUSTERS: [&str; 3] = ["first", "second", "third"];

/// The profiles of an inventory with this name and these registered clusters.
async fn inventory(name: &str) -> (Stage, Vec<Value>) {
    let stage = stage(Flavour::V1alpha2).await;
    let cluster = |cluster: &str| ManagedCluster::named(&format!("{name}-{cluster}")).in_set(name);
    let [first, second, third] = CLUSTERS.map(cluster);
    let third = third.label(MEMBER_ID, &format!("{name}-member"));
    stage
        .create([
            ocm::namespace(name),
            ocm::cluster_set(name),
            first.into(),
            second.into(),
            third.into(),
            ocm::bound(name, name),
        ])
        .await;
    for cluster in CLUSTERS {
        let cluster = format!("{name}-{cluster}");
        profile(&stage.ocm, (name, &cluster), "has a status", |profile| profile["status"].is_object()).await;
    }
    let profiles = listed(&stage, name).await;
    (stage, profiles)
}

/// The profiles of a namespace, as v1alpha2 shows them.
async fn listed(stage: &Stage, namespace: &str) -> Vec<Value> {
    let resource = ProfileVersion::V1alpha2.resource();
    let api: Api<DynamicObject> = Api::namespaced_with(stage.ocm.clone(), namespace, &resource);
    let list = api.list(&ListParams::default()).await.unwrap();
    list.into_iter().map(|profile| serde_json::to_value(profile).unwrap()).collect()
}

#[tokio::test]
async fn the_resource_is_served_in_v1alpha2_and_namespaced() {
    let stage = stage(Flavour::V1alpha2).await;
    let known = stage.ocm.list_api_group_resources("multicluster.x-k8s.io/v1alpha2").await.unwrap();
    let resource = known.resources.iter().find(|resource| resource.name == "clusterprofiles").unwrap();
    assert!(resource.namespaced);
    assert_eq!(resource.categories.as_deref(), Some(&["multicluster".to_owned()][..]));
}

#[tokio::test]
async fn every_registered_cluster_is_represented_once() {
    let (_, profiles) = inventory("represented").await;
    let names: Vec<_> =
        profiles.iter().map(|profile| profile["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["represented-first", "represented-second", "represented-third"]);
    assert!(profiles.iter().all(|profile| profile["apiVersion"] == "multicluster.x-k8s.io/v1alpha2"));
}

#[tokio::test]
async fn the_manager_label_is_on_every_profile_and_equals_the_manager_in_the_spec() {
    for profile in inventory("managed").await.1 {
        let manager = &profile["spec"]["clusterManager"]["name"];
        assert_eq!(manager, "open-cluster-management");
        assert_eq!(&profile["metadata"]["labels"][CLUSTER_MANAGER], manager);
    }
}

#[tokio::test]
async fn every_profile_has_a_member_id_of_its_own() {
    let ids = |profiles: &[Value]| -> BTreeSet<String> {
        let id = |profile: &Value| profile["metadata"]["labels"][MEMBER_ID].as_str().unwrap().to_owned();
        profiles.iter().map(id).collect()
    };
    let (stage, profiles) = inventory("members").await;
    let expected = ["members-first", "members-member", "members-second"].map(str::to_owned);
    assert_eq!(ids(&profiles), BTreeSet::from(expected));

    // The same clusters in another namespace are another inventory, with the same IDs.
    stage.create([ocm::namespace("members-too"), ocm::bound("members-too", "members")]).await;
    for cluster in CLUSTERS {
        let key = ("members-too", &*format!("members-{cluster}"));
        profile(&stage.ocm, key, "is there", |_| true).await;
    }
    assert_eq!(ids(&listed(&stage, "members-too").await), ids(&profiles));
}

#[tokio::test]
async fn every_profile_has_both_conditions_and_its_clusters_version() {
    for profile in inventory("reported").await.1 {
        for kind in ["ControlPlaneHealthy", "Joined"] {
            assert!(condition(&profile, kind)["status"].is_string(), "{kind}: {profile:#}");
        }
        assert_eq!(profile["status"]["version"], json!({ "kubernetes": "v1.36.3" }));
    }
}
