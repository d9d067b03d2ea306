//! How the provisioner and direct access are set up.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hub_api::names::{Namespace, is_dns_subdomain};
use hub_core::endpoint::ServerTemplate;
use hub_core::note::Subject;

/// How the provisioner is set up.
#[derive(Debug, Clone)]
pub struct ProvisionerSettings {
    /// The name of our entry.
    pub provider: String,
    /// Where its content comes from.
    pub source: SourceSettings,
    /// How long replaced trust anchors stay; zero drops them at once.
    pub overlap: Duration,
}

/// The name of the entry unless another one is given. Consumers choose by it, so it differs from the proxy's.
pub const DEFAULT_DIRECT_PROVIDER: &str = "open-cluster-management-direct";

/// How direct access is set up.
#[derive(Debug, Clone)]
pub struct DirectSettings {
    /// The name of the entry.
    pub provider: String,
    /// Whether loopback, link-local and metadata addresses may be published.
    pub allow_local: bool,
}

/// Where an entry's server and trust anchors come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSettings {
    /// OCM's cluster-proxy addon.
    ClusterProxy {
        /// Name of the user server's Service.
        service: String,
        /// Port of that Service.
        port: u16,
        /// Whether only clusters that have the addon get the entry.
        require_addon: bool,
    },
    /// A proxy that the administrator names.
    Static {
        /// Its URL.
        server: ServerTemplate,
        /// Where its trust anchors are.
        ca: CaReference,
    },
}

/// A key in a Secret or ConfigMap that holds certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaReference {
    /// Which of the two.
    pub kind: CaKind,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name.
    pub name: String,
    /// The key.
    pub key: String,
}

/// What certificates are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaKind {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

impl CaReference {
    /// The object, as a finding names it.
    pub(crate) fn subject(&self) -> Subject {
        match self.kind {
            CaKind::Secret => Subject::Secret(self.namespace.clone(), self.name.clone()),
            CaKind::ConfigMap => Subject::ConfigMap(self.namespace.clone(), self.name.clone()),
        }
    }
}

impl fmt::Display for CaReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            CaKind::Secret => "secret",
            CaKind::ConfigMap => "configmap",
        };
        write!(f, "{kind}/{}/{}/{}", self.namespace, self.name, self.key)
    }
}

/// Why a text is no [`CaReference`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not say where certificates are: it is secret/NAMESPACE/NAME/KEY or configmap/NAMESPACE/NAME/KEY"
)]
pub struct InvalidCaReference(String);

impl FromStr for CaReference {
    type Err = InvalidCaReference;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidCaReference(text.to_owned());
        let parts: Vec<&str> = text.split('/').collect();
        let [kind, namespace, name, key] = parts[..] else { return Err(invalid()) };
        let kind = match kind {
            "secret" => CaKind::Secret,
            "configmap" => CaKind::ConfigMap,
            _ => return Err(invalid()),
        };
        if !is_dns_subdomain(namespace) || !is_dns_subdomain(name) || key.is_empty() {
            return Err(invalid());
        }
        Ok(Self { kind, namespace: Namespace::from(namespace), name: name.to_owned(), key: key.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_is_named_by_kind_namespace_name_and_key() {
        for good in ["secret/proxy/serving-cert/tls.crt", "configmap/kube-public/ca/ca.crt"] {
            assert_eq!(good.parse::<CaReference>().unwrap().to_string(), good);
        }
        for bad in ["", "secret/a/b", "pod/a/b/c", "secret/A/b/c", "secret/a/b/", "secret/a/b/c/d"] {
            assert!(bad.parse::<CaReference>().is_err(), "{bad}");
        }
    }
}
