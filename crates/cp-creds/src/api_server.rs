//! The hub's API server: where it is, whom we trust to be it, and who we are to it.

use crate::server_url::ServerUrl;
use crate::token::Token;

/// How to reach the hub.
pub struct ApiServer {
    /// Where it is.
    pub url: ServerUrl,
    /// Whom we trust to be it.
    pub trust: Trust,
    /// The name that its certificate must have, if not the host's.
    pub tls_server_name: Option<String>,
    /// Who we are: a bearer token.
    pub token: Option<Token>,
    /// Who we are: a certificate.
    pub certificate: Option<ClientCertificate>,
}

/// Whom we trust. There is no third way: the image has no system roots, and a hub's certificate has no business with
/// them.
pub enum Trust {
    /// Whoever has a certificate under one of these, in PEM.
    Roots(Vec<u8>),
    /// Whoever answers, because the kubeconfig says so.
    Anybody,
}

/// A client certificate, in PEM.
pub struct ClientCertificate {
    /// The certificate and what it is issued by.
    pub chain: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
}
