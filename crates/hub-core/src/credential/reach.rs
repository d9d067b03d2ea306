//! The accounts of granted clusters, by namespace and by name, kept up to date by what changes.
//!
//! If the syncer may not list all Secrets, it watches tokens by the names of these accounts. Most accounts of a hub are
//! of clusters that no namespace is granted: they cost nothing here.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace};

use crate::nested;
use crate::token_names::{MAX, MAX_OF_A_CLUSTER, TokenNames, within_limits};

/// The accounts that opt in, of clusters that are granted to a namespace, or may be.
#[derive(Debug, Default)]
pub struct Reach {
    clusters: BTreeMap<ClusterName, Reached>,
    by_namespace: BTreeMap<Namespace, BTreeSet<ClusterName>>,
    by_name: BTreeMap<AccountName, BTreeSet<ClusterName>>,
    /// The clusters with more names than are watched for one.
    crowded: BTreeSet<ClusterName>,
    /// The accounts whose names exceed the limits.
    left_out: BTreeSet<AccountKey>,
    is_outdated: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Reached {
    accounts: BTreeSet<AccountName>,
    namespaces: BTreeSet<Namespace>,
}

impl Reach {
    /// Sets the accounts of a cluster that opt in, and the namespaces that it is granted to. It is reached if there are
    /// both.
    pub(super) fn set_cluster(
        &mut self,
        cluster: &ClusterName,
        accounts: BTreeSet<AccountName>,
        namespaces: BTreeSet<Namespace>,
    ) {
        let is_reached = !accounts.is_empty() && !namespaces.is_empty();
        let after = if is_reached { Reached { accounts, namespaces } } else { Reached::default() };
        let before = self.clusters.remove(cluster).unwrap_or_default();
        for namespace in before.namespaces.difference(&after.namespaces) {
            nested::remove_value(&mut self.by_namespace, namespace, cluster);
        }
        for namespace in after.namespaces.difference(&before.namespaces) {
            self.by_namespace.entry(namespace.clone()).or_default().insert(cluster.clone());
        }
        if before.accounts != after.accounts {
            self.set_names(cluster, &before.accounts, &after.accounts);
        }
        if is_reached {
            self.clusters.insert(cluster.clone(), after);
        }
    }

    /// Sets the accounts of a cluster that opt in. `namespaces` returns those that it is granted to, if it is not reached
    /// yet. Those of one that is are kept: if the fleet has changed since, its other accounts have to be found by them.
    pub(super) fn set_accounts(
        &mut self,
        cluster: &ClusterName,
        accounts: BTreeSet<AccountName>,
        namespaces: impl FnOnce() -> BTreeSet<Namespace>,
    ) {
        let known = self.clusters.get(cluster).map(|reached| reached.namespaces.clone());
        self.set_cluster(cluster, accounts, known.unwrap_or_else(namespaces));
    }

    /// Sets whether a cluster is granted to a namespace. `accounts` returns those of the cluster that opt in.
    pub(super) fn set_granted(
        &mut self,
        cluster: &ClusterName,
        namespace: &Namespace,
        is_granted: bool,
        accounts: impl FnOnce() -> BTreeSet<AccountName>,
    ) {
        match (self.clusters.get_mut(cluster), is_granted) {
            (Some(reached), true) => {
                reached.namespaces.insert(namespace.clone());
                self.by_namespace.entry(namespace.clone()).or_default().insert(cluster.clone());
            }
            (Some(reached), false) => {
                reached.namespaces.remove(namespace);
                let is_last = reached.namespaces.is_empty();
                nested::remove_value(&mut self.by_namespace, namespace, cluster);
                if is_last {
                    self.set_cluster(cluster, BTreeSet::new(), BTreeSet::new());
                }
            }
            (None, true) => {
                self.set_cluster(cluster, accounts(), BTreeSet::from([namespace.clone()]));
            }
            (None, false) => {}
        }
    }

    fn set_names(
        &mut self,
        cluster: &ClusterName,
        before: &BTreeSet<AccountName>,
        after: &BTreeSet<AccountName>,
    ) {
        let was_limited = self.is_limited();
        for name in before.difference(after) {
            self.is_outdated |= nested::remove_value(&mut self.by_name, name, cluster);
        }
        for name in after.difference(before) {
            let clusters = self.by_name.entry(name.clone()).or_default();
            self.is_outdated |= clusters.is_empty();
            clusters.insert(cluster.clone());
        }
        if after.len() > MAX_OF_A_CLUSTER {
            self.crowded.insert(cluster.clone());
        } else {
            self.crowded.remove(cluster);
        }
        // Beyond the limits, each account may displace another.
        self.is_outdated |= was_limited || self.is_limited();
    }

    fn is_limited(&self) -> bool {
        !self.crowded.is_empty() || self.by_name.len() > MAX
    }

    /// The clusters that are reached in a namespace.
    pub(super) fn clusters_in(&self, namespace: &Namespace) -> impl Iterator<Item = &ClusterName> {
        self.by_namespace.get(namespace).into_iter().flatten()
    }

    /// The clusters that are reached and have an account of this name.
    pub(super) fn clusters_with(&self, name: &AccountName) -> impl Iterator<Item = &ClusterName> {
        self.by_name.get(name).into_iter().flatten()
    }

    /// The names by which tokens are watched, if not all are, and if they have changed since the last call; with the
    /// accounts whose tokens are no longer watched because there are too many names, or are watched again: their state
    /// and their copies may change without any event.
    pub fn changed_names(&mut self) -> Option<(BTreeSet<AccountName>, BTreeSet<AccountKey>)> {
        if !std::mem::take(&mut self.is_outdated) {
            return None;
        }
        let before = std::mem::take(&mut self.left_out);
        let TokenNames { names, left_out } = if self.is_limited() {
            within_limits(self.clusters.iter().flat_map(|(cluster, reached)| {
                reached.accounts.iter().map(move |account| (cluster, account))
            }))
        } else {
            TokenNames { names: self.by_name.keys().cloned().collect(), left_out: BTreeSet::new() }
        };
        self.left_out = left_out;
        Some((names, before.symmetric_difference(&self.left_out).cloned().collect()))
    }

    /// Whether tokens of this account's name are not watched because there are too many names.
    pub(super) fn is_left_out(&self, key: &AccountKey) -> bool {
        self.left_out.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(cluster: usize, count: usize) -> BTreeSet<AccountName> {
        (0..count).map(|number| AccountName::new(format!("a-{cluster}-{number:02}"))).collect()
    }

    /// The names, recomputed, of clusters with these numbers of accounts.
    fn recomputed(counts: &BTreeMap<usize, usize>) -> TokenNames {
        let all: BTreeMap<ClusterName, _> = counts
            .iter()
            .map(|(cluster, count)| {
                (ClusterName::new(format!("c{cluster:02}")), accounts(*cluster, *count))
            })
            .collect();
        within_limits(
            all.iter().flat_map(|(cluster, accounts)| accounts.iter().map(move |it| (cluster, it))),
        )
    }

    #[test]
    fn the_names_that_follow_each_change_are_the_recomputed_ones_within_the_limits_and_beyond() {
        let (mut reach, mut counts) = (Reach::default(), BTreeMap::new());
        let steps = (0..14).map(|cluster| (cluster, 45)).chain([
            (3, 60),
            (4, 51),
            (3, 2),
            (0, 0),
            (1, 0),
            (2, 0),
        ]);
        for (cluster, count) in steps {
            counts.insert(cluster, count);
            let name = ClusterName::new(format!("c{cluster:02}"));
            reach.set_cluster(&name, accounts(cluster, count), ["team".into()].into());
            let before = reach.left_out.clone();
            let (names, moved) = reach.changed_names().unwrap();
            assert_eq!(moved, before.symmetric_difference(&reach.left_out).cloned().collect());
            let is = TokenNames { names, left_out: reach.left_out.clone() };
            assert_eq!(is, recomputed(&counts), "after cluster {cluster} has {count} accounts");
            assert_eq!(reach.changed_names(), None, "nothing has changed since");
        }
    }

    #[test]
    fn a_grant_of_another_namespace_or_a_name_that_another_cluster_has_changes_no_name() {
        let mut reach = Reach::default();
        let app = || BTreeSet::from([AccountName::from("app")]);
        reach.set_granted(&"c1".into(), &"team".into(), true, app);
        assert_eq!(reach.changed_names(), Some((app(), BTreeSet::new())));
        reach.set_granted(&"c1".into(), &"ops".into(), true, || unreachable!("they are known"));
        reach.set_granted(&"c2".into(), &"team".into(), true, app);
        reach.set_granted(&"c1".into(), &"team".into(), false, app);
        reach.set_granted(&"c1".into(), &"ops".into(), false, app);
        assert_eq!(reach.changed_names(), None);
        assert_eq!(
            reach.clusters_in(&"team".into()).collect::<Vec<_>>(),
            [&ClusterName::from("c2")]
        );
        reach.set_granted(&"c2".into(), &"team".into(), false, app);
        assert_eq!(reach.changed_names(), Some(Default::default()));
    }
}
