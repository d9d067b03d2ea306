//! The application's own ServiceAccount token, which the kubelet projects into its pod and renews: for the user server
//! of hub-addons, which reviews it on the hub.
//!
//! It is returned only if it is for the user server alone: whoever receives a token for the audience of the API server
//! can act as the application on the hub.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::names::excerpt;
use crate::synced_secret::Credential;
use crate::token::{InvalidToken, Token};

/// The default audience of the user server.
pub const DEFAULT_AUDIENCE: &str = "hub-addons";

/// Limit of the file, in bytes. A projected token has about one thousand.
const SIZE_LIMIT: u64 = 64 * 1024;

/// Why the token is not returned.
#[derive(Debug, thiserror::Error)]
pub enum OwnTokenError {
    /// The file cannot be read.
    #[error(
        "cannot read the own token {path}: the pod needs a projected volume with a serviceAccountToken for the audience \
         {audience}"
    )]
    Unreadable {
        path: PathBuf,
        /// The expected audience.
        audience: String,
        source: io::Error,
    },
    /// The content is not a token.
    #[error("the own token {path} is refused: {why}")]
    Invalid { path: PathBuf, why: InvalidToken },
    #[error("the own token {0} is refused: it is larger than 64 KiB")]
    TooLarge(PathBuf),
    /// It is not a JWT with an audience and an expiry.
    #[error(
        "the own token {0} is refused: it has no audience and expiry, so it is not a projected token"
    )]
    NotProjected(PathBuf),
    /// It is for others, or for others too.
    #[error(
        "the own token {path} is refused: its audience is {found}, and must be {audience} alone: set audience of the \
         serviceAccountToken in the projected volume"
    )]
    Audience {
        path: PathBuf,
        /// Its audiences.
        found: String,
        /// The expected one.
        audience: String,
    },
    /// It has expired.
    #[error("the own token {path} expired at {at}: the kubelet has not renewed it")]
    Expired { path: PathBuf, at: Timestamp },
}

/// Reads the token in a file, if it is for this audience alone.
pub fn read(path: &Path, audience: &str, now: Timestamp) -> Result<Credential, OwnTokenError> {
    let path = || path.to_owned();
    let unreadable =
        |source| OwnTokenError::Unreadable { path: path(), audience: audience.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path()).map_err(unreadable)?;
    file.take(SIZE_LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > SIZE_LIMIT {
        return Err(OwnTokenError::TooLarge(path()));
    }
    let token = Token::from_bytes(bytes.trim_ascii().to_vec());
    let token = token.map_err(|why| OwnTokenError::Invalid { path: path(), why })?;
    let (Some(audiences), Some(expiry)) = (token.audiences(), token.expiry()) else {
        return Err(OwnTokenError::NotProjected(path()));
    };
    if audiences != [audience] {
        let found = excerpt(&audiences.join(", "));
        return Err(OwnTokenError::Audience { path: path(), found, audience: audience.to_owned() });
    }
    if expiry <= now {
        return Err(OwnTokenError::Expired { path: path(), at: expiry });
    }
    Ok(Credential { token, expiry: Some(expiry) })
}
