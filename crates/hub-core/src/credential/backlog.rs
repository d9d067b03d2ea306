//! What changes concern, in portions: a hub has tens of thousands of copies in a namespace, and other tasks of the thread
//! run between two portions.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, Namespace, ProfileKey, SecretKey};
use hub_api::text::Text;

use crate::credential::account::accounts_of_copy;
use crate::credential::index::CredentialIndex;
use crate::fleet::{Fleet, Touched};

/// The maximum number of keys, clusters or accounts in a portion: some milliseconds of work.
pub const AT_ONCE: usize = 256;

/// Copies to plan again, or accounts to report on; neither while they are still to be found.
pub type Portion = (Vec<SecretKey>, Vec<AccountKey>);

/// The copies to plan again, and the accounts to report on.
#[derive(Debug, Default)]
pub struct Backlog {
    copies: BTreeSet<SecretKey>,
    /// The accounts whose copies are all concerned.
    pub copies_of: BTreeSet<AccountKey>,
    /// The clusters whose copies in a namespace are all concerned, with whether their accounts report on them.
    profiles: BTreeMap<ProfileKey, bool>,
    /// The namespaces whose copies are all concerned, with whether accounts report on them, and the name of the first known
    /// copy that is left, or `None` if the clusters are, too.
    namespaces: BTreeMap<Namespace, (bool, Option<Text>)>,
    accounts: BTreeSet<AccountKey>,
    /// Whether every copy and every account is concerned.
    pub everything: bool,
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
            let (reported, from) = self.namespaces.entry(namespace).or_default();
            (*reported, *from) = (*reported || reports, None);
        }
    }

    /// Whether a copy is still to be planned again, or may be.
    #[must_use]
    pub fn has(&self, key: &SecretKey) -> bool {
        self.everything
            || self.copies.contains(key)
            || self.namespaces.contains_key(&key.namespace)
            || accounts_of_copy(&key.name).any(|account| {
                self.copies_of.contains(&account)
                    || self.profiles.contains_key(&account.cluster.in_namespace(&key.namespace))
            })
    }

    /// Takes the next portion, if there is any. Updates the reach.
    pub fn next(&mut self, index: &mut CredentialIndex, fleet: &Fleet) -> Option<Portion> {
        let copies = first(&mut self.copies);
        if !copies.is_empty() {
            return Some((copies, Vec::new()));
        }
        if std::mem::take(&mut self.everything) {
            self.add_namespaces(index.namespaces(fleet), false);
            self.copies_of.clear();
            self.accounts = index.accounts().collect();
        } else if let Some(account) = self.copies_of.pop_first() {
            self.copies.extend(index.keys_of(fleet, &account));
        } else if !self.profiles.is_empty() {
            for (key, reports) in std::iter::from_fn(|| self.profiles.pop_first()).take(AT_ONCE) {
                let (is_granted, asking) = index.reach_in(fleet, &key);
                let granted = asking.iter().filter(|_| is_granted);
                self.copies.extend(granted.map(|account| account.copy_in(&key.namespace)));
                self.accounts.extend(asking.into_iter().filter(|_| reports));
            }
        } else if let Some((namespace, (reports, from))) = self.namespaces.pop_first() {
            for cluster in index.clusters_concerning(fleet, &namespace).filter(|_| from.is_none()) {
                let key = cluster.in_namespace(&namespace);
                *self.profiles.entry(key).or_default() |= reports;
            }
            let mut known = index.known_keys(&namespace, from.as_deref().unwrap_or_default());
            self.copies.extend(known.by_ref().take(AT_ONCE));
            if let Some(SecretKey { namespace, name }) = known.next() {
                self.namespaces.insert(namespace, (reports, Some(name)));
            }
        } else {
            let accounts = first(&mut self.accounts);
            return (!accounts.is_empty()).then_some((copies, accounts));
        }
        Some((copies, Vec::new()))
    }
}

/// Takes as many as a portion has.
fn first<T: Ord>(all: &mut BTreeSet<T>) -> Vec<T> {
    std::iter::from_fn(|| all.pop_first()).take(AT_ONCE).collect()
}
