//! `PlacementDecision`s, as far as controllers read them: Open Cluster Management's, and SIG Multicluster's.

use local_hub::LocalHub;
use local_hub::ocm::Object;
use serde_json::{Value, json};

use super::world::install_open_crd;

const OCM: (&str, &str, &str) =
    ("cluster.open-cluster-management.io", "v1beta1", "PlacementDecision");
const SIG: &str = "multicluster.x-k8s.io";

/// Installs both kinds, SIG Multicluster's in this version.
pub async fn install_placement_decisions(hub: &LocalHub, sig_version: &str) {
    for gvk in [OCM, (SIG, sig_version, OCM.2)] {
        install_open_crd(hub, gvk, "Namespaced").await;
    }
}

/// A decision of a Placement, without a status.
pub fn decision(namespace: &str, placement: &str) -> Object {
    Object::new(OCM, "placementdecisions", Some(namespace), &format!("{placement}-1"))
        .label("cluster.open-cluster-management.io/placement", placement)
}

/// A decision of SIG Multicluster's kind for these profiles.
pub fn sig_decision(
    version: &'static str,
    namespace: &str,
    placement: &str,
    profiles: &Value,
) -> Object {
    Object::new(
        (SIG, version, OCM.2),
        "placementdecisions",
        Some(namespace),
        &format!("{placement}-of-another"),
    )
    .label("multicluster.x-k8s.io/placement-key", placement)
    .field("decisions", profiles.clone())
}

/// Its status with these clusters.
pub fn decisions(clusters: &[&str]) -> Value {
    let list: Vec<_> =
        clusters.iter().map(|name| json!({ "clusterName": name, "reason": "" })).collect();
    json!({ "decisions": list })
}
