//! What changes concern, in portions: a hub has tens of thousands of copies in a namespace, and other tasks of the thread
//! run between two portions.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, Namespace, ProfileKey, SecretKey};
use hub_api::text::Text;

use crate::credential::account::accounts_of_copy;
use crate::credential::index::CredentialIndex;
use crate::fleet::{Fleet, Touched};
use crate::in_turn::InTurn;

/// How many copies, clusters and accounts a portion has at most, of each: some milliseconds of work.
pub const AT_ONCE: usize = 256;

/// Copies to plan again, or accounts to report on; neither while they are still to be found.
pub type Portion = (Vec<SecretKey>, Vec<AccountKey>);

/// With so many copies to plan again, only those that exist are added: all that may have to exist take much memory.
const MANY: usize = 40 * AT_ONCE;

/// The copies to plan again, and the accounts to report on.
#[derive(Debug, Default)]
pub struct Backlog {
    copies: InTurn<SecretKey>,
    /// The accounts whose copies are all concerned.
    pub copies_of: InTurn<AccountKey>,
    /// The clusters whose copies in a namespace are all concerned, with whether their accounts report on them.
    profiles: BTreeMap<ProfileKey, bool>,
    /// The namespaces whose copies are all concerned.
    namespaces: InTurn<Namespace>,
    /// How far each of these has been visited.
    visits: BTreeMap<Namespace, Visit>,
    accounts: BTreeSet<AccountKey>,
    /// Whether every copy and every account is concerned.
    pub everything: bool,
}

/// The visit of a namespace: first of the known copies, since tokens that have to end are among them, and then of the
/// clusters.
#[derive(Debug, Default)]
struct Visit {
    /// Whether the accounts that opt in to the namespace report on that.
    reports: bool,
    /// The name of the first known copy that is left; `None` before all.
    from: Option<Text>,
    /// Whether the namespace has changed since the visit began: it ends all the same, and then another one begins.
    again: bool,
}

impl Backlog {
    /// Adds what a change of the fleet concerns, and updates the reach of a cluster.
    pub fn add(&mut self, index: &mut CredentialIndex, fleet: &Fleet, touched: &Touched) {
        match touched {
            Touched::Nothing | Touched::Report(_) => {}
            Touched::Cluster(cluster) => {
                index.reach_cluster(fleet, cluster);
                self.copies.extend(index.copies.of_cluster(cluster));
                for account in index.accounts_of(cluster) {
                    self.copies_of.extend(index.accounts_named(&account.copy_name()));
                    self.accounts.insert(account);
                }
                // The namespace of a cluster is protected as long as the cluster exists.
                self.add_namespaces([cluster.as_str().into()], true);
            }
            Touched::Namespaces(these) => self.add_namespaces(these.iter().cloned(), true),
        }
    }

    /// Adds the copies in these namespaces, and the accounts that opt in to one if they report on that.
    pub fn add_namespaces(&mut self, these: impl IntoIterator<Item = Namespace>, reports: bool) {
        for namespace in these {
            let visit = self.visits.entry(namespace.clone()).or_default();
            visit.reports |= reports;
            visit.again |= visit.from.is_some();
            self.namespaces.extend([namespace]);
        }
    }

    /// Whether a copy is still to be planned again, or may be.
    #[must_use]
    pub fn has(&self, key: &SecretKey) -> bool {
        self.everything
            || self.copies.contains(key)
            || self.visits.contains_key(&key.namespace)
            // Each report asks this of many copies, and most of the time nothing waits.
            || self.copies_of.count() + self.profiles.len() > 0
                && accounts_of_copy(&key.name).any(|account| {
                    self.copies_of.contains(&account)
                        || self.profiles.contains_key(&account.cluster.in_namespace(&key.namespace))
                })
    }

    /// Takes the next portion, if there is any. Updates the reach.
    pub fn next(&mut self, index: &mut CredentialIndex, fleet: &Fleet) -> Option<Portion> {
        let copies = self.copies.take(AT_ONCE);
        if self.find(index, fleet) || !copies.is_empty() {
            return Some((copies, Vec::new()));
        }
        let accounts = std::iter::from_fn(|| self.accounts.pop_first()).take(AT_ONCE);
        let accounts: Vec<_> = accounts.collect();
        (!accounts.is_empty()).then_some((copies, accounts))
    }

    /// Finds further copies to plan again; returns whether anything was left to look through.
    fn find(&mut self, index: &mut CredentialIndex, fleet: &Fleet) -> bool {
        if std::mem::take(&mut self.everything) {
            self.add_namespaces(index.namespaces(fleet), false);
            self.copies_of.clear();
            self.accounts = index.accounts().collect();
        }
        let was_visited = self.visit(index, fleet);
        if self.copies.count() >= MANY {
            return true;
        }
        let mut found = 0;
        while found < AT_ONCE
            && let Some(account) = self.copies_of.pop()
        {
            let keys = index.keys_of(fleet, &account);
            found += keys.len() + 1;
            self.copies.extend(keys);
        }
        for (key, reports) in std::iter::from_fn(|| self.profiles.pop_first()).take(AT_ONCE) {
            let (is_granted, asking) = index.reach_in(fleet, &key);
            let granted = asking.iter().filter(|_| is_granted);
            self.copies.extend(granted.map(|account| account.copy_in(&key.namespace)));
            self.accounts.extend(asking.into_iter().filter(|_| reports));
            found += 1;
        }
        was_visited || found > 0
    }

    /// Visits the next namespace, if any waits: some of its known copies, or at their end its clusters.
    fn visit(&mut self, index: &CredentialIndex, fleet: &Fleet) -> bool {
        if self.profiles.len() >= MANY {
            return true;
        }
        let Some(namespace) = self.namespaces.pop() else { return false };
        let mut visit = self.visits.remove(&namespace).unwrap_or_default();
        let from = visit.from.take();
        let mut known = index.known_keys(&namespace, from.as_deref().unwrap_or_default());
        self.copies.extend(known.by_ref().take(AT_ONCE));
        let next = known.next();
        drop(known);
        if let Some(next) = next {
            visit.from = Some(next.name);
            self.visits.insert(namespace.clone(), visit);
            self.namespaces.extend([namespace]);
            return true;
        }
        for cluster in index.clusters_concerning(fleet, &namespace) {
            *self.profiles.entry(cluster.in_namespace(&namespace)).or_default() |= visit.reports;
        }
        if visit.again {
            self.add_namespaces([namespace], visit.reports);
        }
        true
    }
}
