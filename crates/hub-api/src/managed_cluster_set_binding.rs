//! `ManagedClusterSetBinding`: grants a namespace access to a set of clusters (OCM API,
//! `cluster.open-cluster-management.io/v1beta2`).
//!
//! OCM's registration controller writes the condition `Bound`; this project only reads it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::decode;

/// The condition by which OCM's registration controller reports whether the binding is in effect
/// (`ClusterSetBindingBoundType` of `open-cluster-management.io/api/cluster/v1beta2`).
pub const CONDITION_BOUND: &str = "Bound";

/// The set that is bound to the namespace.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1beta2",
    kind = "ManagedClusterSetBinding",
    namespaced,
    status = "ManagedClusterSetBindingStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ManagedClusterSetBindingSpec {
    /// The name of the set; must also be the name of the binding.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_set: String,
}

decode::default_when_absent!(ManagedClusterSetBindingSpec);

/// Whether the binding is in effect.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterSetBindingStatus {
    /// The state of the binding; `Bound` reports whether it is in effect.
    #[serde(deserialize_with = "decode::conditions", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
