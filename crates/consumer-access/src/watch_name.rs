//! The watches by name: the kind that each lists, and the keys of what it shows.

use hub_api::names::{AccountKey, AccountName, ApiKind, ClusterName, Namespace, ObjectKey};
use hub_core::consumer_access::{
    AccessKey, AccessKind, DecisionKind, MULTI_KUEUE_CLUSTER, MULTI_KUEUE_CONFIG, PlacementName,
    SECRET, cluster_of_secret,
};

/// A watch on objects that are written, or on what these depend on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchName {
    /// Every account.
    Accounts,
    /// Every MultiKueueCluster.
    MultiKueueClusters,
    /// Every MultiKueueConfig.
    MultiKueueConfigs,
    /// The permissions of an account, of this kind.
    Permissions(AccessKind, AccountName),
    /// The cluster Secrets in a namespace.
    Secrets(Namespace),
    /// The profiles in a namespace whose cluster Secrets use this access provider, in v1alpha1.
    Profiles(Namespace, String),
    /// The decisions of a Placement, of this kind.
    Decisions(DecisionKind, PlacementName),
}

/// What watches begin and end with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    // The first that is followed: decisions narrow what a restart withdraws.
    Namespace(Namespace),
    Account(AccountName),
}

impl WatchName {
    pub(crate) const KUEUE: [Self; 2] = [Self::MultiKueueClusters, Self::MultiKueueConfigs];

    /// The watch that shows the objects of this kind of an account.
    pub(crate) fn of(kind: AccessKind, account: &AccountName) -> Self {
        match kind {
            AccessKind::Account => Self::Accounts,
            kind => Self::Permissions(kind, account.clone()),
        }
    }

    /// What it is for, unless that is everything.
    pub(crate) fn scope(&self) -> Option<Scope> {
        match self {
            Self::Accounts | Self::MultiKueueClusters | Self::MultiKueueConfigs => None,
            Self::Permissions(_, account) => Some(Scope::Account(account.clone())),
            Self::Secrets(namespace)
            | Self::Profiles(namespace, _)
            | Self::Decisions(_, (namespace, _)) => Some(Scope::Namespace(namespace.clone())),
        }
    }

    /// The kind of the API that it lists.
    pub(crate) fn api(&self) -> ApiKind {
        match self {
            Self::Accounts => AccessKind::Account.api(),
            Self::Permissions(kind, _) => kind.api(),
            Self::MultiKueueClusters => MULTI_KUEUE_CLUSTER,
            Self::MultiKueueConfigs => MULTI_KUEUE_CONFIG,
            Self::Secrets(_) => SECRET,
            Self::Profiles(..) => ApiKind::new(
                "multicluster.x-k8s.io",
                "v1alpha1",
                "ClusterProfile",
                "clusterprofiles",
            ),
            Self::Decisions(kind, _) => kind.api(),
        }
    }

    /// The key of an object that it shows; `None` of one that is not written, as a Secret whose name we do not use.
    pub(crate) fn key(&self, key: &ObjectKey) -> Option<AccessKey> {
        Some(match self {
            Self::Accounts => AccessKind::Account.of(&AccountKey::from(key)),
            // Permissions have another name than their account.
            Self::Permissions(kind, account) => {
                kind.of(&AccountKey { account: account.clone(), ..AccountKey::from(key) })
            }
            Self::MultiKueueClusters => {
                AccessKey::MultiKueueCluster(ClusterName::new(key.name.clone()))
            }
            Self::MultiKueueConfigs => AccessKey::MultiKueueConfig(key.name.to_string()),
            Self::Secrets(namespace) => {
                AccessKey::ClusterSecret(cluster_of_secret(&key.name)?.in_namespace(namespace))
            }
            Self::Profiles(..) | Self::Decisions(..) => return None,
        })
    }
}
