//! The index of accounts, their tokens, the copies and the profiles that own them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hub_api::cluster_profile::ServedVersions;
use hub_api::labels;
use hub_api::names::{
    AccountKey, AccountName, ClusterName, ManagerName, Namespace, ProfileKey, SecretKey,
};
use hub_api::text::Text;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::credential::account::{Account, Scope, accounts_of_copy, splits};
use crate::credential::copy::ObservedCopy;
use crate::credential::reach::Reach;
use crate::credential::secret_map::SecretMap;
use crate::credential::source::{Credential, TokenSource};
use crate::credential::state::State;
use crate::credential::tally::{Change, Counted, Tally};
use crate::fleet::Fleet;
use crate::grant;
use crate::nested;
use crate::own_identity;
use crate::protected::ProtectedNamespaces;
use crate::version::Uid;

/// Settings of the syncer.
#[derive(Debug, Clone, Default)]
pub struct SyncSettings {
    /// The cluster manager whose profiles own copies.
    pub manager: ManagerName,
    /// Whether an account without the annotation [`labels::SYNC_TO_NAMESPACES`] gets no copy.
    pub require_namespaces: bool,
    /// The namespaces that receive no copy, even if a set is bound there.
    pub protected: ProtectedNamespaces,
    /// Whether to copy tokens that were reported before their ManagedCluster was created, as all are on a hub that was
    /// restored from a backup of its objects.
    pub trust_restored: bool,
}

/// The profile that owns a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileMetadata {
    pub uid: Uid,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// The cluster manager that its label names, if any.
    pub labelled_manager: Option<Text>,
    /// The cluster manager that its spec names, if readable. It is immutable.
    pub manager: Option<Text>,
}

impl ProfileMetadata {
    /// Reads a ClusterProfile: its metadata, and `spec.clusterManager.name`.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, manager: Option<&str>) -> Self {
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            terminating: metadata.deletion_timestamp.is_some(),
            labelled_manager: labels::get(metadata, labels::CLUSTER_MANAGER).map(Text::from),
            manager: manager.map(Text::from),
        }
    }

    /// Whether its label or its spec names another cluster manager.
    pub(super) fn is_foreign_to(&self, manager: &ManagerName) -> bool {
        let named = [&self.labelled_manager, &self.manager];
        named.into_iter().flatten().any(|other| **other != *manager.as_str())
    }

    /// Whether its label or its spec names no cluster manager.
    pub(super) fn is_unmarked(&self) -> bool {
        self.labelled_manager.is_none() || self.manager.is_none()
    }
}

/// What is known about the Secret with one key.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Slot {
    /// The Secret there, if observed.
    observed: Option<ObservedCopy>,
    /// The Secret that this process has created there and not deleted.
    created: Option<CreatedCopy>,
    /// What the API server refuses to do there.
    refused: Option<Refused>,
    /// What was planned last, as far as it is counted.
    planned: Counted,
}

/// A Secret that this process created, or that is exactly as it creates one. Labels and managedFields do not prove
/// this, since a tenant can write and remove them; only the API server sets the uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedCopy {
    pub uid: Uid,
    /// The account whose token it got.
    pub account: AccountKey,
}

/// A refused write: because of a quota, a webhook or a policy, or a missing permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// To create or to change a copy.
    Write,
    /// To delete a copy.
    Delete,
}

type Accounts = BTreeMap<ClusterName, BTreeMap<AccountName, Box<Account>>>;

/// The accounts of a cluster that opt in, and whose tokens may be copied.
fn asking(accounts: &Accounts, cluster: &ClusterName) -> BTreeSet<AccountName> {
    let accounts = accounts.get(cluster).into_iter().flatten();
    let asking =
        accounts.filter(|(name, account)| account.opts_in && !own_identity::is_reserved(name));
    asking.map(|(name, _)| name.clone()).collect()
}

/// An account that names more namespaces than these may name thousands that are not granted its cluster, so what is
/// granted is visited.
const FEW: usize = 16;

/// The index of accounts, tokens, copies and profiles. Clusters, sets and bindings are in the [`Fleet`].
///
/// Nothing is decided by what a list has shown before it is complete, or after its kind could not be read for a minute,
/// except that a copy that is known is still deleted when its grant ends.
#[derive(Debug, Default)]
pub struct CredentialIndex {
    pub(super) settings: SyncSettings,
    accounts: Accounts,
    /// Whether every ManagedServiceAccount is known.
    pub knows_accounts: bool,
    sources: BTreeMap<AccountKey, TokenSource>,
    /// The names of accounts of which every token is known.
    pub listed_sources: Listed<AccountName>,
    /// The accounts whose tokens may be copied, and their names.
    pub reach: Reach,
    pub(super) copies: SecretMap<Box<Slot>>,
    /// What was planned last, by account.
    pub tally: Tally,
    /// The namespaces of which every copy is known.
    pub listed_copies: Listed<Namespace>,
    /// The namespaces with a permission for copies; `None` if it is for all.
    pub permitted: Option<BTreeSet<Namespace>>,
    profiles: BTreeMap<Namespace, BTreeMap<ClusterName, ProfileMetadata>>,
    /// Whether ClusterProfiles cannot be read.
    pub profiles_unread: bool,
    /// Whether the RoleBindings that give the permission for copies cannot be read.
    pub permissions_unread: bool,
    /// The served versions of ClusterProfile. Only copies whose owner reference has another version are rewritten.
    pub served_versions: ServedVersions,
}

/// Which lists are complete: an object that is missing from one of these does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed<T> {
    /// Those of these namespaces or accounts.
    Of(BTreeSet<T>),
    All,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self::Of(BTreeSet::new())
    }
}

impl<T: Clone + Ord> Listed<T> {
    /// Whether the list of this namespace or account is complete.
    pub fn has(&self, what: &T) -> bool {
        match self {
            Self::Of(these) => these.contains(what),
            Self::All => true,
        }
    }

    /// Records whether this list, or with `None` every list, is complete; returns whether that is new.
    pub fn set(&mut self, what: Option<&T>, is_complete: bool) -> bool {
        match (&mut *self, what) {
            (Self::Of(these), Some(what)) if is_complete => these.insert(what.clone()),
            (Self::Of(these), Some(what)) => these.remove(what),
            (Self::All, Some(_)) => false,
            (_, None) => {
                let all = if is_complete { Self::All } else { Self::default() };
                let before = std::mem::replace(self, all);
                *self != before
            }
        }
    }
}

impl CredentialIndex {
    #[must_use]
    pub fn new(settings: SyncSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Forgets the tokens of accounts of these names: they are no longer watched.
    pub fn forget_sources(&mut self, accounts: &BTreeSet<AccountName>) {
        for account in accounts {
            self.listed_sources.set(Some(account), false);
        }
        self.sources.retain(|key, _| !accounts.contains(&key.account));
    }

    /// Forgets the copies in this namespace: they are no longer watched. What this process created stays known, since it
    /// may have to be deleted.
    pub fn forget_copies(&mut self, namespace: &Namespace) {
        self.listed_copies.set(Some(namespace), false);
        let keys: Vec<_> = self.known_keys(namespace, "").collect();
        for key in keys {
            self.change_slot(&key, |slot| slot.observed = None);
        }
    }

    /// Whether the syncer has the permission for copies in a namespace, as far as is known.
    #[must_use]
    pub fn permits_copies(&self, namespace: &Namespace) -> bool {
        self.permitted.as_ref().is_none_or(|permitted| permitted.contains(namespace))
    }

    /// Whether any copy is known in a namespace.
    #[must_use]
    pub fn has_copies(&self, namespace: &Namespace) -> bool {
        let mut slots = self.copies.in_namespace(namespace, "");
        slots.any(|(_, slot)| slot.observed.is_some() || slot.created.is_some())
    }

    /// Whether no copy may be in a namespace, now or with the next change of an account: no set is bound there, or it
    /// is protected.
    pub(super) fn receives_nothing(&self, fleet: &Fleet, namespace: &Namespace) -> bool {
        !grant::is_bound(fleet, namespace) || self.settings.protected.protects(fleet, namespace)
    }

    /// The keys in a namespace, from this name on, with a known Secret, or with a state: one without a Secret may no longer be
    /// wanted.
    pub fn known_keys(&self, namespace: &Namespace, from: &str) -> impl Iterator<Item = SecretKey> {
        let slots = self.copies.in_namespace(namespace, from);
        slots.map(|(name, _)| SecretKey { namespace: namespace.clone(), name: name.clone() })
    }

    /// The Secrets with the keys of copies in a namespace, by name.
    pub fn copies_in(&self, namespace: &Namespace) -> impl Iterator<Item = (&Text, &ObservedCopy)> {
        let slots = self.copies.in_namespace(namespace, "");
        slots.filter_map(|(name, slot)| Some((name, slot.observed.as_ref()?)))
    }

    /// Whether any Secret with the name of copies of an account is known.
    fn has_copy_of(&self, account: &AccountKey) -> bool {
        let mut namespaces = self.copies.namespaces_with(&account.copy_name());
        namespaces.any(|namespace| {
            let key = account.copy_in(namespace);
            self.copy(&key).is_some() || self.created(&key).is_some()
        })
    }

    /// The namespaces with Secrets that have the keys of copies, or with a state of one.
    pub fn namespaces_of_copies(&self) -> impl Iterator<Item = &Namespace> {
        self.copies.namespaces()
    }

    /// The Secret with the token of an account, as its agent reported it.
    #[must_use]
    pub fn source(&self, key: &AccountKey) -> Option<&TokenSource> {
        self.sources.get(key)
    }

    /// The credential of an account, if it has a valid one.
    pub(super) fn credential(&self, account: &AccountKey) -> Option<&Credential> {
        self.source(account)?.credential.as_deref().ok()
    }

    /// Updates the reach of a cluster whose accounts have changed.
    pub fn reach_accounts(&mut self, fleet: &Fleet, cluster: &ClusterName) {
        let accounts = asking(&self.accounts, cluster);
        let granted = || grant::namespaces_of(fleet, cluster).cloned().collect();
        self.reach.set_accounts(cluster, accounts, granted);
    }

    /// Updates the reach of a cluster, whose accounts or grants have changed.
    pub fn reach_cluster(&mut self, fleet: &Fleet, cluster: &ClusterName) {
        let accounts = asking(&self.accounts, cluster);
        let namespaces = if accounts.is_empty() {
            BTreeSet::new()
        } else {
            grant::namespaces_of(fleet, cluster).cloned().collect()
        };
        self.reach.set_cluster(cluster, accounts, namespaces);
    }

    #[must_use]
    pub fn account(&self, key: &AccountKey) -> Option<&Account> {
        self.accounts.get(&key.cluster)?.get(&key.account).map(Box::as_ref)
    }

    /// When the token of an account expires, if known.
    #[must_use]
    pub fn expiry(&self, key: &AccountKey) -> Option<Timestamp> {
        self.credential(key)?.expires
    }

    /// The known accounts of a cluster.
    pub fn accounts_on(
        &self,
        cluster: &ClusterName,
    ) -> impl Iterator<Item = (&AccountName, &Account)> {
        let accounts = self.accounts.get(cluster).into_iter().flatten();
        accounts.map(|(name, account)| (name, &**account))
    }

    /// Every account's name, in order.
    pub fn accounts(&self) -> impl Iterator<Item = AccountKey> {
        self.accounts.keys().flat_map(|cluster| self.accounts_of(cluster))
    }

    /// The copy, or another Secret with its key.
    #[must_use]
    pub fn copy(&self, key: &SecretKey) -> Option<&ObservedCopy> {
        self.slot(key)?.observed.as_ref()
    }

    /// The Secret that this process created with a key, even if its label has been removed so that no watch shows it.
    #[must_use]
    pub fn created(&self, key: &SecretKey) -> Option<&CreatedCopy> {
        self.slot(key)?.created.as_ref()
    }

    /// What the API server refuses to do with the Secret of a key.
    #[must_use]
    pub fn refused(&self, key: &SecretKey) -> Option<Refused> {
        self.slot(key)?.refused
    }

    fn slot(&self, key: &SecretKey) -> Option<&Slot> {
        self.copies.get(key).map(Box::as_ref)
    }

    /// Records the states that are planned for a key; returns what has changed.
    pub fn set_planned(&mut self, key: &SecretKey, states: &[(AccountKey, State)]) -> Vec<Change> {
        let synced = states.iter().find(|(_, state)| *state == State::Synced);
        let expires = synced.and_then(|(account, _)| self.expiry(account));
        let states = states.iter().filter(|(_, state)| state.is_counted()).cloned().collect();
        let (now, nothing) = (Counted { states, expires }, Counted::default());
        let before = self.copies.get(key).map_or(&nothing, |slot| &slot.planned);
        if *before == now {
            return Vec::new();
        }
        let changes = self.tally.count(&key.namespace, before, &now);
        self.change_slot(key, |slot| slot.planned = now);
        changes
    }

    /// Whether an account without a copy at this key has a problem that lasts: its own, or that of another account with the
    /// same key.
    #[must_use]
    pub fn is_in_trouble(&self, key: &SecretKey, account: &AccountKey) -> bool {
        let states = self.slot(key).map_or(&[][..], |slot| &slot.planned.states);
        let is_synced =
            |of: &AccountKey| states.iter().any(|it| it.0 == *of && it.1 == State::Synced);
        states.iter().any(|(_, state)| state.is_lasting()) && !is_synced(account)
    }

    /// Counts an account anew. Returns how many accounts name no namespaces although several receive their tokens.
    pub fn count_unscoped(&mut self, key: &AccountKey) -> usize {
        let account = self.account(key);
        let is_scoped = account.is_none_or(|it| it.scope != Scope::EveryGrantedNamespace);
        self.tally.set_scope(key, is_scoped)
    }

    /// Updates what is known about a key, and forgets the key if nothing is.
    fn change_slot(&mut self, key: &SecretKey, change: impl FnOnce(&mut Slot)) {
        self.copies.change(key, |slot| {
            change(slot);
            **slot != Slot::default()
        });
    }

    /// Records that the Secret with this uid is ours: from the response to a create, or because it is exactly as we
    /// create one.
    pub fn set_created(&mut self, key: &SecretKey, created: Option<CreatedCopy>) {
        if self.created(key) != created.as_ref() {
            self.change_slot(key, |slot| slot.created = created);
        }
    }

    /// Records that the Secret with this uid, if it is ours, is gone.
    pub fn unmake(&mut self, key: &SecretKey, uid: &Uid) {
        if self.created(key).is_some_and(|created| created.uid == *uid) {
            self.set_created(key, None);
        }
    }

    /// Whether the profile that owns the copy with a key does not exist any more, so that the copy is
    /// garbage-collected.
    #[must_use]
    pub fn is_orphaned(&self, key: &SecretKey) -> bool {
        let recorded =
            self.copy(key).and_then(|copy| copy.record.as_ref()).map(|record| &record.account);
        let holder = recorded.or_else(|| self.created(key).map(|created| &created.account));
        holder.is_some_and(|account| {
            let (namespace, cluster) = (key.namespace.clone(), account.cluster.clone());
            self.profile(&ProfileKey { namespace, cluster }).is_none()
        })
    }

    /// Records whether the API server refuses the planned write to a key.
    pub fn set_refused(&mut self, key: &SecretKey, refused: Option<Refused>) {
        if self.refused(key) != refused {
            self.change_slot(key, |slot| slot.refused = refused);
        }
    }

    #[must_use]
    pub fn profile(&self, key: &ProfileKey) -> Option<&ProfileMetadata> {
        self.profiles.get(&key.namespace)?.get(&key.cluster)
    }

    /// Adds or replaces a ManagedServiceAccount as the syncer does; returns whether copies may have to change.
    ///
    /// Nothing is kept of an account that does not opt in, unless it has our condition or a copy is left to report on:
    /// whoever may write in the namespace of a cluster can create many. Such an account may come before the copies with
    /// its name, so no plan depends on whether it is kept.
    pub fn apply_needed_account(&mut self, key: AccountKey, account: Account) -> bool {
        if account.opts_in || account.has_our_condition() || self.has_copy_of(&key) {
            self.apply_account(key, account)
        } else {
            self.delete_account(&key)
        }
    }

    /// Adds or replaces a ManagedServiceAccount; returns whether copies may have to change.
    pub fn apply_account(&mut self, key: AccountKey, account: Account) -> bool {
        let accounts = self.accounts.entry(key.cluster).or_default();
        let changed =
            accounts.get(&key.account).is_none_or(|before| !before.asks_the_same_as(&account));
        accounts.insert(key.account, Box::new(account));
        changed
    }

    /// Removes a ManagedServiceAccount that is gone, or no longer opts in; returns whether it was known.
    pub fn delete_account(&mut self, key: &AccountKey) -> bool {
        nested::remove(&mut self.accounts, &key.cluster, &key.account).is_some()
    }

    /// Records the Secret with the token of an account, or that there is none; returns whether it differs from before.
    pub fn set_source(&mut self, key: &AccountKey, source: Option<TokenSource>) -> bool {
        if self.sources.get(key) == source.as_ref() {
            return false;
        }
        let Some(mut source) = source else { return self.sources.remove(key).is_some() };
        // Accounts of a cluster hold its CA once: it is a kilobyte or two.
        if let Ok(credential) = &mut source.credential {
            let first = AccountKey { cluster: key.cluster.clone(), account: "".into() };
            let of_cluster =
                self.sources.range(first..).take_while(|(it, _)| it.cluster == key.cluster);
            let mut known = of_cluster.filter_map(|(_, it)| it.credential.as_ref().ok());
            let credential = Arc::make_mut(credential);
            known.any(|known| credential.share_ca(known));
        }
        self.sources.insert(key.clone(), source);
        let there = self.copies.namespaces_with(&key.copy_name());
        let keys: Vec<_> = there.map(|namespace| key.copy_in(namespace)).collect();
        for key in keys {
            if let Some(observed) = self.copy(&key).cloned() {
                self.recognize(&key, &observed);
            }
        }
        true
    }

    /// Adds or replaces a Secret; returns whether it differs from before.
    pub fn apply_copy(&mut self, key: &SecretKey, observed: ObservedCopy) -> bool {
        let changed = self.copy(key) != Some(&observed);
        self.recognize(key, &observed);
        if changed {
            self.change_slot(key, |slot| slot.observed = Some(observed));
        }
        changed
    }

    /// Records a Secret that is exactly as we write a copy as ours, by its uid, even if it loses every mark later: the
    /// response to its creation may never have arrived.
    pub fn recognize(&mut self, key: &SecretKey, observed: &ObservedCopy) {
        let Some(account) = observed.record.as_ref().map(|record| &record.account) else { return };
        let is_exact = |credential| observed.is_exactly(account, credential);
        if self.credential(account).is_some_and(is_exact) {
            let created =
                CreatedCopy { uid: observed.version.uid.clone(), account: account.clone() };
            self.set_created(key, Some(created));
        }
    }

    /// Removes a copy that is gone, or no longer watched.
    pub fn delete_copy(&mut self, key: &SecretKey) {
        self.change_slot(key, |slot| slot.observed = None);
    }

    /// Adds or replaces a profile; returns whether it differs from before.
    pub fn apply_profile(&mut self, key: ProfileKey, profile: ProfileMetadata) -> bool {
        let is_new = self.profile(&key) != Some(&profile);
        if is_new {
            self.profiles.entry(key.namespace).or_default().insert(key.cluster, profile);
        }
        is_new
    }

    pub fn delete_profile(&mut self, key: &ProfileKey) {
        nested::remove(&mut self.profiles, &key.namespace, &key.cluster);
    }

    /// The accounts that opt in and whose copies have this name.
    pub(super) fn accounts_named(&self, name: &str) -> impl Iterator<Item = AccountKey> {
        splits(name).filter_map(|(cluster, account)| {
            let (account, found) = self.accounts.get(cluster)?.get_key_value(account)?;
            found.opts_in.then(|| ClusterName::from(cluster).account(account))
        })
    }

    /// The account whose token a Secret contains, or should, as far as it shows: by its record, its data or its form. It
    /// depends on no account, since those that do not opt in may be unknown.
    pub(crate) fn account_in(
        &self,
        key: &SecretKey,
        observed: &ObservedCopy,
    ) -> Option<AccountKey> {
        let recorded = observed.record.as_ref().map(|record| record.account.clone());
        recorded
            .or_else(|| self.account_of_token(key, observed))
            .or_else(|| self.account_of_ocm(key, observed))
    }

    /// The account whose token a Secret contains, if its copies have the name of the Secret.
    fn account_of_token(&self, key: &SecretKey, observed: &ObservedCopy) -> Option<AccountKey> {
        accounts_of_copy(&key.name)
            .find(|it| self.credential(it).is_some_and(|credential| observed.holds(credential)))
    }

    /// The account for which OCM's syncer created a Secret, if it is exactly as that creates one for a profile of ours.
    fn account_of_ocm(&self, key: &SecretKey, observed: &ObservedCopy) -> Option<AccountKey> {
        let (cluster, uid) = observed.ocm_owner()?;
        let account =
            key.name.strip_prefix(cluster)?.strip_prefix('-').filter(|name| !name.is_empty())?;
        let profile = ProfileKey { namespace: key.namespace.clone(), cluster: cluster.into() };
        let profile = self.profile(&profile)?;
        let is_ours = profile.uid == *uid && !profile.is_foreign_to(&self.settings.manager);
        is_ours.then(|| AccountKey { cluster: cluster.into(), account: account.into() })
    }

    /// Whether an account opts in to a namespace. Where none does, only a key with a known Secret or a state may have a
    /// plan that says or does anything.
    #[must_use]
    pub fn asks_in(&self, account: &Account, namespace: &Namespace) -> bool {
        account.opts_in && account.scope.has(namespace, self.settings.require_namespaces)
    }

    /// The namespaces that an account opts in to and that are granted its cluster, or may be.
    fn namespaces_for<'a>(&'a self, fleet: &'a Fleet, key: &AccountKey) -> Vec<&'a Namespace> {
        let Some(account) = self.account(key).filter(|it| it.opts_in) else { return Vec::new() };
        if let Scope::Only { namespaces, .. } = &account.scope
            && namespaces.len() <= FEW
        {
            return namespaces
                .iter()
                .filter(|it| grant::is_among(fleet, it, &key.cluster))
                .collect();
        }
        let granted = grant::namespaces_of(fleet, &key.cluster);
        granted.filter(|it| self.asks_in(account, it)).collect()
    }

    /// The keys of the copies of an account that exist, or may have to exist.
    #[must_use]
    pub fn keys_of(&self, fleet: &Fleet, key: &AccountKey) -> Vec<SecretKey> {
        let there = self.copies.namespaces_with(&key.copy_name());
        let namespaces = self.namespaces_for(fleet, key).into_iter().chain(there);
        namespaces.map(|namespace| key.copy_in(namespace)).collect()
    }

    /// The last copy of an account that is queued and has no problem that lasts. Each copy that is done asks this again, so
    /// the one that was found before is looked at first: it is done last.
    #[must_use]
    pub fn unsettled(
        &self,
        fleet: &Fleet,
        account: &AccountKey,
        before: Option<&SecretKey>,
        is_queued: impl Fn(&SecretKey) -> bool,
    ) -> Option<SecretKey> {
        let is_unsettled = |key: &SecretKey| is_queued(key) && !self.is_in_trouble(key, account);
        let is_asked_for = |key: &SecretKey| {
            self.account(account).is_some_and(|it| self.asks_in(it, &key.namespace))
                && grant::is_among(fleet, &key.namespace, &account.cluster)
        };
        let is_there = |key: &SecretKey| self.copy(key).is_some() || is_asked_for(key);
        let before = before.filter(|key| is_unsettled(key) && is_there(key)).cloned();
        before.or_else(|| self.keys_of(fleet, account).into_iter().rfind(is_unsettled))
    }

    /// The keys, existing or wanted, of the copies for accounts of a cluster in a namespace; and possibly some of
    /// another cluster whose name begins with this one's.
    #[must_use]
    pub fn keys_at(&self, fleet: &Fleet, key: &ProfileKey) -> BTreeSet<SecretKey> {
        let copy_key = |name: Text| SecretKey { namespace: key.namespace.clone(), name };
        let itself = grant::is_possible(fleet, &key.namespace, &key.cluster);
        let is_granted = |cluster: &ClusterName| {
            let is_itself = *cluster == key.cluster;
            if is_itself { itself } else { grant::is_possible(fleet, &key.namespace, cluster) }
        };
        let is_wanted = |account: &AccountKey| {
            let asking = self.account(account).filter(|it| self.asks_in(it, &key.namespace));
            asking.is_some() && is_granted(&account.cluster)
        };
        let names = self.accounts_of(&key.cluster).map(|account| account.copy_name());
        // A cluster that is no longer granted makes room for another cluster's account with the same copy name.
        let wanted = names.filter(|name| self.accounts_named(name).any(|it| is_wanted(&it)));
        let there = self.copies.of_cluster_in(&key.namespace, &key.cluster).cloned();
        wanted.map(Text::from).chain(there).map(copy_key).collect()
    }

    /// The clusters with accounts that may be granted to a namespace, by names and selectors only, and those that are
    /// reached there. Some occur several times.
    pub(super) fn clusters_concerning<'a>(
        &'a self,
        fleet: &'a Fleet,
        namespace: &Namespace,
    ) -> impl Iterator<Item = &'a ClusterName> {
        let candidates = fleet.candidates_in(namespace);
        let candidates = candidates.filter(|it| self.accounts.contains_key(*it));
        candidates.chain(self.reach.clusters_in(namespace))
    }

    /// Updates the reach of a cluster in a namespace. Returns whether the namespace is granted the cluster, or may be, and
    /// if it is or was, the accounts that opt in to it.
    pub(super) fn reach_in(&mut self, fleet: &Fleet, key: &ProfileKey) -> (bool, Vec<AccountKey>) {
        let ProfileKey { namespace, cluster } = key;
        let is_granted = grant::is_among(fleet, namespace, cluster);
        let accounts = || asking(&self.accounts, cluster);
        let was_granted = self.reach.set_granted(cluster, namespace, is_granted, accounts);
        let accounts = self.accounts_on(cluster).filter(|_| is_granted || was_granted);
        let asking = accounts.filter(|(_, account)| self.asks_in(account, namespace));
        (is_granted, asking.map(|(account, _)| cluster.account(account)).collect())
    }

    /// The namespaces that have a binding, or Secrets with the keys of copies, or a state of one.
    #[must_use]
    pub fn namespaces(&self, fleet: &Fleet) -> BTreeSet<Namespace> {
        fleet.namespaces().chain(self.copies.namespaces()).cloned().collect()
    }

    /// The accounts with this name whose tokens may be copied.
    pub fn reached(&self, account: &AccountName) -> impl Iterator<Item = AccountKey> {
        self.reach.clusters_with(account).map(|cluster| cluster.account(account))
    }

    pub(super) fn accounts_of(&self, cluster: &ClusterName) -> impl Iterator<Item = AccountKey> {
        self.accounts_on(cluster).map(|(account, _)| cluster.account(account))
    }
}
