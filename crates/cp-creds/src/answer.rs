//! The response to the caller: an `ExecCredential` with its status.

use serde::Serialize;

use crate::exec_info::KIND;
use crate::synced_secret::Credential;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential<'a> {
    api_version: &'static str,
    kind: &'static str,
    status: Status<'a>,
}

/// client-go and kube-rs request the next token when this one has expired, and never if it has no expiry.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_timestamp: Option<String>,
    token: &'a str,
}

/// Renders the response as one line of JSON, which contains the token.
pub fn render(version: &'static str, credential: &Credential) -> Result<String, serde_json::Error> {
    serde_json::to_string(&ExecCredential {
        api_version: version,
        kind: KIND,
        status: Status {
            expiration_timestamp: credential.expiry.map(|at| at.to_string()),
            token: credential.token.expose(),
        },
    })
}
