//! The syncer's state, and the effects of its changes.
//!
//! If both are locked, the fleet is locked before the index, since controllers are called with the locked fleet when it
//! changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hub_api::names::{AccountKey, AccountName, Namespace, ProfileKey, SecretKey};
use hub_core::credential::account::Account;
use hub_core::credential::copy::ObservedCopy;
use hub_core::credential::index::{CredentialIndex, ProfileMetadata};
use hub_core::credential::plan::{is_cleared, priority};
use hub_core::credential::source::TokenSource;
use hub_core::finding::Subject;
use hub_core::fleet::{Fleet, Touched};
use hub_core::rights::{EVERYWHERE, cleared_namespaces};
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_runtime::host::Host;
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::work::Work;
use hub_runtime::watch::is_newer;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::bulk_changes::BulkChanges;
use crate::gauges::CopyGauges;
use crate::memory::Memory;
use crate::settings::SyncerSettings;

pub(crate) const CONTROLLER: &str = "credential-syncer";

/// The plurals of the written kinds, also the names of their loops in logs and metrics.
pub(crate) const COPIES: &str = "secrets";
pub(crate) const ACCOUNTS: &str = "managedserviceaccounts";

/// How many keys are queued before other tasks run: some milliseconds of work.
const AT_ONCE: usize = 256;

/// The syncer's state: its watches fill it, and its writes are planned from it.
pub(crate) struct Store {
    pub(crate) host: Arc<Host>,
    pub(crate) reporter: Reporter,
    /// The RoleBinding of the permission for copies in a namespace; without one, all Secrets are watched by label.
    pub(crate) copies_binding: Option<String>,
    pub(crate) copies: Arc<Work<SecretKey>>,
    /// The queue of accounts whose condition may have to change.
    pub(crate) accounts: Arc<Work<AccountKey>>,
    pub(crate) gauges: CopyGauges,
    pub(crate) memory: Memory,
    pub(crate) bulk_changes: Mutex<BulkChanges>,
    fleet: FleetCache,
    index: Mutex<CredentialIndex>,
    /// The namespaces with a permission for copies.
    granted: Mutex<BTreeSet<Namespace>>,
    /// The namespaces whose watch may have to begin or end.
    unfollowed: Mutex<BTreeSet<Namespace>>,
    /// The namespaces whose copies cannot be watched at present.
    failing: Mutex<BTreeSet<Namespace>>,
    reach: Notify,
    backlog: Mutex<Backlog>,
    has_backlog: Notify,
}

/// What is to be queued in chunks, so that other tasks run in between: a hub has tens of thousands of copies.
#[derive(Default)]
struct Backlog {
    copies: BTreeSet<SecretKey>,
    /// Whether every copy and every account is to be queued.
    everything: bool,
}

/// What has changed about the Secrets to watch.
pub(crate) struct ReachChange {
    /// All names by which tokens are watched, if they have changed.
    pub(crate) names: Option<BTreeSet<AccountName>>,
    /// The accounts whose tokens are no longer watched because there are too many names, or are watched again.
    pub(crate) moved: BTreeSet<AccountKey>,
    /// Namespaces, with whether copies there are watched.
    pub(crate) namespaces: BTreeMap<Namespace, bool>,
}

impl Store {
    pub(crate) fn new(shared: &Shared, settings: SyncerSettings) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        host.metrics.declare_written(COPIES);
        host.metrics.declare_written(ACCOUNTS);
        Arc::new(Self {
            reporter: host.reporter(CONTROLLER),
            copies_binding: settings.copies_binding,
            copies: Work::new(&host, COPIES),
            accounts: Work::new(&host, ACCOUNTS),
            gauges: CopyGauges::new(host.metrics.clone()),
            memory: Memory::default(),
            bulk_changes: Mutex::default(),
            fleet: shared.fleet.clone(),
            index: Mutex::new(CredentialIndex::new(settings.sync)),
            granted: Mutex::default(),
            unfollowed: Mutex::default(),
            failing: Mutex::default(),
            reach: Notify::new(),
            backlog: Mutex::default(),
            has_backlog: Notify::new(),
            host,
        })
    }

    /// Changes the index while the fleet is locked.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Fleet, &mut CredentialIndex) -> T) -> T {
        let fleet = self.fleet.read();
        change(&fleet, &mut self.index.lock())
    }

    /// Makes [`Self::queue`] queue everything, since more is known now and the absence of an object may count.
    pub(crate) fn queue_everything(&self) {
        if self.host.is_working() {
            self.change(|fleet, index| index.reach_all(fleet));
            self.reach_again();
            self.backlog.lock().everything = true;
            self.has_backlog.notify_one();
        }
    }

    /// Queues the backlog, for as long as the process runs.
    pub(crate) async fn queue(&self) {
        loop {
            self.has_backlog.notified().await;
            while let Some(copies) = self.next_of_backlog() {
                self.queue_copies(&self.fleet.read(), copies);
                yield_now().await;
            }
            if !std::mem::take(&mut self.backlog.lock().everything) {
                continue;
            }
            let namespaces = self.change(|fleet, index| index.namespaces(fleet));
            for namespace in namespaces {
                let keys: Vec<_> =
                    self.change(|fleet, index| index.keys_in(fleet, &namespace)).into_iter().collect();
                for keys in keys.chunks(AT_ONCE) {
                    self.queue_copies(&self.fleet.read(), keys.iter().cloned());
                    yield_now().await;
                }
            }
            let accounts: Vec<_> = self.change(|_, index| index.accounts().collect());
            for accounts in accounts.chunks(AT_ONCE) {
                self.accounts.add_all(accounts.iter().cloned());
                yield_now().await;
            }
        }
    }

    fn next_of_backlog(&self) -> Option<Vec<SecretKey>> {
        let copies = &mut self.backlog.lock().copies;
        let next: Vec<_> = std::iter::from_fn(|| copies.pop_first()).take(AT_ONCE).collect();
        (!next.is_empty()).then_some(next)
    }

    /// Queues what a change of the fleet affects.
    pub(crate) fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        if let Touched::Namespaces(namespaces) = touched {
            for namespace in namespaces {
                self.copies.resume(namespace);
            }
        }
        let (keys, accounts) = self.index.lock().concerned(fleet, touched);
        self.reach_again();
        let copies: BTreeSet<_> = keys.into_iter().chain(self.gauges.concerned(touched)).collect();
        if copies.len() <= AT_ONCE {
            self.queue_copies(fleet, copies);
        } else {
            self.backlog.lock().copies.extend(copies);
            self.has_backlog.notify_one();
        }
        self.accounts.add_all(accounts);
    }

    /// Queues copies with their priorities: one that loses its token is the most urgent.
    fn queue_copies(&self, fleet: &Fleet, keys: impl IntoIterator<Item = SecretKey>) {
        for key in keys {
            let priority = priority(&self.index.lock(), fleet, &key);
            self.copies.add_with(key, priority);
        }
    }

    /// Records an account. Nothing is kept of one that does not opt in, unless it has our condition or a copy is left
    /// to report on: whoever may write in the namespace of a cluster can create many.
    pub(crate) fn apply_account(&self, key: AccountKey, account: Account) {
        let is_kept = account.opts_in || account.has_our_condition() || self.index.lock().has_copy_of(&key);
        if !is_kept {
            if self.index.lock().account(&key).is_some() {
                self.delete_account(key);
            }
            return;
        }
        self.change_account(key, |index, key| index.apply_account(key.clone(), account));
    }

    pub(crate) fn delete_account(&self, key: AccountKey) {
        self.change_account(key, |index, key| {
            if let Some(known) = index.account(key) {
                self.accounts.expectations().ended(key, &known.version.uid);
            }
            index.delete_account(key);
            true
        });
    }

    /// Changes an account, and queues its report, and its copies if the change concerns them.
    fn change_account(
        &self,
        key: AccountKey,
        change: impl FnOnce(&mut CredentialIndex, &AccountKey) -> bool,
    ) {
        let keys = self.change(|fleet, index| {
            let changed = change(index, &key);
            // Before the work begins there is no need: [`Self::queue_everything`] begins with all accounts.
            if self.host.is_working() {
                index.reach_cluster(fleet, &key.cluster);
            }
            if changed { index.keys_of(fleet, &key) } else { Vec::new() }
        });
        self.reach_again();
        self.queue_account(key, keys);
    }

    /// Queues the copies of an account, and its report.
    fn queue_account(&self, key: AccountKey, keys: Vec<SecretKey>) {
        self.queue_copies(&self.fleet.read(), keys);
        self.accounts.add(key);
    }

    /// Records that what is known of a kind is out of date, and plans everything again.
    pub(crate) fn unread(&self, forget: impl FnOnce(&mut CredentialIndex)) {
        self.change(|_, index| forget(index));
        self.queue_everything();
    }

    /// Records whether profiles can be read.
    pub(crate) fn set_profiles_read(&self, is_read: bool) {
        if self.change(|_, index| std::mem::replace(&mut index.profiles_unread, !is_read)) == is_read {
            self.queue_everything();
        }
    }

    /// Records that the list of the accounts that began with this number is complete.
    pub(crate) fn accounts_listed(&self, began: u64, version: &str) {
        let over = self.accounts.expectations().end_list(began, version, |_| true);
        self.accounts.add_all(over);
        if self.change(|_, index| index.accounts_listed()) {
            self.queue_everything();
        }
    }

    pub(crate) fn apply_source(&self, key: AccountKey, source: TokenSource) {
        let keys = self.change(|fleet, index| {
            let changed = index.apply_source(key.clone(), source);
            if changed { index.keys_of(fleet, &key) } else { Vec::new() }
        });
        if self.host.is_working() {
            self.memory.source_changed(&keys);
        }
        self.queue_account(key, keys);
    }

    pub(crate) fn delete_source(&self, key: AccountKey) {
        let keys = self.change(|fleet, index| {
            index.delete_source(&key);
            index.keys_of(fleet, &key)
        });
        self.queue_account(key, keys);
    }

    /// Records that the list of the sources is complete: of all, or of one name.
    pub(crate) fn sources_listed(&self, account: Option<AccountName>) {
        let (is_new, knows_accounts) =
            self.change(|_, index| (index.sources_listed(account.clone()), index.knows_accounts()));
        match account {
            _ if !is_new => {}
            // The copies whose state changes queue the reports of their accounts.
            Some(account) if knows_accounts => {
                let keys = self.change(|fleet, index| index.keys_named(fleet, &account));
                self.queue_copies(&self.fleet.read(), keys);
            }
            Some(_) | None => self.queue_everything(),
        }
    }

    pub(crate) fn apply_profile(&self, key: &ProfileKey, profile: ProfileMetadata) {
        let (is_new, changed) =
            self.change(|_, index| (index.profile(key).is_none(), index.apply_profile(key.clone(), profile)));
        if is_new {
            self.bulk_changes.lock().created.add(key, Instant::now());
        }
        if changed {
            self.profile_changed(key);
        }
    }

    pub(crate) fn delete_profile(&self, key: &ProfileKey) {
        self.change(|_, index| index.delete_profile(key));
        self.bulk_changes.lock().deleted.add(key, Instant::now());
        self.profile_changed(key);
    }

    fn profile_changed(&self, key: &ProfileKey) {
        let keys = self.change(|fleet, index| index.keys_at(fleet, key));
        self.queue_copies(&self.fleet.read(), keys);
    }

    /// Records a Secret with the label of copies from an event or a list.
    pub(crate) fn apply_copy(&self, key: SecretKey, observed: ObservedCopy) {
        self.memory.end_of_unwatched(&key);
        if self.index.lock().apply_copy(&key, observed) {
            self.queue_copies(&self.fleet.read(), [key]);
        }
    }

    /// Records that a Secret is gone, or has lost the label of copies, from an event or a list.
    pub(crate) fn delete_copy(&self, key: SecretKey) {
        {
            let mut index = self.index.lock();
            if let Some(known) = index.copy(&key) {
                self.copies.expectations().ended(&key, &known.version.uid);
            }
            index.delete_copy(&key);
        }
        self.memory.end_of_unwatched(&key);
        self.reporter.forget(&Subject::Secret(key.namespace.clone(), key.name.to_string()));
        self.follow_namespace(&key.namespace);
        self.queue_copies(&self.fleet.read(), [key]);
    }

    /// Records that the list of the copies that began with this number is complete: of all, or of one namespace.
    pub(crate) fn copies_listed(&self, namespace: Option<Namespace>, began: u64, version: &str) {
        let is_listed =
            |key: &SecretKey| namespace.as_ref().is_none_or(|namespace| key.namespace == *namespace);
        let over = self.copies.expectations().end_list(began, version, is_listed);
        self.queue_copies(&self.fleet.read(), over);
        if !self.change(|_, index| index.copies_listed(namespace.clone())) {
            return;
        }
        match namespace {
            Some(namespace) => {
                let keys = self.change(|fleet, index| index.keys_in(fleet, &namespace));
                self.queue_copies(&self.fleet.read(), keys);
            }
            None => self.queue_everything(),
        }
    }

    /// Records that the copies cannot be read: all of them, or those of one namespace.
    pub(crate) fn copies_unread(&self, namespace: Option<&Namespace>) {
        let Some(namespace) = namespace else { return self.unread(|index| index.copies_unread(None)) };
        let keys = self.change(|fleet, index| {
            index.copies_unread(Some(namespace));
            index.keys_in(fleet, namespace)
        });
        self.queue_copies(&self.fleet.read(), keys);
    }

    /// Records a Secret without the label of copies, which no watch shows, unless the watch has shown a later state.
    pub(crate) fn met_unwatched(&self, key: &SecretKey, observed: ObservedCopy) {
        self.memory.met_unwatched(key);
        self.copies.expectations().forget(key);
        let mut index = self.index.lock();
        let is_later = |known: &ObservedCopy| {
            known.version.uid != observed.version.uid
                || is_newer(&observed.version.resource_version, &known.version.resource_version)
        };
        if index.copy(key).is_none_or(is_later) {
            index.apply_copy(key, observed);
        }
    }

    /// Records that the Secret with this uid is gone, or with `None` whichever has this key, since its namespace is
    /// gone. Returns whether a watch shows it.
    pub(crate) fn gone(&self, key: &SecretKey, uid: Option<&str>) -> bool {
        self.change(|_, index| {
            match uid {
                Some(uid) => index.unmake(key, uid),
                None => index.set_created(key, None),
            }
            let is_it = |known: &&ObservedCopy| uid.is_none_or(|uid| known.version.uid == uid);
            let is_unwatched = index.copy(key).filter(is_it).is_some_and(|known| !known.is_labelled);
            if is_unwatched {
                index.delete_copy(key);
                self.memory.end_of_unwatched(key);
            }
            !is_unwatched
        })
    }

    /// Records a permission for copies in a namespace.
    pub(crate) fn add_granted(&self, namespace: &Namespace) {
        if self.change(|_, index| index.permit_copies(namespace)) {
            self.permission_changed(namespace);
        }
        if self.granted.lock().insert(namespace.clone()) {
            self.follow_namespace(namespace);
        }
    }

    /// Records that a namespace has no permission for copies any more.
    pub(crate) fn remove_granted(&self, namespace: &Namespace) {
        self.granted.lock().remove(namespace);
        if self.change(|_, index| index.forbid_copies(namespace)) {
            self.permission_changed(namespace);
        }
        self.follow_namespace(namespace);
    }

    /// Queues the copies in a namespace, and the accounts that report on them.
    fn permission_changed(&self, namespace: &Namespace) {
        let touched = Touched::Namespaces(BTreeSet::from([namespace.clone()]));
        let (keys, accounts) = self.change(|fleet, index| index.concerned(fleet, &touched));
        self.queue_copies(&self.fleet.read(), keys);
        self.accounts.add_all(accounts);
    }

    /// What has changed since the last call about the names by which tokens are watched, and about the namespaces in
    /// which copies are watched: those with a permission, and those watched so far that still have copies.
    pub(crate) fn reach(&self, is_watched: impl Fn(&Namespace) -> bool) -> ReachChange {
        let mut index = self.index.lock();
        let names = index.reach.changed_names().map(|changed| changed.names.clone());
        let moved = index.reach.take_moved();
        let granted = self.granted.lock();
        let mut unfollowed = self.unfollowed.lock();
        let mut namespaces = BTreeMap::new();
        let mut leaving = BTreeSet::new();
        for namespace in std::mem::take(&mut *unfollowed) {
            let is_granted = granted.contains(&namespace);
            // The watch must show the deletion of the last copy before it ends.
            let is_leaving = !is_granted && is_watched(&namespace) && index.has_copies(&namespace);
            if is_leaving {
                leaving.insert(namespace.clone());
            }
            namespaces.insert(namespace, is_granted || is_leaving);
        }
        *unfollowed = leaving;
        ReachChange { names, moved, namespaces }
    }

    /// Queues the copies of accounts, and their reports.
    pub(crate) fn accounts_moved(&self, accounts: impl IntoIterator<Item = AccountKey>) {
        for key in accounts {
            let keys = self.change(|fleet, index| index.keys_of(fleet, &key));
            self.queue_account(key, keys);
        }
    }

    /// Whether the syncer may read only those Secrets that it has a permission for by a name or in a namespace.
    fn is_limited(&self) -> bool {
        self.copies_binding.is_some()
    }

    /// Whether a namespace seems to have been deleted, as far as a copy there shows: both its profile and the
    /// permission for copies, which otherwise outlives the grant, do not exist any more.
    pub(crate) fn is_abandoned(&self, key: &SecretKey) -> bool {
        self.is_limited()
            && !self.granted.lock().contains(&key.namespace)
            && self.index.lock().is_orphaned(key)
    }

    /// Forgets what this process has written to a key, whether or not it exists.
    pub(crate) fn abandon(&self, key: &SecretKey) {
        self.change(|_, index| {
            index.delete_copy(key);
            index.set_created(key, None);
        });
        self.memory.end_of_unwatched(key);
        self.follow_namespace(&key.namespace);
    }

    /// The namespaces with a permission for copies in which nothing is left to delete.
    pub(crate) fn cleared(&self) -> Option<String> {
        if !self.is_limited() {
            return Some(EVERYWHERE.to_owned());
        }
        if !self.host.is_working() {
            return None;
        }
        let fleet = self.fleet.read();
        let index = self.index.lock();
        let (granted, failing) = (self.granted.lock(), self.failing.lock());
        let cleared =
            granted.iter().filter(|it| !failing.contains(*it) && is_cleared(&index, &fleet, it)).cloned();
        cleared_namespaces(cleared)
    }

    /// Records whether the watch on the copies in a namespace fails: what is known of them may then be stale.
    pub(crate) fn set_failing(&self, namespace: &Namespace, is_failing: bool) {
        if is_failing {
            self.failing.lock().insert(namespace.clone());
        } else {
            self.failing.lock().remove(namespace);
        }
    }

    /// Forgets what concerns watches that have ended: those of all other namespaces.
    pub(crate) fn keep_watches(&self, is_watched: impl Fn(&Namespace) -> bool) {
        self.failing.lock().retain(&is_watched);
        if self.is_limited() {
            self.copies.expectations().keep(|key| is_watched(&key.namespace));
        }
    }

    /// Waits until [`Self::reach`] may have changed.
    pub(crate) async fn reach_changed(&self) {
        self.reach.notified().await;
    }

    /// Notifies that the copies in a namespace may have to be watched, or no longer.
    fn follow_namespace(&self, namespace: &Namespace) {
        if self.is_limited() {
            self.unfollowed.lock().insert(namespace.clone());
            self.reach_again();
        }
    }

    /// Notifies that the Secrets to watch may have changed.
    fn reach_again(&self) {
        if self.is_limited() && self.host.is_working() {
            self.reach.notify_one();
        }
    }
}
