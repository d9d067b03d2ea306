//! `ManagedCluster`: a cluster that registered with the hub (OCM API,
//! `cluster.open-cluster-management.io/v1`).
//!
//! Read only. The types declare the fields that the controllers read; the CRD preserves all other fields.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::cluster_profile::ClusterVersion;
use crate::decode;

/// The condition by which OCM's registration controller reports whether the cluster's agent renews its lease
/// (`ManagedClusterConditionAvailable` of `open-cluster-management.io/api/cluster/v1`).
pub const CONDITION_AVAILABLE: &str = "ManagedClusterConditionAvailable";

/// The condition by which the agent reports that the cluster has joined the hub (`ManagedClusterConditionJoined` of the
/// same package).
pub const CONDITION_JOINED: &str = "ManagedClusterJoined";

/// What the hub's administrator and the agent declare about a managed cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1",
    kind = "ManagedCluster",
    status = "ManagedClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ManagedClusterSpec {
    /// Whether the hub's administrator accepts the cluster. OCM neither requires nor defaults the field: an absent one is
    /// false, as in its Go type.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hub_accepts_client: bool,
    /// The API servers of the managed cluster, as its agent reports them; empty if the hub cannot reach it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_cluster_client_configs: Vec<ClientConfig>,
}

decode::default_when_absent!(ManagedClusterSpec);

/// One API server of the managed cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    /// The URL of the API server.
    pub url: String,
    /// The CA certificates (PEM) that sign the API server's certificate; if absent, the system's roots apply.
    #[serde(default, deserialize_with = "decode::bytes", skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<ByteString>,
}

/// What the hub and the agent observed of a managed cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterStatus {
    /// Facts that the managed cluster claims about itself, such as its id and platform.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_claims: Vec<ManagedClusterClaim>,
    /// The state of the cluster; `ManagedClusterJoined` and `ManagedClusterConditionAvailable` among others.
    #[serde(deserialize_with = "decode::conditions", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The versions that the managed cluster reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<ClusterVersion>,
}

/// A fact that a managed cluster claims about itself.
// OCM requires neither field and allows neither to be empty: an absent field reads as the empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterClaim {
    /// The name of the claim, such as id.k8s.io.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The value of the claim.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_without_a_spec_has_the_default_one() {
        let absent: ManagedCluster = serde_json::from_value(json!({ "metadata": {} })).unwrap();
        let null: ManagedCluster =
            serde_json::from_value(json!({ "metadata": {}, "spec": null })).unwrap();
        assert_eq!(absent, ManagedCluster::default());
        assert_eq!(null, ManagedCluster::default());
    }
}
