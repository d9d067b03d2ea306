//! The application's own ServiceAccount token, which the kubelet projects into its pod and renews: for the user server
//! of hub-addons, which reviews it on the hub.
//!
//! It is returned only if it is for the user server alone: whoever receives a token for the audience of the API server
//! can act as the application on the hub.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;

use crate::names::excerpt;
use crate::synced_secret::Credential;
use crate::token::Token;

/// The default audience of the user server.
pub const DEFAULT_AUDIENCE: &str = "hub-addons";

/// Limit of the file, in bytes. A projected token has about one thousand.
const SIZE_LIMIT: u64 = 64 * 1024;

/// Reads the token in a file, if it is for this audience alone.
pub fn read(path: &Path, audience: &str, now: Timestamp) -> Result<Credential> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(SIZE_LIMIT + 1).read_to_end(&mut bytes))
        .with_context(|| {
            format!(
                "cannot read the own token {}: the pod needs a projected volume with a serviceAccountToken for the \
                 audience {audience}",
                path.display()
            )
        })?;
    let refused = || format!("the own token {} is refused", path.display());
    ensure!(bytes.len() as u64 <= SIZE_LIMIT, "{}: it is larger than 64 KiB", refused());
    let token = Token::from_bytes(bytes.trim_ascii().to_vec()).with_context(refused)?;
    let (Some(audiences), Some(expiry)) = (token.audiences(), token.expiry()) else {
        bail!("{}: it has no audience and expiry, so it is not a projected token", refused());
    };
    ensure!(
        audiences == [audience],
        "{}: its audience is {}, and must be {audience} alone: set audience of the serviceAccountToken in the projected \
         volume",
        refused(),
        excerpt(&audiences.join(", "))
    );
    ensure!(
        expiry > now,
        "the own token {} expired at {expiry}: the kubelet has not renewed it",
        path.display()
    );
    Ok(Credential { token, expiry: Some(expiry) })
}
