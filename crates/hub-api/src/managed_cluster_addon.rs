//! `ManagedClusterAddOn`: an addon on one cluster (OCM addon API, `addon.open-cluster-management.io/v1alpha1`).
//!
//! Of cluster-proxy only its existence is read, so that watch requests metadata only. v1beta1 has the same status, and
//! an annotation in place of the namespace in the spec.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decode;

/// How the addon is configured on the cluster.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema,
)]
#[kube(
    group = "addon.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ManagedClusterAddOn",
    plural = "managedclusteraddons",
    namespaced,
    status = "ManagedClusterAddOnStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Installs an addon on the cluster whose namespace it is in.",
    shortname = "mca",
    shortname = "mcas",
    printcolumn = r#"{
        "name":"Available","type":"string","jsonPath":".status.conditions[?(@.type==\"Available\")].status"
    }"#,
    printcolumn = r#"{
        "name":"Degraded","type":"string","jsonPath":".status.conditions[?(@.type==\"Degraded\")].status"
    }"#,
    printcolumn = r#"{
        "name":"Progressing","type":"string","jsonPath":".status.conditions[?(@.type==\"Progressing\")].status"
    }"#
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ManagedClusterAddOnSpec {
    /// The namespace in which the agent is to be installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "default" = "open-cluster-management-agent-addon",
        "maxLength" = 63,
        "pattern" = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
    ))]
    pub install_namespace: Option<String>,
}

decode::default_when_absent!(ManagedClusterAddOnSpec);

/// What the addon reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
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
