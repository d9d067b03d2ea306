//! Which names of ManagedServiceAccounts tokens are watched by, where the credential syncer may not list all Secrets.
//!
//! Each name is a watch of the syncer and an entry in a ClusterRole. Whoever may create ManagedServiceAccounts in the
//! namespace of a cluster chooses names, so an account counts only while its cluster is granted to a namespace, and a
//! cluster has only so many: one cluster cannot push out the names of the others.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, AccountName, ClusterName, ProfileKey};

use crate::fleet::Fleet;
use crate::grant::{self, Grant};

/// How many names of accounts of one cluster count.
pub const MAX_OF_A_CLUSTER: usize = 50;
/// How many names count altogether. Each is a connection to the API server.
pub const MAX: usize = 500;

/// The names that tokens are watched by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenNames {
    /// The names that count.
    pub names: BTreeSet<AccountName>,
    /// The accounts of granted clusters whose names are more than count.
    pub left_out: BTreeSet<AccountKey>,
}

/// The names of these accounts, which ask for copies and come in order.
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
    // A name that another cluster has brought in is watched in all.
    result.left_out.retain(|key| !result.names.contains(&key.account));
    result
}

/// Whether any namespace is granted a cluster, or may be.
fn may_be_granted(fleet: &Fleet, cluster: &ClusterName) -> bool {
    fleet.namespaces().any(|namespace| {
        let key = ProfileKey { namespace: namespace.clone(), cluster: cluster.clone() };
        grant::decide(fleet, &key) != Grant::Refused
    })
}
