//! The hub's API server: its address, its trusted roots, and our credentials.

use crate::server_url::ServerUrl;
use crate::token::Token;

/// How to reach the hub.
pub struct ApiServer {
    pub url: ServerUrl,
    pub trust: Trust,
    /// The name to verify in its certificate, if not the host's.
    pub tls_server_name: Option<String>,
    /// Our bearer token.
    pub token: Option<Token>,
    /// Our client certificate with its chain, and its key, in PEM.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
}

/// How to verify the server. System roots are not an option: the image has none, and the hub's certificate does not
/// depend on them.
pub enum Trust {
    /// Certificates issued by one of these roots, in PEM.
    Roots(Vec<u8>),
    /// No verification (`insecure-skip-tls-verify`).
    Anybody,
}
