//! The response to the caller: an `ExecCredential` with its status.

use serde_json::json;

use crate::exec_info::KIND;
use crate::synced_secret::Credential;

/// Renders the response as one line of JSON, which contains the token.
#[must_use]
pub fn render(version: &'static str, credential: &Credential) -> String {
    let mut status = json!({ "token": credential.token.expose() });
    // client-go and kube-rs request the next token when this one has expired, and never if it has no expiry.
    if let Some(at) = credential.expiry {
        status["expirationTimestamp"] = at.to_string().into();
    }
    json!({ "apiVersion": version, "kind": KIND, "status": status }).to_string()
}
