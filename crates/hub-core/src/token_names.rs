//! The names of ManagedServiceAccounts by which the credential syncer watches tokens, if it may not list all Secrets.
//!
//! Each name is a watch of the syncer and an entry in a ClusterRole. Anyone who may create ManagedServiceAccounts in
//! the namespace of a cluster chooses names, so an account counts only while its cluster is granted to a namespace, and
//! the number of names per cluster is limited: one cluster cannot displace the names of the others.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, AccountName, ClusterName};

use crate::fleet::Fleet;
use crate::grant;
use crate::own_identity;

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
    /// Whether each cluster with an account that opts in is granted to any namespace, if that was asked.
    pub granted: BTreeMap<ClusterName, bool>,
}

/// The names of these accounts, which opt in to copies and must be sorted.
#[must_use]
pub fn token_names<'a>(
    fleet: &Fleet,
    accounts: impl IntoIterator<Item = &'a AccountKey>,
) -> TokenNames {
    let mut granted = BTreeMap::new();
    let accounts = accounts.into_iter().filter_map(|AccountKey { cluster, account }| {
        let is_granted = match granted.last_key_value() {
            Some((last, is_granted)) if last == cluster => *is_granted,
            _ => {
                let is_granted = grant::is_anywhere(fleet, cluster);
                granted.insert(cluster.clone(), is_granted);
                is_granted
            }
        };
        is_granted.then_some((cluster, account))
    });
    let names = within_limits(accounts, usize::MAX);
    TokenNames { granted, ..names }
}

/// The names of these accounts of granted clusters, in order, which have at most so many different names.
pub(crate) fn within_limits<'a>(
    accounts: impl Iterator<Item = (&'a ClusterName, &'a AccountName)>,
    different: usize,
) -> TokenNames {
    let mut result = TokenNames::default();
    let mut counts = BTreeMap::<&ClusterName, usize>::new();
    for (cluster, account) in accounts {
        if result.names.len() == different {
            break;
        }
        if result.names.contains(account) || own_identity::is_reserved(account) {
            continue;
        }
        let count = counts.entry(cluster).or_default();
        if *count < MAX_OF_A_CLUSTER && result.names.len() < MAX {
            *count += 1;
            result.names.insert(account.clone());
        } else {
            result.left_out.insert(cluster.account(account));
        }
    }
    // A name that another cluster has contributed is watched for all clusters.
    result.left_out.retain(|key| !result.names.contains(&key.account));
    result
}
