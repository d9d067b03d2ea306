//! `PlacementDecision` of Open Cluster Management and of SIG Multicluster, as far as controllers read them.

use local_hub::LocalHub;
use local_hub::ocm::Object;
use serde_json::{Value, json};

const OCM: (&str, &str, &str) = ("cluster.open-cluster-management.io", "v1beta1", "PlacementDecision");
const SIG: (&str, &str, &str) = ("multicluster.x-k8s.io", "v1alpha1", "PlacementDecision");

/// Installs both kinds.
pub async fn install_placement_decisions(hub: &LocalHub) {
    for (group, version, kind) in [OCM, SIG] {
        let approved = json!({ "api-approved.kubernetes.io": "unapproved, for a test" });
        let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let has_status = (group == OCM.0).then(|| json!({ "status": {} }));
        let crd = json!({
            "metadata": { "name": format!("placementdecisions.{group}"), "annotations": approved },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "kind": kind, "plural": "placementdecisions" },
                "versions": [{
                    "name": version, "served": true, "storage": true, "subresources": has_status,
                    "schema": { "openAPIV3Schema": any },
                }],
            },
        });
        hub.install_crd(&serde_json::from_value(crd).unwrap()).await.unwrap();
    }
}

/// A decision of a Placement, without a status.
pub fn decision(namespace: &str, placement: &str) -> Object {
    Object::new(OCM, "placementdecisions", Some(namespace), &format!("{placement}-1"))
        .label("cluster.open-cluster-management.io/placement", placement)
}

/// Its status with these clusters.
pub fn decisions(clusters: &[&str]) -> Value {
    let list: Vec<_> = clusters.iter().map(|name| json!({ "clusterName": name, "reason": "" })).collect();
    json!({ "decisions": list })
}

/// A decision of SIG Multicluster's kind, with references to profiles.
pub fn sig_decision(namespace: &str, placement: &str, profiles: &Value) -> Object {
    let decisions = profiles.as_array().into_iter().flatten();
    let decisions: Value = decisions.map(|profile| json!({ "clusterProfileRef": profile })).collect();
    Object::new(SIG, "placementdecisions", Some(namespace), &format!("{placement}-of-another"))
        .label("multicluster.x-k8s.io/placement-key", placement)
        .field("decisions", decisions)
}
