//! The kinds of the objects of the access of a consumer, and their names.

use std::fmt;

use hub_api::names::{AccountKey, AccountName};
use serde_json::{Value, json};

use crate::finding::Subject;

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

    /// The object of an account.
    #[must_use]
    pub fn of(self, account: &AccountKey) -> AccessKey {
        AccessKey { account: account.clone(), kind: self }
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

/// An object of the access of an account to its cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessKey {
    pub account: AccountKey,
    pub kind: AccessKind,
}

impl AccessKey {
    #[must_use]
    pub fn name(&self) -> String {
        self.kind.name(&self.account)
    }

    /// The subject of findings on the object.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self.kind {
            AccessKind::Account => Subject::Account(self.account.clone()),
            AccessKind::ManifestWork => Subject::ManifestWork(self.account.cluster.clone(), self.name()),
            AccessKind::ClusterPermission => {
                Subject::ClusterPermission(self.account.cluster.clone(), self.name())
            }
        }
    }
}

impl fmt::Display for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.account.cluster, self.name())
    }
}
