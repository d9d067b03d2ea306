//! The hub's API server: its address, its trusted roots, and our credentials.

use std::fmt;

use crate::proxy::Proxy;
use crate::server_url::ServerUrl;
use crate::token::Token;

/// How to reach the hub.
pub struct ApiServer {
    pub url: ServerUrl,
    /// The proxy to connect through.
    pub proxy: Option<Proxy>,
    pub trust: Trust,
    /// The name to verify in its certificate, if not the host's.
    pub tls_server_name: Option<String>,
    /// Our bearer token.
    pub token: Option<Token>,
    pub certificate: Option<ClientCertificate>,
}

/// How it is reached, without credentials.
impl fmt::Display for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)?;
        self.proxy.as_ref().map_or(Ok(()), |proxy| write!(f, " through the proxy {proxy}"))
    }
}

/// Our client certificate, in PEM. It has no `Debug`, which would print the key.
pub struct ClientCertificate {
    /// The certificate with its chain.
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
}

/// How to verify the server. System roots are not an option: the image has none, and the hub's certificate does not
/// depend on them.
pub enum Trust {
    /// Certificates issued by one of these roots, in PEM.
    Roots(Vec<u8>),
    /// No verification (`insecure-skip-tls-verify`).
    Anybody,
}
