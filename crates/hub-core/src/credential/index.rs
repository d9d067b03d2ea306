//! What the hub knows of accounts, their tokens, the copies and the profiles that these hang on: a synchronous
//! index.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use hub_api::labels;
use hub_api::names::{AccountKey, AccountName, ClusterName, ManagerName, Namespace, ProfileKey, SecretKey};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::credential::account::Account;
use crate::credential::copy::Observed;
use crate::credential::source::Source;
use crate::fleet::{Fleet, Touched};
use crate::grant::{self, Grant};

/// How the syncer is set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The cluster manager whose profiles copies hang on.
    pub manager: ManagerName,
    /// Whether an account without the annotation [`labels::SYNC_TO_NAMESPACES`] asks for no copy.
    pub require_namespaces: bool,
}

/// What a copy hangs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// `metadata.uid`.
    pub uid: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// The cluster manager that its label names, if any.
    pub manager: Option<String>,
}

impl Profile {
    /// Reads the metadata of a ClusterProfile.
    #[must_use]
    pub fn read(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            terminating: metadata.deletion_timestamp.is_some(),
            manager: metadata.labels.as_ref().and_then(|all| all.get(labels::CLUSTER_MANAGER)).cloned(),
        }
    }
}

/// The index. What decisions read of the clusters, sets and bindings is in the [`Fleet`].
#[derive(Debug, Default)]
pub struct CredentialIndex {
    pub(super) settings: Settings,
    pub(super) accounts: Listed<BTreeMap<ClusterName, BTreeMap<AccountName, Account>>>,
    pub(super) sources: Listed<BTreeMap<AccountKey, Source>>,
    copies: Listed<BTreeMap<Namespace, BTreeMap<Arc<str>, Observed>>>,
    profiles: BTreeMap<ProfileKey, Profile>,
}

/// What is known of a kind, and whether that is all there is.
#[derive(Debug, Default)]
pub(super) struct Listed<T> {
    pub(super) known: T,
    pub(super) complete: bool,
}

impl CredentialIndex {
    /// An empty index.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Every ManagedServiceAccount is known; answers whether that is new.
    pub fn accounts_listed(&mut self) -> bool {
        !std::mem::replace(&mut self.accounts.complete, true)
    }

    /// Every token that an agent has reported is known; answers whether that is new.
    pub fn sources_listed(&mut self) -> bool {
        !std::mem::replace(&mut self.sources.complete, true)
    }

    /// Every copy is known; answers whether that is new.
    pub fn copies_listed(&mut self) -> bool {
        !std::mem::replace(&mut self.copies.complete, true)
    }

    /// Whether copies can be judged at all: an absence means nothing before every copy is known.
    #[must_use]
    pub fn knows_copies(&self) -> bool {
        self.copies.complete
    }

    /// The account of that name.
    #[must_use]
    pub fn account(&self, key: &AccountKey) -> Option<&Account> {
        self.accounts.known.get(&key.cluster)?.get(&key.account)
    }

    /// When the token of an account ends, if it says so.
    #[must_use]
    pub fn expiry(&self, key: &AccountKey) -> Option<Timestamp> {
        self.sources.known.get(key)?.credential.as_ref().ok()?.expires
    }

    /// Every account's name, in order.
    pub fn accounts(&self) -> impl Iterator<Item = AccountKey> {
        self.accounts.known.iter().flat_map(|(cluster, accounts)| {
            let key =
                |account: &AccountName| AccountKey { cluster: cluster.clone(), account: account.clone() };
            accounts.keys().map(key)
        })
    }

    /// The copy at a place, or what stands there.
    #[must_use]
    pub fn copy(&self, key: &SecretKey) -> Option<&Observed> {
        self.copies.known.get(&key.namespace)?.get(&key.name)
    }

    /// The profile of a cluster in a namespace.
    #[must_use]
    pub fn profile(&self, key: &ProfileKey) -> Option<&Profile> {
        self.profiles.get(key)
    }

    /// Takes in a ManagedServiceAccount as it is now; answers whether copies may have to change.
    pub fn apply_account(&mut self, key: AccountKey, account: Account) -> bool {
        let accounts = self.accounts.known.entry(key.cluster).or_default();
        let changed = accounts.get(&key.account).is_none_or(|before| !before.asks_the_same_as(&account));
        accounts.insert(key.account, account);
        changed
    }

    /// Forgets a ManagedServiceAccount that is gone, or no longer asks.
    pub fn delete_account(&mut self, key: &AccountKey) {
        if let Some(accounts) = self.accounts.known.get_mut(&key.cluster) {
            accounts.remove(&key.account);
            if accounts.is_empty() {
                self.accounts.known.remove(&key.cluster);
            }
        }
    }

    /// Takes in the Secret with the token of an account; answers whether it differs from before.
    pub fn apply_source(&mut self, key: AccountKey, source: Source) -> bool {
        if self.sources.known.get(&key) == Some(&source) {
            return false;
        }
        self.sources.known.insert(key, source);
        true
    }

    /// Forgets the token of an account.
    pub fn delete_source(&mut self, key: &AccountKey) {
        self.sources.known.remove(key);
    }

    /// Takes in a Secret where a copy belongs; answers whether it differs from before.
    pub fn apply_copy(&mut self, key: &SecretKey, observed: Observed) -> bool {
        let copies = self.copies.known.entry(key.namespace.clone()).or_default();
        if copies.get(&key.name) == Some(&observed) {
            return false;
        }
        copies.insert(Arc::clone(&key.name), observed);
        true
    }

    /// Forgets a copy that is gone.
    pub fn delete_copy(&mut self, key: &SecretKey) {
        if let Some(copies) = self.copies.known.get_mut(&key.namespace) {
            copies.remove(&key.name);
            if copies.is_empty() {
                self.copies.known.remove(&key.namespace);
            }
        }
    }

    /// Takes in a profile; answers whether it differs from before.
    pub fn apply_profile(&mut self, key: ProfileKey, profile: Profile) -> bool {
        if self.profiles.get(&key) == Some(&profile) {
            return false;
        }
        self.profiles.insert(key, profile);
        true
    }

    /// Forgets a profile that is gone.
    pub fn delete_profile(&mut self, key: &ProfileKey) {
        self.profiles.remove(key);
    }

    /// The accounts whose copies have this name: a cluster's name before one of its dashes, an account's behind.
    pub(super) fn accounts_named(&self, name: &str) -> impl Iterator<Item = AccountKey> {
        name.match_indices('-')
            .map(|(dash, _)| (&name[..dash], &name[dash + 1..]))
            .filter(|(cluster, account)| {
                self.accounts.known.get(*cluster).is_some_and(|accounts| accounts.contains_key(*account))
            })
            .map(|(cluster, account)| AccountKey { cluster: cluster.into(), account: account.into() })
    }

    /// Where the copies of an account are or may have to be.
    #[must_use]
    pub fn places_of(&self, fleet: &Fleet, key: &AccountKey) -> Vec<SecretKey> {
        let name: Arc<str> = key.copy_name().into();
        let place =
            |namespace: &Namespace| SecretKey { namespace: namespace.clone(), name: Arc::clone(&name) };
        let granted = fleet.namespaces().filter(|namespace| is_granted(fleet, namespace, &key.cluster));
        let there = self.copies.known.iter().filter(|(_, copies)| copies.contains_key(&name));
        granted.chain(there.map(|(namespace, _)| namespace)).map(place).collect()
    }

    /// The copies, there or wanted, of the accounts of a cluster in a namespace; and perhaps some of another
    /// cluster whose name begins with this one's.
    #[must_use]
    pub fn places_at(&self, fleet: &Fleet, key: &ProfileKey) -> BTreeSet<SecretKey> {
        let place = |name: Arc<str>| SecretKey { namespace: key.namespace.clone(), name };
        let mut places = BTreeSet::new();
        if is_granted(fleet, &key.namespace, &key.cluster) {
            let accounts = self.accounts.known.get(&key.cluster).into_iter().flat_map(BTreeMap::keys);
            let named =
                |account: &AccountName| AccountKey { cluster: key.cluster.clone(), account: account.clone() };
            places.extend(accounts.map(|account| place(named(account).copy_name().into())));
        }
        if let Some(copies) = self.copies.known.get(&key.namespace) {
            let prefix = format!("{}-", key.cluster);
            let from = copies.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
            let there = from.take_while(|(name, _)| name.starts_with(&prefix));
            places.extend(there.map(|(name, _)| place(Arc::clone(name))));
        }
        places
    }

    /// The copies that a change of the fleet concerns, and the accounts of which there is something else to say.
    #[must_use]
    pub fn concerned(&self, fleet: &Fleet, touched: &Touched) -> (BTreeSet<SecretKey>, Vec<AccountKey>) {
        match touched {
            Touched::Nothing => (BTreeSet::new(), Vec::new()),
            Touched::Cluster(cluster) => {
                let at = |namespace: &Namespace| {
                    self.places_at(
                        fleet,
                        &ProfileKey { namespace: namespace.clone(), cluster: cluster.clone() },
                    )
                };
                let namespaces: BTreeSet<_> = fleet.namespaces().chain(self.copies.known.keys()).collect();
                let accounts = self.accounts().filter(|key| key.cluster == *cluster).collect();
                (namespaces.into_iter().flat_map(at).collect(), accounts)
            }
            Touched::Namespaces(namespaces) => (
                namespaces.iter().flat_map(|it| self.places_in(fleet, it)).collect(),
                self.accounts().collect(),
            ),
        }
    }

    /// Every copy, there or wanted.
    #[must_use]
    pub fn places(&self, fleet: &Fleet) -> BTreeSet<SecretKey> {
        let namespaces: BTreeSet<_> = fleet.namespaces().chain(self.copies.known.keys()).collect();
        namespaces.into_iter().flat_map(|namespace| self.places_in(fleet, namespace)).collect()
    }

    fn places_in(&self, fleet: &Fleet, namespace: &Namespace) -> BTreeSet<SecretKey> {
        let place = |name: Arc<str>| SecretKey { namespace: namespace.clone(), name };
        let there = self.copies.known.get(namespace).into_iter().flat_map(BTreeMap::keys).cloned();
        let granted = self.accounts().filter(|key| is_granted(fleet, namespace, &key.cluster));
        there.chain(granted.map(|key| key.copy_name().into())).map(place).collect()
    }
}

/// Whether a namespace sees a cluster, or may.
fn is_granted(fleet: &Fleet, namespace: &Namespace, cluster: &ClusterName) -> bool {
    let key = ProfileKey { namespace: namespace.clone(), cluster: cluster.clone() };
    grant::decide(fleet, &key) != Grant::Refused
}
