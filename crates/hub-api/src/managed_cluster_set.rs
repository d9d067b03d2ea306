//! `ManagedClusterSet`: a group of managed clusters (OCM API, `cluster.open-cluster-management.io/v1beta2`).
//!
//! Read only. The types declare the fields that the controllers read; the CRD preserves all other fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{decode, schema};

/// The clusters that belong to the set.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1beta2",
    kind = "ManagedClusterSet",
    status = "ManagedClusterSetStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A group of managed clusters, which a ManagedClusterSetBinding opens to a namespace.",
    shortname = "mclset",
    shortname = "mclsets",
    printcolumn = r#"{
        "name":"Empty","type":"string","jsonPath":".status.conditions[?(@.type==\"ClusterSetEmpty\")].status"
    }"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[schemars(extend(
    "default" = json!({ "clusterSelector": { "selectorType": "ExclusiveClusterSetLabel" } }),
    "x-kubernetes-preserve-unknown-fields" = true,
))]
pub struct ManagedClusterSetSpec {
    /// Selects the clusters of the set.
    #[schemars(extend("default" = json!({ "selectorType": "ExclusiveClusterSetLabel" })))]
    pub cluster_selector: ManagedClusterSelector,
}

decode::default_when_absent!(ManagedClusterSetSpec);

/// Selects clusters by the label that names their one exclusive set, or by a label selector.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterSelector {
    /// `ExclusiveClusterSetLabel` (also when empty) or `LabelSelector`.
    // A string, not an enum: a type that a later OCM release adds is reported, and must not stall the watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "default" = "ExclusiveClusterSetLabel",
        "enum" = ["ExclusiveClusterSetLabel", "LabelSelector"],
    ))]
    pub selector_type: Option<String>,
    /// Selects by labels, for the type `LabelSelector`: absent selects no cluster, empty selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
}

/// What OCM observed about the set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterSetStatus {
    /// The state of the set.
    #[serde(deserialize_with = "decode::conditions", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

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
