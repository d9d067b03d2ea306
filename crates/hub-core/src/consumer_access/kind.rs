//! The kinds of the objects of the access of a consumer, and their names.

use hub_api::names::{AccountKey, AccountName};
use serde_json::{Value, json};

/// The name of the object with the permissions of an account. It depends on the account alone, so that the permissions
/// of the process can be limited to it.
#[must_use]
pub fn permissions_name(account: &AccountName) -> String {
    format!("hub-addons-consumer-{account}")
}

/// The objects of the access to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKind {
    /// The ManagedServiceAccount.
    Account,
    /// The ManifestWork with its permissions.
    ManifestWork,
    /// The ClusterPermission with its permissions, where it is declared.
    ClusterPermission,
}

impl AccessKind {
    pub const ALL: [Self; 3] = [Self::Account, Self::ManifestWork, Self::ClusterPermission];
    /// The kinds that give an account permissions, of which the declaration chooses one.
    pub const PERMISSIONS: [Self; 2] = [Self::ManifestWork, Self::ClusterPermission];

    /// The name of the object of an account.
    #[must_use]
    pub fn name(self, key: &AccountKey) -> String {
        match self {
            Self::Account => key.account.to_string(),
            Self::ManifestWork | Self::ClusterPermission => permissions_name(&key.account),
        }
    }

    /// The group, version and name of the kind.
    #[must_use]
    pub const fn gvk(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Account => {
                ("authentication.open-cluster-management.io", "v1beta1", "ManagedServiceAccount")
            }
            Self::ManifestWork => ("work.open-cluster-management.io", "v1", "ManifestWork"),
            Self::ClusterPermission => ("rbac.open-cluster-management.io", "v1alpha1", "ClusterPermission"),
        }
    }

    pub(super) fn head(self, key: &AccountKey) -> Value {
        let (group, version, kind) = self.gvk();
        let metadata = json!({ "name": self.name(key), "namespace": key.cluster.as_str() });
        json!({ "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": metadata })
    }
}
