//! The accounts of granted clusters, by namespace and by name, kept up to date by what changes.
//!
//! If the syncer may not list all Secrets, it watches tokens by the names of these accounts. Most accounts of a hub are
//! of clusters that no namespace is granted: they cost nothing here.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace};

use crate::nested;
use crate::token_names::{MAX, MAX_OF_A_CLUSTER, within_limits};

/// The accounts that opt in, of clusters that are granted to a namespace, or may be.
#[derive(Debug, Default)]
pub struct Reach {
    clusters: BTreeMap<ClusterName, Reached>,
    by_namespace: BTreeMap<Namespace, BTreeSet<ClusterName>>,
    /// The clusters with an account of this name: those that are not crowded first.
    by_name: BTreeMap<AccountName, BTreeSet<(IsCrowded, ClusterName)>>,
    /// The names within the limits.
    names: BTreeSet<AccountName>,
    /// The accounts whose names exceed the limits.
    left_out: BTreeSet<AccountKey>,
    /// Whether the names have changed since they were last returned.
    is_outdated: bool,
    /// Whether the names and those left out must be computed from all accounts.
    is_unknown: bool,
}

/// Whether a cluster has more names than are watched for one.
type IsCrowded = bool;

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

    /// Sets whether a cluster is granted to a namespace, and returns whether it was. `accounts` returns those of the cluster
    /// that opt in.
    pub(super) fn set_granted(
        &mut self,
        cluster: &ClusterName,
        namespace: &Namespace,
        is_granted: bool,
        accounts: impl FnOnce() -> BTreeSet<AccountName>,
    ) -> bool {
        match (self.clusters.get_mut(cluster), is_granted) {
            (Some(reached), true) => {
                self.by_namespace.entry(namespace.clone()).or_default().insert(cluster.clone());
                !reached.namespaces.insert(namespace.clone())
            }
            (Some(reached), false) => {
                let was_granted = reached.namespaces.remove(namespace);
                let is_last = reached.namespaces.is_empty();
                nested::remove_value(&mut self.by_namespace, namespace, cluster);
                if is_last {
                    self.set_cluster(cluster, BTreeSet::new(), BTreeSet::new());
                }
                was_granted
            }
            (None, true) => {
                self.set_cluster(cluster, accounts(), BTreeSet::from([namespace.clone()]));
                false
            }
            (None, false) => false,
        }
    }

    fn set_names(
        &mut self,
        cluster: &ClusterName,
        before: &BTreeSet<AccountName>,
        after: &BTreeSet<AccountName>,
    ) {
        let was_full = self.names.len() >= MAX && self.names.len() < self.by_name.len();
        let [was, is] = [before, after].map(|it| (it.len() > MAX_OF_A_CLUSTER, cluster.clone()));
        for name in before.iter().filter(|it| was != is || !after.contains(*it)) {
            nested::remove_value(&mut self.by_name, name, &was);
        }
        for name in after.iter().filter(|it| was != is || !before.contains(*it)) {
            self.by_name.entry(name.clone()).or_default().insert(is.clone());
        }
        // Beyond the limits, each account may displace another. Below the total, only crowded clusters leave names out:
        // those that no cluster before them has, beyond the limit of one.
        self.is_unknown |= was_full || was.0 || is.0;
        for name in before.symmetric_difference(after) {
            match self.by_name.get(name) {
                None => self.is_outdated |= self.names.remove(name),
                Some(clusters) if clusters.first() < Some(&is) => {}
                Some(clusters) if clusters.last().is_some_and(|(is_crowded, _)| *is_crowded) => {
                    self.is_unknown = true;
                }
                Some(_) => self.is_outdated |= self.names.insert(name.clone()),
            }
        }
        self.is_unknown |= self.names.len() > MAX;
    }

    /// The clusters that are reached in a namespace.
    pub(super) fn clusters_in(&self, namespace: &Namespace) -> impl Iterator<Item = &ClusterName> {
        self.by_namespace.get(namespace).into_iter().flatten()
    }

    /// The clusters that are reached and have an account of this name.
    pub(super) fn clusters_with(&self, name: &AccountName) -> impl Iterator<Item = &ClusterName> {
        self.by_name.get(name).into_iter().flatten().map(|(_, cluster)| cluster)
    }

    /// Whether the next call of [`Self::changed_names`] visits every account.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// The names by which tokens are watched, if not all are, and if they have changed since the last call; with the
    /// accounts whose tokens are no longer watched because there are too many names, or are watched again: their state
    /// and their copies may change without any event.
    pub fn changed_names(&mut self) -> Option<(BTreeSet<AccountName>, BTreeSet<AccountKey>)> {
        let is_unknown = std::mem::take(&mut self.is_unknown);
        if !std::mem::take(&mut self.is_outdated) && !is_unknown {
            return None;
        }
        let mut moved = BTreeSet::new();
        if is_unknown {
            let accounts = self.clusters.iter().flat_map(|(cluster, reached)| {
                reached.accounts.iter().map(move |account| (cluster, account))
            });
            let now = within_limits(accounts, self.by_name.len());
            moved = &self.left_out ^ &now.left_out;
            (self.names, self.left_out) = (now.names, now.left_out);
        }
        Some((self.names.clone(), moved))
    }

    /// Whether tokens of this account's name are not watched because there are too many names.
    pub(super) fn is_left_out(&self, key: &AccountKey) -> bool {
        self.left_out.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::token_names::TokenNames;

    fn accounts(prefix: &str, numbers: impl IntoIterator<Item = usize>) -> BTreeSet<AccountName> {
        numbers.into_iter().map(|it| AccountName::new(format!("{prefix}-{it:02}"))).collect()
    }

    /// Compares what has been returned with all names, recomputed. Returns whether anything is returned.
    fn check(reach: &mut Reach, returned: &mut TokenNames) -> bool {
        let changed = reach.changed_names();
        let is_changed = changed.is_some();
        if let Some((names, moved)) = changed {
            let left_out = &returned.left_out ^ &moved;
            *returned = TokenNames { names, left_out, ..TokenNames::default() };
        }
        let all = reach.clusters.iter();
        let all = all.flat_map(|(name, it)| it.accounts.iter().map(move |account| (name, account)));
        assert_eq!(*returned, within_limits(all, usize::MAX));
        assert_eq!(reach.left_out, returned.left_out);
        assert_eq!(reach.changed_names(), None, "nothing has changed since");
        is_changed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Clusters with names of their own, up to the limits and beyond, or none; then some of them add and remove names
        /// that they share.
        #[test]
        fn the_names_that_follow_each_change_are_the_recomputed_ones_within_the_limits_and_beyond(
            begins_with_others: bool,
            steps in vec((0..6, 0..60_usize, prop_oneof![4 => Just(1), 1 => 40..60_usize], any::<bool>()), 1..40),
        ) {
            let (mut reach, mut returned) = (Reach::default(), TokenNames::default());
            let last = [(3, 60), (4, 51), (3, 2), (0, 0), (1, 0), (2, 0)];
            let others = (0..14).map(|cluster| (cluster, 45)).chain(last);
            for (cluster, count) in others.filter(|_| begins_with_others) {
                let (name, own) = (format!("c{cluster:02}"), accounts(&format!("a-{cluster}"), 0..count));
                reach.set_cluster(&ClusterName::new(name), own, ["team".into()].into());
                assert!(check(&mut reach, &mut returned), "cluster {cluster} has {count} accounts");
            }
            for (cluster, first, count, is_last) in steps {
                let name = ClusterName::new(format!("c{cluster:02}"));
                let before = reach.clusters.get(&name).map(|it| it.accounts.clone());
                let after = &before.unwrap_or_default() ^ &accounts("shared", first..first + count);
                reach.set_cluster(&name, after, ["team".into()].into());
                let _ = is_last && check(&mut reach, &mut returned);
            }
            check(&mut reach, &mut returned);
        }
    }

    #[test]
    fn while_a_cluster_is_crowded_a_name_that_an_earlier_one_has_changes_nothing_in_another() {
        let (mut reach, mut returned) = (Reach::default(), TokenNames::default());
        let own = |names| &accounts("own", names) | &accounts("app", [55]);
        for (cluster, names, changes, recomputes) in [
            ("b", accounts("app", 0..60), true, true),
            ("c", accounts("app", [55]), true, true),
            ("d", accounts("app", [55]), false, false),
            ("d", own(0..2), true, false),
            ("e", own(0..1), false, false),
            ("d", own(0..0), true, false),
            ("a", accounts("app", [55]), true, true),
        ] {
            reach.set_cluster(&cluster.into(), names, ["team".into()].into());
            assert_eq!(reach.is_unknown, recomputes, "{cluster}");
            assert_eq!(check(&mut reach, &mut returned), changes, "{cluster}");
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
        assert!(reach.clusters_in(&"team".into()).eq([&ClusterName::from("c2")]));
        reach.set_granted(&"c2".into(), &"team".into(), false, app);
        assert_eq!(reach.changed_names(), Some(Default::default()));
    }
}
