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
