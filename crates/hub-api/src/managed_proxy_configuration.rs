//! `ManagedProxyConfiguration`: how the cluster-proxy addon is installed on the hub (OCM cluster-proxy API,
//! `proxy.open-cluster-management.io/v1alpha1`).

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::decode;

/// What the addon runs, and where.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "proxy.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ManagedProxyConfiguration",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ManagedProxyConfigurationSpec {
    /// The proxy server on the hub.
    #[serde(skip_serializing_if = "ProxyServer::is_default")]
    pub proxy_server: ProxyServer,
}

decode::default_when_absent!(ManagedProxyConfigurationSpec);

/// The proxy server on the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyServer {
    /// The namespace of the proxy servers, their Services and serving certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl ProxyServer {
    /// The default namespace in upstream's CRD.
    pub const DEFAULT_NAMESPACE: &str = "open-cluster-management-cluster-proxy";

    /// The namespace of the proxy servers: upstream's default if the field is absent.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(Self::DEFAULT_NAMESPACE)
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
