//! The names of objects as keys of queues.

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace, ProfileKey, SecretKey};
use hub_core::consumer_access::{AccessKey, AccessName};

use crate::queue::Key;
use crate::watch::ObjectKey;

impl Key for ProfileKey {
    fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }
}

impl Key for SecretKey {
    fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }
}

impl Key for AccountKey {
    /// The cluster's own namespace on the hub.
    fn namespace(&self) -> Namespace {
        self.cluster.as_str().into()
    }
}

impl Key for AccessKey {
    fn namespace(&self) -> Namespace {
        Self::namespace(self).unwrap_or_default().into()
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

impl From<&ObjectKey> for AccessName {
    /// A ClusterAccess.
    fn from(key: &ObjectKey) -> Self {
        Self { namespace: Namespace::new(key.namespace.clone()), name: key.name.to_string() }
    }
}
