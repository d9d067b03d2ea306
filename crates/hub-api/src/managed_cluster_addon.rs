//! `ManagedClusterAddOn`: an addon on one cluster (OCM addon API, `addon.open-cluster-management.io/v1alpha1`).
//!
//! Of cluster-proxy only its existence is read, so that watch requests metadata only. v1beta1 has the same status, and
//! an annotation in place of the namespace in the spec.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::decode;

/// How the addon is configured on the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "addon.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ManagedClusterAddOn",
    plural = "managedclusteraddons",
    namespaced,
    status = "ManagedClusterAddOnStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ManagedClusterAddOnSpec {
    /// The namespace in which the agent is to be installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_namespace: Option<String>,
}

decode::default_when_absent!(ManagedClusterAddOnSpec);

/// What the addon reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ManagedClusterAddOnStatus {
    /// The namespace in which the agent is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl ManagedClusterAddOn {
    /// The namespace of the agent on the cluster, if the addon shows it.
    #[must_use]
    pub fn agent_namespace(&self) -> Option<&str> {
        let reported = self.status.as_ref().and_then(|status| status.namespace.as_deref());
        let namespaces = [reported, self.spec.install_namespace.as_deref()];
        namespaces.into_iter().flatten().find(|namespace| !namespace.is_empty())
    }
}
