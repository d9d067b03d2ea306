//! What the name of a watched object says: of which account or profile it is.

use std::sync::Arc;

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace, ProfileKey};

use crate::watch::ObjectKey;

impl From<&ObjectKey> for AccountKey {
    /// A ManagedServiceAccount, or the token of its name: their namespace is the cluster's.
    fn from(key: &ObjectKey) -> Self {
        Self {
            cluster: ClusterName::new(Arc::clone(&key.namespace)),
            account: AccountName::new(Arc::clone(&key.name)),
        }
    }
}

impl From<&ObjectKey> for ProfileKey {
    /// A ClusterProfile, which has the name of its cluster.
    fn from(key: &ObjectKey) -> Self {
        Self {
            namespace: Namespace::new(Arc::clone(&key.namespace)),
            cluster: ClusterName::new(Arc::clone(&key.name)),
        }
    }
}
