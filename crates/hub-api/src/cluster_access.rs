//! `ClusterAccess`: what an application gets on the clusters that are granted to its namespace
//! (`access.open-cluster-management.io/v1alpha1`, this project's own kind).
//!
//! A ManagedClusterSetBinding grants clusters; this object only asks, and only narrows. Its schema
//! ([`CLUSTER_ACCESS`](crate::crds::CLUSTER_ACCESS)) rejects what the controller could not use, except for keys of
//! `matchLabels`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::decode;

/// The plural of the kind.
pub const CLUSTER_ACCESSES: &str = "clusteraccesses";

/// The condition that shows whether the spec is used as a whole.
pub const ACCEPTED: &str = "Accepted";
/// The condition that shows whether the application reaches every selected cluster.
pub const READY: &str = "Ready";
/// The reason of this condition if nothing but what the status lists is missing.
pub const CLUSTERS_NOT_READY: &str = "ClustersNotReady";

/// The most clusters that a status lists as not ready.
pub const MOST_NOT_READY: usize = 20;

/// What the application gets on each granted cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "access.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ClusterAccess",
    plural = "clusteraccesses",
    namespaced,
    status = "ClusterAccessStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAccessSpec {
    /// As whom the application reaches clusters.
    pub identity: IdentityKind,
    /// The ServiceAccounts of the application in this namespace: with the identity Own they are users on the clusters,
    /// with the identity Copy they may read the copied tokens.
    pub service_account_names: Vec<String>,
    /// The account on each cluster, for the identity Copy. Defaults to the name of this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_service_account_name: Option<String>,
    /// How the tokens are issued, for the identity Copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
    /// Narrows the clusters that are granted to this namespace.
    #[serde(default, skip_serializing_if = "Clusters::is_empty")]
    pub clusters: Clusters,
    /// The permissions on each of these clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<Permission>,
    /// The objects by which Kueue finds the clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_kueue: Option<MultiKueue>,
    /// The Secrets by which Argo CD finds the clusters.
    #[serde(rename = "argoCD", skip_serializing_if = "Option::is_none")]
    pub argo_cd: Option<ArgoCd>,
}

/// As whom an application reaches clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum IdentityKind {
    /// As its own ServiceAccount, through the user server: nothing is stored.
    Own,
    /// As an account on each cluster, whose token is copied into this namespace.
    #[default]
    Copy,
}

/// How tokens are issued: `spec.rotation` of a ManagedServiceAccount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rotation {
    /// Whether the token is renewed before it expires. Defaults to true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How long a token is valid: 8640h by default, and at least 10m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validity: Option<String>,
}

/// Which of the granted clusters the application gets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Clusters {
    /// Only ManagedClusters with these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Only clusters that a Placement of this namespace has decided for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_ref: Option<PlacementRef>,
}

impl Clusters {
    fn is_empty(&self) -> bool {
        self.selector.is_none() && self.placement_ref.is_none()
    }
}

/// A Placement of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct PlacementRef {
    /// The name of the Placement, which is also a label value of its decisions.
    pub name: String,
}

/// A ClusterRole that is bound on each cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// The name of the ClusterRole on the cluster.
    pub cluster_role: String,
    /// The namespaces of the cluster in which it is bound; if empty, it is bound in the whole cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
}

/// The objects of Kueue's MultiKueue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct MultiKueue {
    /// The MultiKueueConfigs that list the clusters.
    pub configs: Vec<MultiKueueConfig>,
}

/// A MultiKueueConfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct MultiKueueConfig {
    /// The name of the MultiKueueConfig.
    pub name: String,
    /// It lists only ManagedClusters with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// How Argo CD's cluster Secrets call `cp-creds`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ArgoCd {
    /// The path of `cp-creds` in Argo CD's Pods: `/plugins/cp-creds` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The path of the projected token there: `/var/run/secrets/hub-addons/token` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_token: Option<String>,
}

/// What the controller has observed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterAccessStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: the spec is used as a whole. `Ready`: the application reaches every selected cluster.
    #[serde(deserialize_with = "decode::conditions", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How many clusters there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ClusterCounts>,
    /// Selected clusters that are not ready, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_ready: Vec<NotReady>,
    /// How many more are not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_not_ready: Option<i64>,
}

/// How many clusters there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCounts {
    /// Granted to the namespace.
    pub granted: i64,
    /// Of these, selected by this object.
    pub selected: i64,
    /// Of these, ready.
    pub ready: i64,
    /// Decided for by the Placement without being granted.
    #[serde(default)]
    pub not_granted: i64,
}

/// A selected cluster that is not ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct NotReady {
    /// The name of the cluster.
    pub cluster: String,
    /// What is missing, in one word.
    pub reason: String,
    /// What is missing, and where.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_that_another_writer_has_filled_is_read() {
        let condition = json!({
            "type": READY, "status": "True", "reason": "Odd", "message": "",
            "lastTransitionTime": "9999-12-31T23:59:59Z",
        });
        let status: ClusterAccessStatus =
            serde_json::from_value(json!({ "conditions": [condition] })).unwrap();
        assert_eq!(status.conditions[0].type_, READY);
    }
}
