//! SIG Multicluster's `PlacementDecision`, as OCM's placement controller writes it with its gate `SIGPlacementDecision`.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::path::Path;
use std::process::Command;

use crate::support::shared::{Stage, stage};
use crate::support::shown::{condition, profile};
use crate::support::world::{get, gone, merge, profile_of};
use local_hub::Flavour;
use local_hub::ocm::{self, ManagedCluster, Object};
use serde_json::{Value, json};

/// The CRD of the release of cluster-inventory-api.
fn decisions_crd() -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/upstream-crds.sh");
    let output = Command::new(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = String::from_utf8(output.stdout).unwrap();
    let file = "cluster-inventory-api/multicluster.x-k8s.io_placementdecisions.yaml";
    serde_saphyr::from_str(&std::fs::read_to_string(Path::new(folder.trim_end()).join(file)).unwrap())
        .unwrap()
}

/// The profiles to which a decision refers, as an application resolves the references.
async fn resolved(stage: &Stage, decision: &Object) -> Vec<Option<Value>> {
    let decision = get(&stage.ocm, decision).await.unwrap();
    let mut profiles = Vec::new();
    for entry in decision["decisions"].as_array().unwrap() {
        let reference = &entry["clusterProfileRef"];
        let namespace =
            reference["namespace"].as_str().or(decision["metadata"]["namespace"].as_str()).unwrap();
        let name = reference["name"].as_str().unwrap();
        profiles.push(get(&stage.ocm, &profile_of("open-cluster-management", namespace, name)).await);
    }
    profiles
}

#[tokio::test]
async fn a_placement_decision_refers_to_profiles_of_ours_until_their_grant_ends() {
    let stage = stage(Flavour::Map).await;
    stage.shared.hub.install_crd(&serde_json::from_value(decisions_crd()).unwrap()).await.unwrap();
    let clusters = ["placed-a", "placed-b"];
    let members = clusters.map(|name| ManagedCluster::named(name).in_set("placed"));
    stage
        .create([ocm::namespace("placed"), ocm::cluster_set("placed"), ocm::bound("placed", "placed")])
        .await;
    stage.create(members.map(Object::from)).await;

    // The Placement and its decision are in the namespace of the binding, since it selects from bound sets alone.
    let gvk = ("multicluster.x-k8s.io", "v1alpha1", "PlacementDecision");
    let references =
        clusters.map(|name| json!({ "clusterProfileRef": { "name": name, "namespace": "placed" } }));
    let decision = Object::new(gvk, "placementdecisions", Some("placed"), "placed-decision-1")
        .label("multicluster.x-k8s.io/decision-key", "placed")
        .field("schedulerName", json!("open-cluster-management"))
        .field("decisions", json!(references));
    stage.create([decision.clone()]).await;
    for cluster in clusters {
        profile(&stage.ocm, ("placed", cluster), "is healthy or not", |it| {
            !condition(it, "ControlPlaneHealthy").is_null()
        })
        .await;
    }
    for (found, cluster) in resolved(&stage, &decision).await.into_iter().zip(clusters) {
        assert_eq!(found.unwrap()["spec"]["displayName"], cluster);
    }

    // A decision that is not renewed yet leads nowhere.
    let set =
        json!({ "metadata": { "labels": { "cluster.open-cluster-management.io/clusterset": "other" } } });
    merge(&stage.ocm, &ManagedCluster::named("placed-a").into(), &set).await;
    gone(&stage.ocm, &profile_of("open-cluster-management", "placed", "placed-a")).await;
    let found = resolved(&stage, &decision).await;
    assert!(found[0].is_none() && found[1].is_some(), "{found:?}");
}
