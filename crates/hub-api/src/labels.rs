//! Label keys and values that join the hub's objects. They are contracts with software we do not own
//! (Open Cluster Management, Kueue, Argo CD): none of them may be renamed. Some are annotations.

/// On a ClusterProfile: which cluster manager keeps it. KEP-4322 asks every manager to set it.
pub const CLUSTER_MANAGER: &str = "x-k8s.io/cluster-manager";

/// On a ClusterProfile: the ManagedCluster it shows.
pub const CLUSTER_NAME: &str = "open-cluster-management.io/cluster-name";

/// On a ClusterProfile: the ManagedCluster's exclusive set. Absent when the cluster has none.
pub const CLUSTER_SET: &str = "multicluster.x-k8s.io/clusterset";

/// On a ClusterProfile: what all profiles of one member cluster have in common, and those of no other (KEP-4322). On a
/// ManagedCluster: what its profiles carry there, instead of the cluster's name.
pub const MEMBER_ID: &str = "multicluster.x-k8s.io/inventory-member-id";

/// On a ManagedCluster: the exclusive set it belongs to (OCM's `ExclusiveClusterSetLabel` selector).
pub const EXCLUSIVE_CLUSTER_SET: &str = "cluster.open-cluster-management.io/clusterset";

/// On a ManagedServiceAccount, with the value [`TRUE`]: its token goes to the namespaces that its cluster is granted
/// to.
pub const SYNC_TO_CLUSTER_PROFILE: &str = "authentication.open-cluster-management.io/sync-to-clusterprofile";

/// Annotation on a ManagedServiceAccount: only to these of the namespaces, separated by commas.
pub const SYNC_TO_NAMESPACES: &str = "authentication.open-cluster-management.io/sync-to-namespaces";

/// On the Secret that an agent has written a token into, with the value [`TRUE`].
pub const IS_MANAGED_SERVICE_ACCOUNT: &str =
    "authentication.open-cluster-management.io/is-managed-serviceaccount";

/// On a copy of such a Secret: `<cluster>-<account>`, shortened where that is no label value.
pub const SYNCED_FROM: &str = "authentication.open-cluster-management.io/synced-from";

/// Annotation on a copy: the ManagedCluster whose token it is.
pub const SYNCED_CLUSTER: &str = "authentication.open-cluster-management.io/cluster-name";

/// Annotation on a copy: the ManagedServiceAccount whose token it is.
pub const SYNCED_ACCOUNT: &str = "authentication.open-cluster-management.io/managed-serviceaccount";

/// Annotation on a copy: the `metadata.uid` of that ManagedServiceAccount.
pub const SYNCED_ACCOUNT_UID: &str = "authentication.open-cluster-management.io/managed-serviceaccount-uid";

/// The value of a label that says yes.
pub const TRUE: &str = "true";
