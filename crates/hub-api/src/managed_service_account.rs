//! `ManagedServiceAccount`: an account on one managed cluster whose token an agent reports to the hub (OCM API,
//! `authentication.open-cluster-management.io/v1beta1`).
//!
//! Its namespace has the name of its cluster. The agent writes the token into a Secret in that namespace with the name
//! of the account.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decode;

/// How the token is issued; not read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "authentication.open-cluster-management.io",
    version = "v1beta1",
    kind = "ManagedServiceAccount",
    namespaced,
    status = "ManagedServiceAccountStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(default, remote = "Self")]
pub struct ManagedServiceAccountSpec {}

decode::default_when_absent!(ManagedServiceAccountSpec);

/// The observed state of the account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedServiceAccountStatus {
    /// The state of the account, from several writers. It is kept as JSON, since a writer of one entry writes the whole
    /// list and must preserve the others' entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Value>,
    /// The Secret with the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<TokenSecretReference>,
}

/// A Secret in the namespace of the account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TokenSecretReference {
    /// The Secret's name.
    pub name: String,
}
