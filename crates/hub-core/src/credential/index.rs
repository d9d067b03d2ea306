//! What the hub knows of accounts, their tokens, the copies and the profiles that these hang on: a synchronous
//! index.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use hub_api::cluster_profile::ProfileVersion;
use hub_api::labels;
use hub_api::names::{AccountKey, AccountName, ClusterName, ManagerName, Namespace, ProfileKey, SecretKey};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::credential::account::Account;
use crate::credential::copy::ObservedCopy;
use crate::credential::source::TokenSource;
use crate::fleet::{Fleet, Touched};
use crate::grant::{self, Grant};

/// How the syncer is set up.
#[derive(Debug, Clone, Default)]
pub struct SyncSettings {
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
    pub(super) settings: SyncSettings,
    accounts: BTreeMap<ClusterName, BTreeMap<AccountName, Account>>,
    all_accounts: bool,
    sources: BTreeMap<AccountKey, TokenSource>,
    listed_sources: Listed<AccountName>,
    copies: BTreeMap<Namespace, BTreeMap<Arc<str>, ObservedCopy>>,
    listed_copies: Listed<Namespace>,
    profiles: BTreeMap<ProfileKey, Profile>,
    profile_version: ProfileVersion,
}

/// Of what every object is known, so that an absence means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed<T> {
    /// Of these.
    Of(BTreeSet<T>),
    /// Of everything.
    All,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self::Of(BTreeSet::new())
    }
}

impl<T: Ord> Listed<T> {
    fn has(&self, what: &T) -> bool {
        match self {
            Self::Of(these) => these.contains(what),
            Self::All => true,
        }
    }

    /// Answers whether that is new.
    fn add(&mut self, what: Option<T>) -> bool {
        match (&mut *self, what) {
            (Self::All, _) => false,
            (Self::Of(these), Some(what)) => these.insert(what),
            (Self::Of(_), None) => {
                *self = Self::All;
                true
            }
        }
    }

    fn remove(&mut self, what: &T) {
        if let Self::Of(these) = self {
            these.remove(what);
        }
    }
}

impl CredentialIndex {
    /// An empty index.
    #[must_use]
    pub fn new(settings: SyncSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// The version of ClusterProfile that copies name their profile in.
    pub(super) fn profile_version(&self) -> ProfileVersion {
        self.profile_version
    }

    /// From now on the hub serves this version of ClusterProfile. No copy is written for that alone.
    pub fn set_profile_version(&mut self, version: ProfileVersion) {
        self.profile_version = version;
    }

    /// Every ManagedServiceAccount is known; answers whether that is new.
    pub fn accounts_listed(&mut self) -> bool {
        !std::mem::replace(&mut self.all_accounts, true)
    }

    /// Whether every ManagedServiceAccount is known.
    #[must_use]
    pub fn knows_accounts(&self) -> bool {
        self.all_accounts
    }

    /// Every token of accounts of this name, or of all, is known; answers whether that is new.
    pub fn sources_listed(&mut self, account: Option<AccountName>) -> bool {
        self.listed_sources.add(account)
    }

    /// A watch on the tokens of accounts of this name begins anew.
    pub fn forget_sources(&mut self, account: &AccountName) {
        self.listed_sources.remove(account);
        self.sources.retain(|key, _| key.account != *account);
    }

    /// Whether it is known if there is a token of an account of this name.
    #[must_use]
    pub fn knows_sources(&self, account: &AccountName) -> bool {
        self.listed_sources.has(account)
    }

    /// Every copy in this namespace, or in all, is known; answers whether that is new.
    pub fn copies_listed(&mut self, namespace: Option<Namespace>) -> bool {
        self.listed_copies.add(namespace)
    }

    /// Nobody looks any more for tokens and copies but these.
    pub fn keep_listed(
        &mut self,
        sources: impl Fn(&AccountName) -> bool,
        copies: impl Fn(&Namespace) -> bool,
    ) {
        if let Listed::Of(these) = &mut self.listed_sources {
            these.retain(&sources);
            self.sources.retain(|key, _| sources(&key.account));
        }
        if let Listed::Of(these) = &mut self.listed_copies {
            these.retain(&copies);
            self.copies.retain(|namespace, _| copies(namespace));
        }
    }

    /// A watch on the copies in this namespace begins anew.
    pub fn forget_copies(&mut self, namespace: &Namespace) {
        self.listed_copies.remove(namespace);
        self.copies.remove(namespace);
    }

    /// Whether the copies of a namespace can be judged: an absence means nothing before all of them are known.
    #[must_use]
    pub fn knows_copies(&self, namespace: &Namespace) -> bool {
        self.listed_copies.has(namespace)
    }

    /// Whether any copy is known in a namespace.
    #[must_use]
    pub fn has_copies(&self, namespace: &Namespace) -> bool {
        self.copies.contains_key(namespace)
    }

    /// The token of an account, as its agent has reported it.
    #[must_use]
    pub fn source(&self, key: &AccountKey) -> Option<&TokenSource> {
        self.sources.get(key)
    }

    /// The names of the accounts that ask for copies.
    #[must_use]
    pub fn asking(&self) -> BTreeSet<AccountName> {
        let accounts = self.accounts.values().flatten();
        accounts.filter(|(_, account)| account.asks).map(|(name, _)| name.clone()).collect()
    }

    /// The account of that name.
    #[must_use]
    pub fn account(&self, key: &AccountKey) -> Option<&Account> {
        self.accounts.get(&key.cluster)?.get(&key.account)
    }

    /// When the token of an account ends, if it says so.
    #[must_use]
    pub fn expiry(&self, key: &AccountKey) -> Option<Timestamp> {
        self.sources.get(key)?.credential.as_ref().ok()?.expires
    }

    /// Every account's name, in order.
    pub fn accounts(&self) -> impl Iterator<Item = AccountKey> {
        self.accounts.iter().flat_map(|(cluster, accounts)| {
            let key =
                |account: &AccountName| AccountKey { cluster: cluster.clone(), account: account.clone() };
            accounts.keys().map(key)
        })
    }

    /// The copy at a place, or what stands there.
    #[must_use]
    pub fn copy(&self, key: &SecretKey) -> Option<&ObservedCopy> {
        self.copies.get(&key.namespace)?.get(&key.name)
    }

    /// The profile of a cluster in a namespace.
    #[must_use]
    pub fn profile(&self, key: &ProfileKey) -> Option<&Profile> {
        self.profiles.get(key)
    }

    /// Takes in a ManagedServiceAccount as it is now; answers whether copies may have to change.
    pub fn apply_account(&mut self, key: AccountKey, account: Account) -> bool {
        let accounts = self.accounts.entry(key.cluster).or_default();
        let changed = accounts.get(&key.account).is_none_or(|before| !before.asks_the_same_as(&account));
        accounts.insert(key.account, account);
        changed
    }

    /// Forgets a ManagedServiceAccount that is gone, or no longer asks.
    pub fn delete_account(&mut self, key: &AccountKey) {
        if let Some(accounts) = self.accounts.get_mut(&key.cluster) {
            accounts.remove(&key.account);
            if accounts.is_empty() {
                self.accounts.remove(&key.cluster);
            }
        }
    }

    /// Takes in the Secret with the token of an account; answers whether it differs from before.
    pub fn apply_source(&mut self, key: AccountKey, source: TokenSource) -> bool {
        if self.sources.get(&key) == Some(&source) {
            return false;
        }
        self.sources.insert(key, source);
        true
    }

    /// Forgets the token of an account.
    pub fn delete_source(&mut self, key: &AccountKey) {
        self.sources.remove(key);
    }

    /// Takes in a Secret where a copy belongs; answers whether it differs from before.
    pub fn apply_copy(&mut self, key: &SecretKey, observed: ObservedCopy) -> bool {
        let copies = self.copies.entry(key.namespace.clone()).or_default();
        if copies.get(&key.name) == Some(&observed) {
            return false;
        }
        copies.insert(Arc::clone(&key.name), observed);
        true
    }

    /// Forgets a copy that is gone.
    pub fn delete_copy(&mut self, key: &SecretKey) {
        if let Some(copies) = self.copies.get_mut(&key.namespace) {
            copies.remove(&key.name);
            if copies.is_empty() {
                self.copies.remove(&key.namespace);
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
                self.accounts.get(*cluster).is_some_and(|accounts| accounts.contains_key(*account))
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
        let there = self.copies.iter().filter(|(_, copies)| copies.contains_key(&name));
        granted.chain(there.map(|(namespace, _)| namespace)).map(place).collect()
    }

    /// The copies, there or wanted, of the accounts of a cluster in a namespace; and perhaps some of another
    /// cluster whose name begins with this one's.
    #[must_use]
    pub fn places_at(&self, fleet: &Fleet, key: &ProfileKey) -> BTreeSet<SecretKey> {
        let place = |name: Arc<str>| SecretKey { namespace: key.namespace.clone(), name };
        let mut places = BTreeSet::new();
        let is_granted = |cluster: &ClusterName| is_granted(fleet, &key.namespace, cluster);
        let itself = is_granted(&key.cluster);
        for account in self.accounts.get(&key.cluster).into_iter().flat_map(BTreeMap::keys) {
            let named = AccountKey { cluster: key.cluster.clone(), account: account.clone() };
            let name = named.copy_name();
            // A cluster that is granted no longer makes room for the account of another that shares the name.
            if itself || self.accounts_named(&name).any(|other| is_granted(&other.cluster)) {
                places.insert(place(name.into()));
            }
        }
        if let Some(copies) = self.copies.get(&key.namespace) {
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
                let namespaces: BTreeSet<_> = fleet.namespaces().chain(self.copies.keys()).collect();
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
        let namespaces: BTreeSet<_> = fleet.namespaces().chain(self.copies.keys()).collect();
        namespaces.into_iter().flat_map(|namespace| self.places_in(fleet, namespace)).collect()
    }

    fn places_in(&self, fleet: &Fleet, namespace: &Namespace) -> BTreeSet<SecretKey> {
        let place = |name: Arc<str>| SecretKey { namespace: namespace.clone(), name };
        let there = self.copies.get(namespace).into_iter().flat_map(BTreeMap::keys).cloned();
        let granted = self.accounts().filter(|key| is_granted(fleet, namespace, &key.cluster));
        there.chain(granted.map(|key| key.copy_name().into())).map(place).collect()
    }
}

/// Whether a namespace sees a cluster, or may.
fn is_granted(fleet: &Fleet, namespace: &Namespace, cluster: &ClusterName) -> bool {
    let key = ProfileKey { namespace: namespace.clone(), cluster: cluster.clone() };
    grant::decide(fleet, &key) != Grant::Refused
}
