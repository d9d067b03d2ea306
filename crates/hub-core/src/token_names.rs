//! The names of ManagedServiceAccounts by which the credential syncer watches tokens, if it may not list all Secrets.
//!
//! Each name is a watch of the syncer and an entry in a ClusterRole. Anyone who may create ManagedServiceAccounts in
//! the namespace of a cluster chooses names, so an account counts only while its cluster is granted to a namespace, and
//! the number of names per cluster is limited: one cluster cannot displace the names of the others.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, AccountName, ClusterName, ProfileKey};

use crate::fleet::Fleet;
use crate::grant::{self, Grant};

/// The maximum number of names per cluster.
pub const MAX_OF_A_CLUSTER: usize = 50;
/// The maximum number of names in total. Each is a connection to the API server.
pub const MAX: usize = 500;

/// The names by which tokens are watched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenNames {
    /// The names within the limits.
    pub names: BTreeSet<AccountName>,
    /// The accounts of granted clusters whose names exceed the limits.
    pub left_out: BTreeSet<AccountKey>,
}

/// The names of these accounts, which opt in to copies and are sorted.
#[must_use]
pub fn token_names<'a>(fleet: &Fleet, accounts: impl IntoIterator<Item = &'a AccountKey>) -> TokenNames {
    let mut result = TokenNames::default();
    let mut granted: BTreeMap<&ClusterName, (bool, usize)> = BTreeMap::new();
    for key in accounts {
        let (is_granted, count) =
            granted.entry(&key.cluster).or_insert_with(|| (may_be_granted(fleet, &key.cluster), 0));
        if !*is_granted || result.names.contains(&key.account) {
            continue;
        }
        if *count < MAX_OF_A_CLUSTER && result.names.len() < MAX {
            *count += 1;
            result.names.insert(key.account.clone());
        } else {
            result.left_out.insert(key.clone());
        }
    }
    // A name that another cluster has contributed is watched for all clusters.
    result.left_out.retain(|key| !result.names.contains(&key.account));
    result
}

/// Whether a cluster is granted, or may be granted, to any namespace.
fn may_be_granted(fleet: &Fleet, cluster: &ClusterName) -> bool {
    fleet.namespaces().any(|namespace| {
        let key = ProfileKey { namespace: namespace.clone(), cluster: cluster.clone() };
        grant::decide(fleet, &key) != Grant::Refused
    })
}
