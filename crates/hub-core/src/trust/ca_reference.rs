//! Where the certificates are: a key of a Secret or ConfigMap.

use std::fmt;
use std::str::FromStr;

use hub_api::names::{Namespace, is_dns_subdomain};
use strum::IntoStaticStr;

use crate::finding::Subject;

/// A key of a Secret or ConfigMap that contains certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaReference {
    pub kind: CaKind,
    pub namespace: Namespace,
    pub name: String,
    pub key: String,
}

/// The kind of an object that contains certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(const_into_str)]
pub enum CaKind {
    Secret,
    ConfigMap,
}

impl CaReference {
    /// The subject of findings on the object.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self.kind {
            CaKind::Secret => Subject::Secret(self.namespace.clone(), self.name.clone()),
            CaKind::ConfigMap => Subject::ConfigMap(self.namespace.clone(), self.name.clone()),
        }
    }
}

impl fmt::Display for CaReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.into_str().to_lowercase();
        write!(f, "{kind}/{}/{}/{}", self.namespace, self.name, self.key)
    }
}

/// The text is not a valid [`CaReference`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid reference to certificates: must be secret/NAMESPACE/NAME/KEY or configmap/NAMESPACE/NAME/KEY"
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
        Ok(Self {
            kind,
            namespace: Namespace::from(namespace),
            name: name.to_owned(),
            key: key.to_owned(),
        })
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
        for bad in ["", "secret/a/b", "pod/a/b/c", "secret/A/b/c", "secret/a/b/", "secret/a/b/c/d"]
        {
            assert!(bad.parse::<CaReference>().is_err(), "{bad}");
        }
    }
}
