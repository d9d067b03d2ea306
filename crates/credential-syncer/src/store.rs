//! The syncer's state, and the effects of its changes.
//!
//! Where both are locked, the fleet is locked before the state, since controllers are called with the locked fleet when
//! it changes.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::{AccountKey, AccountName, Namespace, ProfileKey, SecretKey};
use hub_api::text::Text;
use hub_core::credential::account::Account;
use hub_core::credential::backlog::Backlog;
use hub_core::credential::copy::ObservedCopy;
use hub_core::credential::index::{CredentialIndex, ProfileMetadata};
use hub_core::credential::plan::{CopyPlan, is_cleared, priority};
use hub_core::credential::report::Recipients;
use hub_core::credential::source::TokenSource;
use hub_core::finding::Subject;
use hub_core::fleet::{Fleet, Touched};
use hub_core::priority::Priority;
use hub_core::rights::{EVERYWHERE, cleared_namespaces};
use hub_core::version::Uid;
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_process::served::ServedVersion;
use hub_runtime::host::Host;
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::work::Work;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::bulk_changes::BulkChanges;
use crate::memory::Memory;
use crate::metrics::CredentialMetrics;
use crate::settings::SyncerSettings;

pub(crate) const CONTROLLER: &str = "credential-syncer";

/// The plurals of the written kinds, also the names of their loops in logs and metrics.
pub(crate) const COPIES: &str = "secrets";
pub(crate) const ACCOUNTS: &str = "managedserviceaccounts";

/// How long after a change of a copy its account is reported on, so that many changes lead to one report.
const REPORT_DELAY: Duration = Duration::from_millis(100);

/// The syncer's state and its queues: its watches fill it, and its writes are planned from it.
pub(crate) struct Store {
    pub(crate) host: Arc<Host>,
    pub(crate) reporter: Reporter,
    /// The RoleBinding of the permission for copies in a namespace; without one, all Secrets are watched by label.
    pub(crate) copies_binding: Option<String>,
    pub(crate) copies: Arc<Work<SecretKey>>,
    /// The queue of accounts whose condition may have to change.
    pub(crate) accounts: Arc<Work<AccountKey>>,
    fleet: FleetCache,
    pub(crate) served: ServedVersion,
    pub(crate) metrics: CredentialMetrics,
    state: Mutex<State>,
    reach: Notify,
    has_backlog: Notify,
}

/// What is known, and what has been done.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) index: CredentialIndex,
    /// Where accounts opt in, as far as it is known since the account and the fleet have changed.
    pub(crate) recipients: BTreeMap<AccountKey, Recipients>,
    pub(crate) memory: Memory,
    pub(crate) bulk_changes: BulkChanges,
    /// The accounts with problems that are not reported yet, with their start.
    pub(crate) troubles: HashMap<AccountKey, Instant>,
    /// The accounts whose report waits for their copies, each with the copy that it waits for.
    pub(crate) unsettled: HashMap<AccountKey, SecretKey>,
    /// The namespaces whose watch may have to begin or end.
    unfollowed: BTreeSet<Namespace>,
    /// The namespaces whose copies cannot be watched at present.
    failing: BTreeSet<Namespace>,
    backlog: Backlog,
}

impl Store {
    pub(crate) fn new(
        shared: &Shared,
        settings: SyncerSettings,
        metrics: CredentialMetrics,
    ) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        host.metrics.declare_written(COPIES);
        host.metrics.declare_written(ACCOUNTS);
        metrics.declare();
        let mut index = CredentialIndex::new(settings.sync);
        index.permitted = settings.copies_binding.is_some().then(BTreeSet::new);
        Arc::new(Self {
            reporter: host.reporter(CONTROLLER),
            copies_binding: settings.copies_binding,
            copies: Work::new(&host, COPIES, |key| key.namespace.clone()),
            accounts: Work::new(&host, ACCOUNTS, |key| key.cluster.as_str().into()),
            fleet: shared.fleet.clone(),
            served: shared.served.clone(),
            metrics,
            state: Mutex::new(State { index, ..State::default() }),
            reach: Notify::new(),
            has_backlog: Notify::new(),
            host,
        })
    }

    /// Changes the state while the fleet is locked.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Fleet, &mut State) -> T) -> T {
        let fleet = self.fleet.read();
        change(&fleet, &mut self.state.lock())
    }

    /// Makes [`Self::queue`] queue everything, since more is known now and the absence of an object may count.
    pub(crate) fn queue_everything(&self) {
        self.state.lock().backlog.everything = true;
        self.has_backlog.notify_one();
    }

    /// Queues the backlog, for as long as the process runs.
    pub(crate) async fn queue(&self) {
        loop {
            self.has_backlog.notified().await;
            while self.queue_portion() {
                yield_now().await;
            }
        }
    }

    /// Queues a portion of the backlog; returns whether there was any. Until the process works, there is none: it begins
    /// with everything.
    fn queue_portion(&self) -> bool {
        if !self.host.is_working() {
            return false;
        }
        self.change(|fleet, state| {
            let next = state.backlog.next(&mut state.index, fleet);
            let Some((copies, accounts)) = next else { return false };
            // A namespace may have the permission alone.
            self.reach_again();
            self.queue_copies(fleet, state, copies);
            for account in accounts {
                self.queue_report(state, account);
            }
            true
        })
    }

    /// Queues what a change of the fleet affects.
    pub(crate) fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        let State { index, backlog, .. } = &mut *self.state.lock();
        backlog.add(index, fleet, touched);
        self.reach_again();
        self.has_backlog.notify_one();
    }

    /// Queues copies with their priorities: one that loses its token is the most urgent.
    fn queue_copies(
        &self,
        fleet: &Fleet,
        state: &State,
        keys: impl IntoIterator<Item = SecretKey>,
    ) {
        // The work begins with everything.
        if self.host.is_working() {
            for key in keys {
                let priority = priority(&state.index, fleet, &key);
                self.copies.add_with(key, priority);
            }
        }
    }

    /// Queues the report on an account that has changed, or whose namespaces may be others.
    fn queue_report(&self, state: &mut State, account: AccountKey) {
        state.recipients.remove(&account);
        self.accounts.add(account);
    }

    /// Records what is planned for a key: metrics count it, and the accounts whose copies have changed report on it.
    pub(crate) fn planned(&self, state: &mut State, key: &SecretKey, plan: &CopyPlan) {
        for change in state.index.set_planned(key, &plan.states) {
            self.metrics.count(change.state, if change.begins { 1 } else { -1 });
            self.accounts.add_within(change.account, Priority::Update, REPORT_DELAY);
        }
        self.metrics.set_next_expiry(state.index.tally.next_expiry());
    }

    /// A copy of an account that is not as planned yet, unless it has a problem that lasts, or waits for an object that no
    /// watch shows, or for a namespace that seems to be deleted. What the account shows stays until there is none: a
    /// process that starts knows of no problem, and only the response to a write shows some.
    pub(crate) fn unsettled_copy(
        &self,
        fleet: &Fleet,
        state: &State,
        account: &AccountKey,
    ) -> Option<SecretKey> {
        let State { index, memory, backlog, unsettled, .. } = state;
        let is_queued = |key: &SecretKey| {
            backlog.has(key)
                || self.copies.holds(key)
                    && !memory.is_abandoned(key)
                    && !self.copies.written.is_hidden(key)
        };
        index.unsettled(fleet, account, unsettled.get(account), is_queued)
    }

    /// Records an account, and queues its report, and its copies if the change concerns them.
    pub(crate) fn set_account(&self, key: AccountKey, account: Option<Account>) {
        self.change(|fleet, state| {
            let before = state.index.account(&key).map(|account| account.version.uid.clone());
            let is_changed = match account {
                Some(account) => state.index.apply_needed_account(key.clone(), account),
                None => state.index.delete_account(&key),
            };
            let is_known = state.index.account(&key).is_some();
            if !is_known {
                let Some(uid) = before else { return };
                self.accounts.written.ended(&key, &uid);
            }
            if is_changed && self.host.is_working() {
                state.index.reach_accounts(fleet, &key.cluster);
                let keys = state.index.keys_of(fleet, &key);
                self.queue_copies(fleet, state, keys);
            }
            self.queue_report(state, key);
        });
        self.reach_again();
    }

    /// Records whether a kind can be read, in this field of the index.
    pub(crate) fn set_read(
        &self,
        unread: impl FnOnce(&mut CredentialIndex) -> &mut bool,
        is_read: bool,
    ) {
        let was_unread = std::mem::replace(unread(&mut self.state.lock().index), !is_read);
        if was_unread == is_read {
            self.queue_everything();
        }
    }

    /// Records whether every account is known.
    pub(crate) fn set_accounts_read(&self, is_read: bool) {
        let was_read = std::mem::replace(&mut self.state.lock().index.knows_accounts, is_read);
        if was_read != is_read || !is_read {
            self.queue_everything();
        }
    }

    pub(crate) fn set_source(&self, key: &AccountKey, source: Option<TokenSource>) {
        self.change(|fleet, state| {
            let is_there = source.is_some();
            if state.index.set_source(key, source) && self.host.is_working() {
                let keys = state.index.keys_of(fleet, key);
                if is_there {
                    state.memory.source_changed(&keys);
                }
                self.queue_copies(fleet, state, keys);
            }
        });
    }

    /// Records whether the sources are known: all of them, or those of one name.
    pub(crate) fn set_sources_read(&self, account: Option<&AccountName>, is_read: bool) {
        self.change(|_, State { index, backlog, .. }| {
            let is_new = index.listed_sources.set(account, is_read);
            match account {
                _ if is_read && !is_new => {}
                Some(account) if is_read && index.knows_accounts => {
                    backlog.copies_of.extend(index.reached(account));
                }
                Some(_) | None => backlog.everything = true,
            }
        });
        self.has_backlog.notify_one();
    }

    pub(crate) fn apply_profile(&self, key: &ProfileKey, profile: ProfileMetadata) {
        self.change(|fleet, state| {
            if state.index.profile(key).is_none() {
                state.bulk_changes.add(key, Instant::now());
            }
            if state.index.apply_profile(key.clone(), profile) {
                let keys = state.index.keys_at(fleet, key);
                self.queue_copies(fleet, state, keys);
            }
        });
    }

    pub(crate) fn delete_profile(&self, key: &ProfileKey) {
        self.change(|fleet, state| {
            state.index.delete_profile(key);
            state.bulk_changes.add(key, Instant::now());
            let keys = state.index.keys_at(fleet, key);
            self.queue_copies(fleet, state, keys);
        });
    }

    /// Records a Secret with the label of copies from an event or a list.
    pub(crate) fn apply_copy(&self, key: SecretKey, observed: ObservedCopy) {
        self.change(|fleet, state| {
            let is_news = self.copies.written.shown(&key, &observed.version);
            if state.index.apply_copy(&key, observed) && is_news {
                self.queue_copies(fleet, state, [key]);
            }
        });
    }

    /// Records that a Secret is gone, or has lost the label of copies, from an event or a list.
    pub(crate) fn delete_copy(&self, key: SecretKey) {
        self.reporter.forget(&Subject::Secret(key.namespace.clone(), key.name.to_string()));
        self.change(|fleet, state| {
            if let Some(known) = state.index.copy(&key) {
                self.copies.written.ended(&key, &known.version.uid);
            }
            state.index.delete_copy(&key);
            self.follow_namespace(state, &key.namespace);
            self.queue_copies(fleet, state, [key]);
        });
    }

    /// Records whether the copies are known: all of them, or those of one namespace.
    pub(crate) fn set_copies_read(&self, namespace: Option<&Namespace>, is_read: bool) {
        let State { index, backlog, .. } = &mut *self.state.lock();
        let is_new = index.listed_copies.set(namespace, is_read);
        match namespace {
            _ if is_read && !is_new => {}
            Some(namespace) => backlog.add_namespaces([namespace.clone()], false),
            None => backlog.everything = true,
        }
        self.has_backlog.notify_one();
    }

    /// Records that the Secret with this uid is gone, or with `None` whichever has this key, since its namespace is
    /// gone.
    pub(crate) fn gone(&self, key: &SecretKey, uid: Option<&Uid>) {
        let index = &mut self.state.lock().index;
        match uid {
            Some(uid) => index.unmake(key, uid),
            None => index.set_created(key, None),
        }
    }

    /// Records whether there is a permission for copies in a namespace. Queues the copies there, and the accounts that
    /// report on them, if that concerns any.
    pub(crate) fn set_granted(&self, namespace: &Namespace, is_granted: bool) {
        let mut state = self.state.lock();
        let Some(permitted) = &mut state.index.permitted else { return };
        let is_changed = if is_granted {
            permitted.insert(namespace.clone())
        } else {
            permitted.remove(namespace)
        };
        if is_changed {
            if state.index.has_copies(namespace) {
                state.backlog.add_namespaces([namespace.clone()], true);
                self.has_backlog.notify_one();
            }
            self.follow_namespace(&mut state, namespace);
        }
    }

    /// What has changed since the last call about the Secrets to watch: all names by which tokens are, if they differ,
    /// and namespaces, each with whether copies there are. These are those with a permission, and those watched so far
    /// that still have copies. Queues the copies of accounts that have begun or ceased to exceed a limit, whose states
    /// change without an event.
    pub(crate) fn reach(
        &self,
        is_watched: impl Fn(&Namespace) -> bool,
    ) -> (Option<BTreeSet<AccountName>>, BTreeMap<Namespace, bool>) {
        self.change(|_, state| {
            let State { index, unfollowed, backlog, .. } = state;
            let (names, moved) = index.reach.changed_names().unzip();
            backlog.copies_of.extend(moved.into_iter().flatten());
            self.has_backlog.notify_one();
            let mut namespaces = BTreeMap::new();
            let mut leaving = BTreeSet::new();
            for namespace in std::mem::take(unfollowed) {
                let is_permitted = index.permits_copies(&namespace);
                // The watch must show the deletion of the last copy before it ends. A Secret that is only known to have
                // been created, it does not show.
                let is_leaving = !is_permitted
                    && is_watched(&namespace)
                    && index.copies_in(&namespace).next().is_some();
                if is_leaving {
                    leaving.insert(namespace.clone());
                }
                namespaces.insert(namespace, is_permitted || is_leaving);
            }
            *unfollowed = leaving;
            (names, namespaces)
        })
    }

    /// Whether the syncer may read only those Secrets that it has a permission for by a name or in a namespace.
    fn is_limited(&self) -> bool {
        self.copies_binding.is_some()
    }

    /// Whether a namespace seems to have been deleted, as far as a copy there shows: both its profile and the
    /// permission for copies, which otherwise outlives the grant, do not exist any more.
    pub(crate) fn is_abandoned(&self, key: &SecretKey) -> bool {
        let state = self.state.lock();
        self.is_limited()
            && !state.index.permits_copies(&key.namespace)
            && state.index.is_orphaned(key)
    }

    /// Forgets what this process has written to a key, whether or not it exists.
    pub(crate) fn abandon(&self, key: &SecretKey) {
        let mut state = self.state.lock();
        state.index.delete_copy(key);
        state.index.set_created(key, None);
        self.follow_namespace(&mut state, &key.namespace);
    }

    /// Whether a key in a namespace waits: no watch may show what has to end there.
    fn is_held_in(&self, namespace: &Namespace) -> bool {
        let first = SecretKey { namespace: namespace.clone(), name: Text::from("") };
        !self.copies.held_from(&first, |key| key.namespace == *namespace).is_empty()
    }

    /// The namespaces with a permission for copies in which nothing is left to delete.
    pub(crate) fn cleared(&self) -> Option<String> {
        if !self.is_limited() {
            return Some(EVERYWHERE.to_owned());
        }
        if !self.host.is_working() {
            return None;
        }
        self.change(|fleet, State { index, failing, .. }| {
            let is_cleared = |it: &&Namespace| {
                !failing.contains(*it) && is_cleared(index, fleet, it) && !self.is_held_in(it)
            };
            let permitted = index.permitted.iter().flatten();
            cleared_namespaces(permitted.filter(is_cleared).cloned())
        })
    }

    /// Records whether the watch on the copies in a namespace fails: what is known of them may then be stale.
    pub(crate) fn set_failing(&self, namespace: &Namespace, is_failing: bool) {
        let failing = &mut self.state.lock().failing;
        if is_failing {
            failing.insert(namespace.clone());
        } else {
            failing.remove(namespace);
        }
    }

    /// Forgets what the watch on the copies in a namespace has shown, which has ended.
    pub(crate) fn forget_copies(&self, namespace: &Namespace) {
        let mut state = self.state.lock();
        state.index.forget_copies(namespace);
        state.failing.remove(namespace);
        self.copies.written.retain(|key| key.namespace != *namespace);
    }

    /// Waits until [`Self::reach`] may have changed.
    pub(crate) async fn reach_changed(&self) {
        self.reach.notified().await;
    }

    /// Whether [`Self::reach`] has to visit every account.
    pub(crate) fn is_reach_costly(&self) -> bool {
        self.state.lock().index.reach.is_unknown()
    }

    /// Notifies that the copies in a namespace may have to be watched, or no longer.
    fn follow_namespace(&self, state: &mut State, namespace: &Namespace) {
        if self.is_limited() {
            state.unfollowed.insert(namespace.clone());
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
