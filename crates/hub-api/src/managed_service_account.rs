//! `ManagedServiceAccount`: an account on one managed cluster whose token an agent reports to the hub (OCM API,
//! `authentication.open-cluster-management.io/v1beta1`).
//!
//! Its namespace is its cluster's name. The agent writes the token into a Secret of the account's own name, in
//! that namespace.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{decode, schema};

/// How the token is made. Nothing of it is read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "authentication.open-cluster-management.io",
    version = "v1beta1",
    kind = "ManagedServiceAccount",
    namespaced,
    status = "ManagedServiceAccountStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "An account on the managed cluster whose namespace it is in."
)]
#[serde(default, remote = "Self")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ManagedServiceAccountSpec {}

decode::default_when_absent!(ManagedServiceAccountSpec);

/// What is known of the account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ManagedServiceAccountStatus {
    /// The state of the account, from several writers. As JSON: who writes one entry writes the list, and the
    /// others' entries have to stay as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Value>,
    /// The Secret that holds the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<TokenSecretReference>,
}

/// A Secret in the namespace of the account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct TokenSecretReference {
    /// The Secret's name.
    pub name: String,
}
