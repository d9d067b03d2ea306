//! Label and annotation keys and values of the hub's objects. They are contracts with other software (Open Cluster
//! Management, Kueue, Argo CD) and must not be renamed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// On a ClusterProfile: its cluster manager. KEP-4322 requires every manager to set it.
pub const CLUSTER_MANAGER: &str = "x-k8s.io/cluster-manager";

/// On a ClusterProfile: the ManagedCluster that it represents.
pub const CLUSTER_NAME: &str = "open-cluster-management.io/cluster-name";

/// On a ClusterProfile: the ManagedCluster's exclusive set, if it has one.
pub const CLUSTER_SET: &str = "multicluster.x-k8s.io/clusterset";

/// On a ClusterProfile: an ID that the profiles of one member cluster share with no other profile (KEP-4322). On a
/// ManagedCluster: the ID for its profiles, in place of the cluster's name.
pub const MEMBER_ID: &str = "multicluster.x-k8s.io/inventory-member-id";

/// On a ManagedCluster: the exclusive set it belongs to (OCM's `ExclusiveClusterSetLabel` selector).
pub const EXCLUSIVE_CLUSTER_SET: &str = "cluster.open-cluster-management.io/clusterset";

/// On a ManagedCluster, with the value [`TRUE`]: it is the hub itself (Advanced Cluster Management).
pub const LOCAL_CLUSTER: &str = "local-cluster";

/// On a ManagedServiceAccount, with the value [`TRUE`]: the syncer copies its token to the namespaces that its cluster
/// is granted to.
pub const SYNC_TO_CLUSTER_PROFILE: &str =
    "authentication.open-cluster-management.io/sync-to-clusterprofile";

/// Annotation on a ManagedServiceAccount: limits the copies to these namespaces, separated by commas.
pub const SYNC_TO_NAMESPACES: &str = "authentication.open-cluster-management.io/sync-to-namespaces";

/// On a Secret into which an agent has written a token, with the value [`TRUE`].
pub const IS_MANAGED_SERVICE_ACCOUNT: &str =
    "authentication.open-cluster-management.io/is-managed-serviceaccount";

/// On a copy of such a Secret: `<cluster>-<account>`, shortened if it exceeds the length of a label value.
pub const SYNCED_FROM: &str = "authentication.open-cluster-management.io/synced-from";

/// Annotation on a copy: the ManagedCluster whose token it is.
pub const SYNCED_CLUSTER: &str = "authentication.open-cluster-management.io/cluster-name";

/// Annotation on a copy: the ManagedServiceAccount whose token it is.
pub const SYNCED_ACCOUNT: &str = "authentication.open-cluster-management.io/managed-serviceaccount";

/// Annotation on a copy: the `metadata.uid` of that ManagedServiceAccount.
pub const SYNCED_ACCOUNT_UID: &str =
    "authentication.open-cluster-management.io/managed-serviceaccount-uid";

/// Annotation on a Pod, and for the Kustomize component on a workload: the containers that get the exec plugin
/// `cp-creds`, separated by commas.
pub const MOUNT_PLUGIN: &str = "authentication.open-cluster-management.io/mount-cp-creds";

/// Annotation on a Lease: the controllers of the process that holds it, separated by commas.
pub const CONTROLLERS: &str = "hub-addons/controllers";

/// Annotation on a Lease: the kinds that the process which holds it cannot read, since when and why.
pub const UNREADABLE: &str = "hub-addons/unreadable";

/// The value of a label that is set.
pub const TRUE: &str = "true";

/// The label of every object that the controllers maintain, except ClusterProfiles and copies, and its value.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "hub-addons");

/// The value of a label of an object.
#[must_use]
pub fn get<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether an object has a label with this value.
#[must_use]
pub fn has(metadata: &ObjectMeta, (key, value): (&str, &str)) -> bool {
    get(metadata, key) == Some(value)
}

/// The value of an annotation of an object.
#[must_use]
pub fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
