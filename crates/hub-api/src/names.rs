//! Names as types, so that a namespace cannot be passed where a cluster name is expected.
//!
//! Names from the API server are already validated and taken as they are; names from flags are parsed. All names are
//! cheap to clone because they share their [`Text`].

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use object_names::{
    DNS_SUBDOMAIN_MAX_LENGTH, LABEL_VALUE_MAX_LENGTH, is_dns_label, is_dns_subdomain, is_label_key,
    is_label_value,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};

use crate::text::Text;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Text);

        impl $name {
            /// Wraps a name that an API server has validated.
            #[must_use]
            pub fn new(name: impl Into<Text>) -> Self {
                Self(name.into())
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self::new(name)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type! {
    /// The name of a ManagedCluster, which is also its namespace on the hub and the name of its profiles.
    ClusterName
}
name_type! {
    /// The name of a ManagedClusterSet.
    ClusterSetName
}
name_type! {
    /// The name of a namespace on the hub.
    Namespace
}

name_type! {
    /// The name of a ManagedServiceAccount.
    AccountName
}

/// The cluster manager that profiles name in `spec.clusterManager.name` and in the label
/// [`CLUSTER_MANAGER`](crate::labels::CLUSTER_MANAGER): a non-empty label value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManagerName(Arc<str>);

impl ManagerName {
    /// The manager name that OCM uses and consumers expect.
    pub const DEFAULT: &'static str = "open-cluster-management";

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ManagerName {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

impl fmt::Display for ManagerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is not a valid [`ManagerName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot name a cluster manager: it must be a label value of 1 to 63 letters, digits, '-', '_' or '.', \
     with a letter or digit at both ends"
)]
pub struct InvalidManagerName(String);

impl FromStr for ManagerName {
    type Err = InvalidManagerName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.is_empty() && is_label_value(text) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidManagerName(text.to_owned()))
        }
    }
}

/// Namespace and name of a ClusterProfile: a namespace has at most one profile for each cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileKey {
    /// The namespace that the cluster is granted to.
    pub namespace: Namespace,
    /// The cluster; also the profile's `metadata.name`.
    pub cluster: ClusterName,
}

impl ClusterName {
    /// The profile of the cluster in a namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &Namespace) -> ProfileKey {
        ProfileKey { namespace: namespace.clone(), cluster: self.clone() }
    }

    /// An account on the cluster.
    #[must_use]
    pub fn account(&self, account: &AccountName) -> AccountKey {
        AccountKey { cluster: self.clone(), account: account.clone() }
    }
}

impl fmt::Display for ProfileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.cluster)
    }
}

/// A ManagedServiceAccount: an account on one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey {
    /// The cluster; also the account's namespace on the hub.
    pub cluster: ClusterName,
    pub account: AccountName,
}

impl AccountKey {
    /// The name of the Secrets with copies of the account's token: `<cluster>-<account>`. Two accounts can have the
    /// same copy name: account `b-c` of cluster `a`, and account `c` of cluster `a-b`.
    #[must_use]
    pub fn copy_name(&self) -> String {
        format!("{}-{}", self.cluster, self.account)
    }

    /// The copy of the account's token in a namespace.
    #[must_use]
    pub fn copy_in(&self, namespace: &Namespace) -> SecretKey {
        SecretKey { namespace: namespace.clone(), name: self.copy_name().into() }
    }
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.account)
    }
}

/// The namespace and name of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretKey {
    pub namespace: Namespace,
    pub name: Text,
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A kind of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiKind {
    /// The group; empty for the core.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

impl ApiKind {
    #[must_use]
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, version, kind, plural }
    }

    /// The kind for requests.
    #[must_use]
    pub fn resource(&self) -> ApiResource {
        let Self { group, version, kind, plural } = *self;
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

/// The namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// `metadata.namespace`, empty for cluster-scoped kinds.
    pub namespace: Text,
    /// `metadata.name`.
    pub name: Text,
}

impl ObjectKey {
    /// The key of an object with this metadata.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
        }
    }
}

impl From<&ObjectKey> for AccountKey {
    /// A ManagedServiceAccount, or the token Secret of the same name: their namespace is the cluster's.
    fn from(key: &ObjectKey) -> Self {
        Self {
            cluster: ClusterName::new(key.namespace.clone()),
            account: AccountName::new(key.name.clone()),
        }
    }
}

impl From<&ObjectKey> for ProfileKey {
    /// A ClusterProfile, which has the name of its cluster.
    fn from(key: &ObjectKey) -> Self {
        Self {
            namespace: Namespace::new(key.namespace.clone()),
            cluster: ClusterName::new(key.name.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ManagerName;

    #[test]
    fn a_manager_name_is_a_label_value_and_not_empty() {
        assert_eq!(
            "fleet-7".parse::<ManagerName>().map(|name| name.to_string()),
            Ok("fleet-7".to_owned())
        );
        for bad in ["", "a b", "-x", "a/b"] {
            let error = bad.parse::<ManagerName>().expect_err(bad);
            assert!(error.to_string().contains("label value"), "{error}");
        }
    }
}
