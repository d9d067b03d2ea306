//! `ManifestWork`: objects that an agent applies on one managed cluster (OCM work API,
//! `work.open-cluster-management.io/v1`).
//!
//! Its namespace has the name of its cluster. The manifests can contain anything, Secrets included, so a controller
//! should watch only the works that it writes, by name.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decode;

/// The manifests, and how they are applied; kept as JSON by those who write them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "work.open-cluster-management.io",
    version = "v1",
    kind = "ManifestWork",
    namespaced,
    status = "ManifestWorkStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(default, remote = "Self")]
pub struct ManifestWorkSpec {}

decode::default_when_absent!(ManifestWorkSpec);

/// What the agent reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManifestWorkStatus {
    /// Whether the manifests are applied (`Applied`) and exist (`Available`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Value>,
}
