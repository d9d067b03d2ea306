//! `ClusterAccess`: what an application gets on the clusters that are granted to its namespace
//! (`access.open-cluster-management.io/v1alpha1`, this project's own kind).
//!
//! A ManagedClusterSetBinding grants clusters; this object only asks, and only narrows. Its schema rejects what the
//! controller could not use, except for keys of `matchLabels`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decode;
use crate::schema::{self, rule};

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

/// The rule that a text, or each of a list, is a DNS label or subdomain.
macro_rules! dns {
    (label $text:literal) => {
        concat!($text, ".matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
    };
    (subdomain $text:literal) => {
        concat!($text, ".matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
    };
    ($kind:ident in list) => {
        concat!("self.all(name, ", dns!($kind "name"), ")")
    };
}

/// What the application gets on each granted cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "access.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ClusterAccess",
    plural = "clusteraccesses",
    shortname = "cla",
    category = "multicluster",
    namespaced,
    status = "ClusterAccessStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The access of an application to the clusters that are granted to its namespace."
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule("self.identity == oldSelf.identity", "The identity cannot change: create another ClusterAccess."),
    rule(
        "(has(self.managedServiceAccountName) ? self.managedServiceAccountName : '') == \
         (has(oldSelf.managedServiceAccountName) ? oldSelf.managedServiceAccountName : '')",
        "The managedServiceAccountName cannot change: create another ClusterAccess.",
    ),
    rule("has(self.argoCD) || !has(oldSelf.argoCD)", "The field argoCD cannot be removed, since its Secrets end with the object: delete the ClusterAccess."),
    rule("self.identity == 'Copy' || !has(self.managedServiceAccountName)", "Only an application with the identity Copy has a managedServiceAccountName."),
    rule("self.identity == 'Copy' || !has(self.rotation)", "Only an application with the identity Copy has a token to rotate."),
    rule("self.identity == 'Own' || !has(self.argoCD) || !has(self.argoCD.ownToken)", "Only an application with the identity Own has an ownToken."),
]))]
pub struct ClusterAccessSpec {
    /// As whom the application reaches clusters.
    pub identity: IdentityKind,
    /// The ServiceAccounts of the application in this namespace: with the identity Own they are users on the clusters,
    /// with the identity Copy they may read the copied tokens.
    #[schemars(length(min = 1, max = 16), inner(length(max = 253)))]
    #[schemars(extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [
        rule(dns!(subdomain in list), "Each of serviceAccountNames must be the name of a ServiceAccount of this namespace."),
    ]))]
    pub service_account_names: Vec<String>,
    /// The account on each cluster, for the identity Copy. Defaults to the name of this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = [
        rule(dns!(subdomain "self"), "The managedServiceAccountName must consist of lower-case letters, digits, '-' and '.'."),
        // The name of a copy has at most 253, and begins with that of the cluster, of at most 63, and '-'.
        rule("self.size() <= 189", "The managedServiceAccountName has at most 189 characters."),
    ]))]
    pub managed_service_account_name: Option<String>,
    /// How the tokens are issued, for the identity Copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
    /// Narrows the clusters that are granted to this namespace.
    #[serde(default, skip_serializing_if = "Clusters::is_empty")]
    pub clusters: Clusters,
    /// The permissions on each of these clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["clusterRole"]))]
    pub permissions: Vec<Permission>,
    /// The objects by which Kueue finds the clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_kueue: Option<MultiKueue>,
    /// The Secrets by which Argo CD finds the clusters.
    #[serde(rename = "argoCD", skip_serializing_if = "Option::is_none")]
    pub argo_cd: Option<ArgoCd>,
}

/// As whom an application reaches clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum IdentityKind {
    /// As its own ServiceAccount, through the user server: nothing is stored.
    Own,
    /// As an account on each cluster, whose token is copied into this namespace.
    #[default]
    Copy,
}

/// How tokens are issued: `spec.rotation` of a ManagedServiceAccount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rotation {
    /// Whether the token is renewed before it expires. Defaults to true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How long a token is valid: 8640h by default, and at least 10m.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20), extend("x-kubernetes-validations" = [rule(
        // The first two keep `duration` from failing, whose error is no sentence.
        "self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$') && !self.matches('[0-9]{7}') \
         && duration(self) >= duration('10m') && duration(self) <= duration('87600h')",
        "The validity must be a duration such as 24h, of at least 10m and at most 87600h.",
    )]))]
    pub validity: Option<String>,
}

/// Which of the granted clusters the application gets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Clusters {
    /// Only ManagedClusters with these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::valid_label_selector")]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct PlacementRef {
    /// The name of the Placement, which is also a label value of its decisions.
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = [
        rule(dns!(subdomain "self"), "The placementRef must have the name of a Placement of this namespace."),
    ]))]
    pub name: String,
}

/// A ClusterRole that is bound on each cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// The name of the ClusterRole on the cluster.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = [rule(
        "self.matches('^[^/%]+$') && self != '.' && self != '..'",
        "The name of a ClusterRole has neither '/' nor '%', and is neither '.' nor '..'.",
    )]))]
    pub cluster_role: String,
    /// The namespaces of the cluster in which it is bound; if empty, it is bound in the whole cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    #[schemars(extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [
        rule(dns!(label in list), "Each of namespaces must be the name of a namespace of the cluster."),
    ]))]
    pub namespaces: Vec<String>,
}

/// The objects of Kueue's MultiKueue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct MultiKueue {
    /// The MultiKueueConfigs that list the clusters.
    #[schemars(length(min = 1, max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub configs: Vec<MultiKueueConfig>,
}

/// A MultiKueueConfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct MultiKueueConfig {
    /// The name of the MultiKueueConfig.
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = [
        rule(dns!(subdomain "self"), "The name must be that of a MultiKueueConfig."),
    ]))]
    pub name: String,
    /// It lists only ManagedClusters with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::valid_label_selector")]
    pub selector: Option<LabelSelector>,
}

/// How Argo CD's cluster Secrets call `cp-creds`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ArgoCd {
    /// The path of `cp-creds` in Argo CD's Pods: `/plugins/cp-creds` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-validations" = [
        rule("self.startsWith('/')", "The path of the command must be absolute."),
    ]))]
    pub command: Option<String>,
    /// The path of the projected token there: `/var/run/secrets/hub-addons/token` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-validations" = [
        rule("self.startsWith('/')", "The path of the token must be absolute."),
    ]))]
    pub own_token: Option<String>,
}

/// What the controller has observed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterAccessStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: the spec is used as a whole. `Ready`: the application reaches every selected cluster.
    #[serde(deserialize_with = "decode::conditions", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        schema_with = "schema::conditions",
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// How many clusters there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ClusterCounts>,
    /// Selected clusters that are not ready, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 20),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"])
    )]
    pub not_ready: Vec<NotReady>,
    /// How many more are not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_not_ready: Option<i64>,
}

/// How many clusters there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
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
