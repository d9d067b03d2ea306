//! The user that a ServiceAccount of the hub is on a cluster.
//!
//! The user's name is the one that cluster-proxy's service proxy gives it (v0.10.0,
//! `pkg/serviceproxy/service_proxy.go`), so permissions that refer to it hold for both. The groups differ on purpose:
//! cluster-proxy passes those of the hub unchanged, so that a ServiceAccount of the hub's namespace `kube-system` is a
//! member of the cluster's `system:serviceaccounts:kube-system`. Here they have the prefix of the name.

mod authorities;

pub use self::authorities::{Authorities, KeyDigest};

use hub_api::names::{AccountName, ClusterName, Namespace, is_dns_label};

/// The audience of the tokens by which applications prove who they are, by default.
pub const DEFAULT_AUDIENCE: &str = "hub-addons";

/// The name of the user server's ManagedServiceAccount on each cluster, by default. The names that begin like this are
/// reserved: no token of such an account is copied, whatever its labels.
pub const ACCOUNT: &str = "hub-addons-user-server";

/// Whether a name is reserved for the account of the user server.
#[must_use]
pub fn is_reserved(account: &AccountName) -> bool {
    account.as_str().starts_with(ACCOUNT)
}

/// ServiceAccounts with permissions of their own where OCM installs managed-serviceaccount, next to those of its accounts:
/// those of every namespace on Kubernetes and OpenShift, and those of addons, with these names and beginnings of names. The
/// agent takes a ServiceAccount that exists as that of an account, and reports a token of it (`pkg/addon/agent/controller`).
const OF_OTHERS: [&str; 4] = ["default", "builder", "deployer", "pipeline"];
const OF_ADDONS: [&str; 10] = [
    "application-manager",
    "cert-policy-controller",
    "cluster-proxy",
    "config-policy-controller",
    "gitops-addon",
    "governance-",
    "hypershift-addon",
    "iam-policy-controller",
    "klusterlet",
    "managed-serviceaccount",
];

/// Whether an account of this name could be a ServiceAccount of somebody else, so no application may ask for it.
#[must_use]
pub fn is_of_others(account: &AccountName) -> bool {
    let name = account.as_str();
    OF_OTHERS.contains(&name) || OF_ADDONS.iter().any(|start| name.starts_with(start))
}

/// What distinguishes users and groups of the hub from those of the cluster.
const PREFIX: &str = "cluster:hub:";

/// Whether the tunnel of cluster-proxy leads to the API server of a cluster: in the namespace of its agent there, a
/// Service has the name of the cluster, and the name of a Service must be a DNS-1035 label.
#[must_use]
pub fn is_routable(cluster: &ClusterName) -> bool {
    is_dns_label(cluster.as_str())
        && cluster.as_str().starts_with(|first: char| first.is_ascii_lowercase())
}

/// The name of the user.
#[must_use]
pub fn user(namespace: &Namespace, service_account: &str) -> String {
    format!("{PREFIX}system:serviceaccount:{namespace}:{service_account}")
}

/// The user's groups. An API server adds `system:authenticated`.
#[must_use]
pub fn groups(namespace: &Namespace) -> [String; 2] {
    [
        format!("{PREFIX}system:serviceaccounts"),
        format!("{PREFIX}system:serviceaccounts:{namespace}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_application_gets_the_account_of_another_component() {
        for (account, expected) in [
            ("default", true),
            ("default-app", false),
            ("gitops-addon", true),
            ("governance-standalone-hub-templating", true),
            ("hypershift-addon-agent-sa", true),
            ("hypershift", false),
        ] {
            assert_eq!(is_of_others(&AccountName::from(account)), expected, "{account}");
        }
    }

    #[test]
    fn no_user_or_group_of_a_cluster_has_the_name_of_one_of_the_hub() {
        let namespace = Namespace::from("kube-system");
        assert_eq!(user(&namespace, "a"), "cluster:hub:system:serviceaccount:kube-system:a");
        assert!(
            groups(&namespace)
                .iter()
                .all(|group| group.starts_with("cluster:hub:system:serviceaccounts"))
        );
    }
}
