//! `ManagedClusterSet`: a group of managed clusters (OCM API, `cluster.open-cluster-management.io/v1beta2`).
//!
//! Read only. The types declare the fields that the controllers read; the CRD preserves all other fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::decode;

/// The clusters that belong to the set.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1beta2",
    kind = "ManagedClusterSet",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ManagedClusterSetSpec {
    /// Selects the clusters of the set.
    pub cluster_selector: ManagedClusterSelector,
}

decode::default_when_absent!(ManagedClusterSetSpec);

/// Selects clusters by the label that names their one exclusive set, or by a label selector.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterSelector {
    /// `ExclusiveClusterSetLabel` (also when empty) or `LabelSelector`.
    // A string, not an enum: a type that a later OCM release adds is reported, and must not stall the watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector_type: Option<String>,
    /// Selects by labels, for the type `LabelSelector`: absent selects no cluster, empty selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector_of(spec: &Value) -> ManagedClusterSelector {
        let object = json!({ "metadata": {}, "spec": { "clusterSelector": spec } });
        serde_json::from_value::<ManagedClusterSet>(object).unwrap().spec.cluster_selector
    }

    #[test]
    fn a_selector_type_that_we_do_not_know_is_kept() {
        let selector = selector_of(&json!({ "selectorType": "ClusterClaims", "claims": ["a"] }));
        assert_eq!(selector.selector_type.as_deref(), Some("ClusterClaims"));
    }

    /// An absent label selector selects no cluster, an empty one selects all.
    #[test]
    fn an_absent_label_selector_is_not_an_empty_one() {
        assert_eq!(selector_of(&json!({})).label_selector, None);
        assert_eq!(
            selector_of(&json!({ "labelSelector": {} })).label_selector,
            Some(LabelSelector::default())
        );
    }
}
