//! Settings of the user server.

use hub_api::names::{AccountName, Namespace};
use hub_core::protected::ProtectedNamespaces;

use crate::metrics::UserServerMetrics;

#[derive(Debug, Clone)]
pub struct UserServerSettings {
    /// The audience of the tokens that it accepts.
    pub audience: String,
    /// The name of its ManagedServiceAccount on each cluster.
    pub account: AccountName,
    /// The namespaces from which no application reaches a cluster.
    pub protected: ProtectedNamespaces,
    /// How many requests of one namespace may be open at once.
    pub requests_per_namespace: usize,
    /// How many connections without an admitted request are kept.
    pub idle_connections: usize,
    /// Whether clusters are refused that have a CA in common with another one.
    pub refuse_shared_authorities: bool,
    /// Whether each request is written to standard output.
    pub access_log: bool,
    /// How it reaches cluster-proxy's proxy server.
    pub proxy_server: ProxyServerSettings,
    pub metrics: UserServerMetrics,
}

/// How cluster-proxy's proxy server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyServerSettings {
    /// The host of its entry point for clients.
    pub host: String,
    pub port: u16,
    /// The namespace of the Secrets.
    pub namespace: Namespace,
    /// The Secret with the client certificate, in `tls.crt` and `tls.key`.
    pub client_secret: String,
    /// The Secret with the proxy server's CA, in `ca.crt`.
    pub ca_secret: String,
}
