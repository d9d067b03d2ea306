//! `ManagedClusterAddOn`: an addon on one cluster (OCM addon API, `addon.open-cluster-management.io/v1alpha1`).
//!
//! Only its existence is read, so watches request metadata only.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decode;

/// How the addon is configured on the cluster; not read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
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
#[serde(default, remote = "Self")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ManagedClusterAddOnSpec {}

decode::default_when_absent!(ManagedClusterAddOnSpec);

/// What the addon reports; not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ManagedClusterAddOnStatus {}
