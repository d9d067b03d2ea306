//! The objects that a consumer gets, their kinds and their names.

use std::fmt;

use hub_api::cluster_access::CLUSTER_ACCESSES;
use hub_api::names::{AccountKey, AccountName, ApiKind, ClusterName, ProfileKey};
use strum::EnumString;

use super::consumers::AccessName;

/// The kind by which Kueue finds a cluster.
pub const MULTI_KUEUE_CLUSTER: ApiKind =
    ApiKind::new("kueue.x-k8s.io", "v1beta2", "MultiKueueCluster", "multikueueclusters");
/// The kind by which Kueue chooses among clusters.
pub const MULTI_KUEUE_CONFIG: ApiKind =
    ApiKind::new("kueue.x-k8s.io", "v1beta2", "MultiKueueConfig", "multikueueconfigs");
/// The kind by which Argo CD finds a cluster.
pub const SECRET: ApiKind = ApiKind::new("", "v1", "Secret", "secrets");

/// The prefix of the names of Argo CD's Secrets, followed by the name of the cluster.
const CLUSTER_SECRET_PREFIX: &str = "hub-addons-cluster-";

/// The name of the object with the permissions of an account. It depends on the account alone, so that the permissions
/// of the process can be limited to it.
#[must_use]
pub fn permissions_name(account: &AccountName) -> String {
    format!("hub-addons-consumer-{account}")
}

/// The name of Argo CD's Secret of a cluster.
#[must_use]
pub fn cluster_secret_name(cluster: &ClusterName) -> String {
    format!("{CLUSTER_SECRET_PREFIX}{cluster}")
}

/// The cluster whose Secret has this name.
#[must_use]
pub fn cluster_of_secret(name: &str) -> Option<ClusterName> {
    name.strip_prefix(CLUSTER_SECRET_PREFIX).map(ClusterName::from)
}

/// The objects of the access to a cluster. The names of the kinds that give permissions are read from a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString)]
pub enum AccessKind {
    /// The ManagedServiceAccount.
    #[strum(disabled)]
    Account,
    /// The ManifestWork with its permissions. Every hub of Open Cluster Management has the kind.
    ManifestWork,
    /// The ClusterPermission with its permissions. It requires the controller cluster-permission
    /// (<https://github.com/open-cluster-management-io/cluster-permission>).
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
        AccessKey::Access(self, account.clone())
    }

    /// The kind of the API.
    #[must_use]
    pub const fn api(self) -> ApiKind {
        match self {
            Self::Account => ApiKind::new(
                "authentication.open-cluster-management.io",
                "v1beta1",
                "ManagedServiceAccount",
                "managedserviceaccounts",
            ),
            Self::ManifestWork => ApiKind::new(
                "work.open-cluster-management.io",
                "v1",
                "ManifestWork",
                "manifestworks",
            ),
            Self::ClusterPermission => ApiKind::new(
                "rbac.open-cluster-management.io",
                "v1alpha1",
                "ClusterPermission",
                "clusterpermissions",
            ),
        }
    }
}

/// An object by which an application gets access, or finds its clusters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKey {
    /// An object of the access of an account to its cluster.
    Access(AccessKind, AccountKey),
    /// The ClusterAccess itself, of which the status is written.
    ClusterAccess(AccessName),
    /// Kueue's MultiKueueCluster of a cluster.
    MultiKueueCluster(ClusterName),
    /// Kueue's MultiKueueConfig of this name.
    MultiKueueConfig(String),
    /// Argo CD's Secret of the cluster of a profile.
    ClusterSecret(ProfileKey),
}

impl AccessKey {
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Access(kind, account) => kind.name(account),
            Self::ClusterAccess(access) => access.name.clone(),
            Self::MultiKueueCluster(name) => name.to_string(),
            Self::MultiKueueConfig(name) => name.clone(),
            Self::ClusterSecret(key) => cluster_secret_name(&key.cluster),
        }
    }

    /// The namespace of the object, if its kind has one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Access(_, account) => Some(account.cluster.as_str()),
            Self::ClusterAccess(access) => Some(access.namespace.as_str()),
            Self::MultiKueueCluster(_) | Self::MultiKueueConfig(_) => None,
            Self::ClusterSecret(key) => Some(key.namespace.as_str()),
        }
    }

    /// The kind of the API.
    #[must_use]
    pub const fn api(&self) -> ApiKind {
        match self {
            Self::Access(kind, _) => kind.api(),
            Self::ClusterAccess(_) => ApiKind::new(
                "access.open-cluster-management.io",
                "v1alpha1",
                "ClusterAccess",
                CLUSTER_ACCESSES,
            ),
            Self::MultiKueueCluster(_) => MULTI_KUEUE_CLUSTER,
            Self::MultiKueueConfig(_) => MULTI_KUEUE_CONFIG,
            Self::ClusterSecret(_) => SECRET,
        }
    }
}

impl fmt::Display for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.api().kind;
        match self.namespace() {
            Some(namespace) => write!(f, "{kind} {namespace}/{}", self.name()),
            None => write!(f, "{kind} {}", self.name()),
        }
    }
}
