//! Open Cluster Management's `PlacementDecision`, as far as controllers read it.

use local_hub::LocalHub;
use local_hub::ocm::Object;
use serde_json::{Value, json};

/// Installs the kind.
pub async fn install_placement_decisions(hub: &LocalHub) {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let crd = json!({
        "metadata": { "name": "placementdecisions.cluster.open-cluster-management.io" },
        "spec": {
            "group": "cluster.open-cluster-management.io", "scope": "Namespaced",
            "names": { "kind": "PlacementDecision", "plural": "placementdecisions" },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "status": any } } },
            }],
        },
    });
    hub.install_crd(&serde_json::from_value(crd).unwrap()).await.unwrap();
}

/// A decision of a Placement, without a status.
pub fn decision(namespace: &str, placement: &str) -> Object {
    let gvk = ("cluster.open-cluster-management.io", "v1beta1", "PlacementDecision");
    Object::new(gvk, "placementdecisions", Some(namespace), &format!("{placement}-1"))
        .label("cluster.open-cluster-management.io/placement", placement)
}

/// Its status with these clusters.
pub fn decisions(clusters: &[&str]) -> Value {
    let list: Vec<_> = clusters.iter().map(|name| json!({ "clusterName": name, "reason": "" })).collect();
    json!({ "decisions": list })
}
