//! Label keys and values that join the hub's objects. They are contracts with software we do not own
//! (Open Cluster Management, Kueue, Argo CD): none of them may be renamed. Some are annotations.

use crate::names;

/// On a ClusterProfile: which cluster manager keeps it. KEP-4322 asks every manager to set it.
pub const CLUSTER_MANAGER: &str = "x-k8s.io/cluster-manager";

/// On a ClusterProfile: the ManagedCluster it shows.
pub const CLUSTER_NAME: &str = "open-cluster-management.io/cluster-name";

/// On a ClusterProfile: the ManagedCluster's exclusive set. Absent when the cluster has none.
pub const CLUSTER_SET: &str = "multicluster.x-k8s.io/clusterset";

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

/// Longest label value that an API server accepts, in bytes.
pub const VALUE_MAX_LENGTH: usize = 63;

/// Longest name part of a label key, in bytes.
const KEY_NAME_MAX_LENGTH: usize = 63;

/// Whether an API server would take `value` as a label value: empty, or at most
/// [`VALUE_MAX_LENGTH`] bytes of `[A-Za-z0-9_.-]` that begin and end with a letter or digit.
#[must_use]
pub fn is_valid_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= VALUE_MAX_LENGTH && is_qualified_part(value))
}

/// Whether an API server would take `key` as a label key: a name of at most 63 bytes, with an optional
/// DNS subdomain and a slash before it.
#[must_use]
pub fn is_valid_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(names::is_dns_subdomain) && name.len() <= KEY_NAME_MAX_LENGTH && is_qualified_part(name)
}

fn is_qualified_part(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::{is_valid_key, is_valid_value};

    #[test]
    fn values_are_judged_as_the_api_server_judges_them() {
        for good in ["", "a", "A-b_c.9", &"x".repeat(63)] {
            assert!(is_valid_value(good), "{good:?}");
        }
        for bad in ["-a", "a-", "a b", "ä", ".", &"x".repeat(64)] {
            assert!(!is_valid_value(bad), "{bad:?}");
        }
    }

    #[test]
    fn keys_are_judged_as_the_api_server_judges_them() {
        for good in ["a", "example.com/a_b", "x-k8s.io/cluster-manager"] {
            assert!(is_valid_key(good), "{good:?}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "Example.com/a", "a..b/c", &"x".repeat(64)] {
            assert!(!is_valid_key(bad), "{bad:?}");
        }
    }
}
