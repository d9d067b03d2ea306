//! Namespaces of the hub itself, which receive neither credentials nor permissions, even if a set is bound there.
//!
//! cluster-proxy's chart binds the set `global` in `open-cluster-management-addon`, a namespace in which the addon
//! agents of all clusters may create Pods. A token there would be accessible to every cluster of the hub.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use hub_api::names::{Namespace, is_dns_label};

use crate::fleet::{Fleet, ObservedCluster};

/// The namespaces that are protected by default.
pub const DEFAULT: &str = "open-cluster-management*,multicluster-engine,kube-*";

/// Namespaces by name and by prefix; the namespaces of joined clusters are always protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedNamespaces {
    names: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

impl ProtectedNamespaces {
    /// Protects only the namespaces of clusters.
    #[must_use]
    pub fn none() -> Self {
        Self { names: BTreeSet::new(), prefixes: BTreeSet::new() }
    }

    /// Whether the setting contains the name of a namespace, or a prefix of it.
    #[must_use]
    pub fn contains(&self, namespace: &Namespace) -> bool {
        let name = namespace.as_str();
        self.names.contains(name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Whether a namespace is protected: the setting contains it, or it is the namespace of a joined ManagedCluster, in
    /// which the agents of that cluster work.
    ///
    /// A ManagedCluster counts only once it has joined: the holder of a bootstrap kubeconfig may create one of any
    /// name, and must not be able to revoke the credentials of a namespace of that name.
    #[must_use]
    pub fn protects(&self, fleet: &Fleet, namespace: &Namespace) -> bool {
        let cluster = fleet.cluster(&namespace.as_str().into());
        self.contains(namespace) || cluster.is_some_and(ObservedCluster::may_have_joined)
    }
}

impl Default for ProtectedNamespaces {
    fn default() -> Self {
        DEFAULT.parse().unwrap_or_else(|_| Self::none())
    }
}

/// The text is not a list of namespaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid namespace name or prefix: must be NAME or PREFIX*")]
pub struct InvalidNamespace(String);

impl FromStr for ProtectedNamespaces {
    type Err = InvalidNamespace;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut protected = Self::none();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.strip_suffix('*') {
                // A prefix may end with a dash, but a name may not.
                Some(prefix) if is_dns_label(prefix.strip_suffix('-').unwrap_or(prefix)) => {
                    protected.prefixes.insert(prefix.to_owned())
                }
                None if is_dns_label(entry) => protected.names.insert(entry.to_owned()),
                _ => return Err(InvalidNamespace(entry.to_owned())),
            };
        }
        Ok(protected)
    }
}

impl fmt::Display for ProtectedNamespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = self.prefixes.iter().map(|prefix| format!("{prefix}*"));
        f.write_str(&self.names.iter().cloned().chain(prefixes).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_protected(protected: &ProtectedNamespaces, namespace: &str) -> bool {
        protected.protects(&Fleet::default(), &namespace.into())
    }

    #[test]
    fn the_namespaces_of_the_hub_are_protected_by_default() {
        let protected = ProtectedNamespaces::default();
        assert_eq!(protected.to_string().parse(), Ok(protected.clone()));
        for namespace in [
            "open-cluster-management",
            "open-cluster-management-addon",
            "multicluster-engine",
            "kube-system",
        ] {
            assert!(is_protected(&protected, namespace), "{namespace}");
        }
        for namespace in
            ["default", "kube", "team", "multicluster-engine-2", "my-open-cluster-management"]
        {
            assert!(!is_protected(&protected, namespace), "{namespace}");
        }
    }

    #[test]
    fn a_list_names_namespaces_and_prefixes_and_nothing_else() {
        let protected: ProtectedNamespaces = " infra , ci-*,".parse().unwrap();
        for (namespace, expected) in
            [("infra", true), ("ci-7", true), ("ci", false), ("infra-2", false)]
        {
            assert_eq!(is_protected(&protected, namespace), expected, "{namespace}");
        }
        assert!(!is_protected(&"".parse().unwrap(), "kube-system"), "an empty list names none");
        for bad in ["*", "a*b", "A", "../x", "a-", "-*", "a.b"] {
            assert!(bad.parse::<ProtectedNamespaces>().is_err(), "{bad}");
        }
    }
}
