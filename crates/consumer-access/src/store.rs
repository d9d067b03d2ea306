//! The controller's state: the observed accounts and permissions, and which keys a change affects.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace};
use hub_core::access::Known;
use hub_core::consumer_access::{
    AccessKey, AccessKind, AccessPlan, AccessSettings, Changed, FoundObject, KnownAccounts, ObservedAccess,
    ObservedObject,
};
use hub_core::finding::Finding;
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::Grant;
use hub_core::priority::Priority;
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_runtime::host::{HeldWatch, Host, Watches};
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::Read;
use kube::api::{ApiResource, GroupVersionKind};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::cache::{ObjectCache, as_read};
use crate::status::Statuses;
use crate::watches;

/// The name of this loop in logs and metrics.
pub(crate) const CONTROLLER: &str = "consumer-access";

/// The plural of a kind.
pub(crate) const fn resource(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Account => "managedserviceaccounts",
        AccessKind::ManifestWork => "manifestworks",
        AccessKind::ClusterPermission => "clusterpermissions",
    }
}

/// The API of a kind.
pub(crate) fn api_resource(kind: AccessKind) -> ApiResource {
    let (group, version, name) = kind.gvk();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), resource(kind))
}

/// The settings, with the consumers that the objects declare. Guards are short, and taken after that of the fleet.
pub(crate) type Settings = Arc<RwLock<AccessSettings>>;

/// The controller's state: its watches fill it, and its writes are planned from it.
pub(crate) struct Store {
    pub(crate) host: Arc<Host>,
    pub(crate) reporter: Reporter,
    settings: Settings,
    pub(crate) work: Arc<Work<AccessKey>>,
    /// The statuses of the objects that ask for accounts.
    pub(crate) statuses: Statuses,
    pub(crate) fleet: FleetCache,
    pub(crate) state: Mutex<AccessState>,
    /// The watches on permissions: of the accounts that consumers use, and of those that exist.
    held: Mutex<BTreeMap<WatchName, HeldWatch>>,
    watches: OnceLock<Watches>,
    this: Weak<Self>,
}

#[derive(Default)]
pub(crate) struct AccessState {
    pub(crate) objects: ObjectCache<AccessKey, WatchName>,
    /// The accounts with an object.
    pub(crate) known: KnownAccounts,
    /// The writes, by verb, that have been sent or are blocked: the other objects of the account do not wait for them.
    pub(crate) passed: BTreeMap<AccessKey, &'static str>,
    /// The namespace of the addon managed-serviceaccount on each cluster that shows one, and whether all are known.
    agents: BTreeMap<ClusterName, Namespace>,
    knows_agents: bool,
    /// The watches that cannot read their objects.
    unread: BTreeSet<WatchName>,
}

impl AccessState {
    /// The namespace of the addon managed-serviceaccount on a cluster.
    fn agent_namespace(&self, cluster: &ClusterName) -> Known<Namespace> {
        match self.agents.get(cluster) {
            _ if !self.knows_agents => Known::Unknown,
            Some(namespace) => Known::Present(namespace.clone()),
            None => Known::Absent,
        }
    }

    fn objects(&self, key: &AccountKey) -> BTreeMap<AccessKind, FoundObject> {
        let found = |kind: AccessKind| Some((kind, self.objects.get(&kind.of(key))?.clone()));
        AccessKind::ALL.into_iter().filter_map(found).collect()
    }

    /// Whether an account has an object that matters: if it is declared any, else one of ours.
    fn concerns(&self, key: &AccountKey, is_declared: bool) -> bool {
        AccessKind::ALL.into_iter().any(|kind| {
            let object = kind.of(key);
            let exists = self.objects.get(&object).is_some();
            (exists && is_declared)
                || self.objects.is_ours(&object)
                || self.objects.uid_of_created(&object).is_some()
        })
    }

    /// Records what is known of an account after a change.
    fn refresh(&mut self, key: &AccountKey, is_declared: bool) {
        if self.concerns(key, is_declared) {
            self.known.insert(key);
        } else {
            self.known.remove(key);
        }
    }
}

/// A watch: on all accounts, or on the permissions of one.
pub(crate) type WatchName = (AccessKind, Option<AccountName>);

/// The watch that shows an object.
fn watch_of(AccessKey { kind, account }: &AccessKey) -> WatchName {
    (*kind, (*kind != AccessKind::Account).then(|| account.account.clone()))
}

impl Store {
    pub(crate) fn new(shared: &Shared, settings: &Settings) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        let kinds = settings.read().permission_kinds();
        for kind in [AccessKind::Account, AccessKind::ManifestWork].iter().chain(kinds) {
            host.metrics.declare_written(resource(*kind));
        }
        let (work, fleet) = (Work::new(&host, CONTROLLER), shared.fleet.clone());
        Arc::new_cyclic(|this| Self {
            reporter: host.reporter(CONTROLLER),
            statuses: Statuses::new(&host),
            host,
            settings: Arc::clone(settings),
            work,
            fleet,
            state: Mutex::default(),
            held: Mutex::default(),
            watches: OnceLock::new(),
            this: Weak::clone(this),
        })
    }

    /// The settings. A caller may hold a guard already.
    pub(crate) fn settings(&self) -> RwLockReadGuard<'_, AccessSettings> {
        self.settings.read_recursive()
    }

    /// Starts the watches, and those that objects need as they come.
    pub(crate) fn watch(self: &Arc<Self>, watches: &Watches) {
        watches::watch(self, watches);
        let _ = self.watches.set(watches.clone());
    }

    /// Watches the permissions of an account while a consumer uses it, or it exists.
    fn follow(&self, account: &AccountName) {
        let (Some(watches), Some(this)) = (self.watches.get(), self.this.upgrade()) else { return };
        let settings = self.settings();
        let is_followed = settings.consumers.contains(account) || self.state.lock().known.contains(account);
        for kind in settings.permission_kinds() {
            let name = (*kind, Some(account.clone()));
            let mut held = self.held.lock();
            if is_followed {
                held.entry(name)
                    .or_insert_with(|| watches::watch_permissions(&this, watches, *kind, account));
                continue;
            }
            let mut state = self.state.lock();
            // The first list may show what the account has left.
            if state.objects.is_listed(&name) && held.remove(&name).is_some() {
                drop(held);
                state.objects.unlist(&name, |object| watch_of(object) == name);
                state.unread.remove(&name);
            }
        }
    }

    /// Queues what a change of objects affects.
    pub(crate) fn objects_changed(&self, changed: &Changed) {
        for account in changed.values().flatten() {
            self.follow(account);
        }
        if !self.host.is_working() {
            return;
        }
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let keys = settings.concerned_by(&fleet, changed, &self.state.lock().known);
        for key in keys {
            self.queue_if_needed(&fleet, &key);
        }
        for name in changed.keys() {
            self.statuses.mark(name);
        }
    }

    /// Queues an account on every cluster.
    fn queue_account(&self, account: &AccountName) {
        let settings = self.settings();
        let namespaces = settings.consumers.of(account).map(|consumer| consumer.namespace().clone());
        self.fleet_changed(&self.fleet.read(), &Touched::Namespaces(namespaces.collect()));
        let known = self.state.lock().known.of(account);
        for key in known {
            self.changed(&key);
        }
    }

    /// Queues every account of ours that exists or should exist.
    pub(crate) fn queue_everything(&self) {
        let (fleet, settings) = (self.fleet.read(), self.settings());
        // In the head of the loop, the lock would be held while keys are queued.
        let known: Vec<_> = self.state.lock().known.keys().collect();
        for key in known {
            self.queue(&fleet, &key, None);
        }
        let namespaces = settings.consumers.names().map(|name| name.namespace.clone());
        self.fleet_changed(&fleet, &Touched::Namespaces(namespaces.collect()));
    }

    /// Records that the hub does not serve the kind of a watch. ClusterPermissions need not be installed: nothing that the
    /// watch has shown exists any more. Returns whether no consumer lacks them.
    pub(crate) fn not_served(&self, watch: &WatchName) -> bool {
        let (kind, _) = watch;
        if *kind != AccessKind::ClusterPermission {
            return false;
        }
        self.work.written.retain(|object| watch_of(object) != *watch);
        let mut state = self.state.lock();
        let was_listed = state.objects.is_listed(watch);
        state.objects.unlist(watch, |object| watch_of(object) == *watch);
        drop(state);
        if was_listed && self.host.is_working() {
            self.queue_everything();
        }
        !self.needs(watch)
    }

    /// Whether consumers need the kind of a watch: that of accounts always, that of permissions if it is configured.
    pub(crate) fn needs(&self, (kind, account): &WatchName) -> bool {
        account.is_none() || self.settings().permission_kind() == *kind
    }

    /// Queues what a change of the fleet affects.
    pub(crate) fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        let settings = self.settings();
        let keys = settings.concerned(fleet, touched, &self.state.lock().known);
        for key in keys {
            self.queue_if_needed(fleet, &key);
        }
        self.statuses.fleet_changed(&settings, touched);
    }

    /// Queues an account, unless it is refused and has no object, and no attempt to create it is under way.
    fn queue_if_needed(&self, fleet: &Fleet, key: &AccountKey) {
        let settings = self.settings();
        let exists = self.state.lock().concerns(key, settings.consumers.contains(&key.account));
        let is_needed = exists || settings.grant(fleet, key) != Grant::Refused;
        if is_needed || self.work.holds(&AccessKind::Account.of(key)) {
            self.queue(fleet, key, None);
        }
    }

    /// Queues the objects of an account, except for one of this kind.
    pub(crate) fn queue(&self, fleet: &Fleet, key: &AccountKey, except: Option<AccessKind>) {
        let settings = self.settings();
        let exists = self.state.lock().objects.get(&AccessKind::Account.of(key)).is_some();
        let users = settings.users(fleet, key);
        // If several consumers share the account, one of them may have lost its grant.
        let is_shared = users.first().is_some_and(|consumer| consumer.is_own());
        let grant = if is_shared && exists { Grant::Refused } else { settings.grant(fleet, key) };
        for consumer in &users {
            self.statuses.mark(&consumer.name);
        }
        let kinds = settings.permission_kinds().iter().copied().chain([AccessKind::Account]);
        for kind in kinds.filter(|kind| Some(*kind) != except) {
            self.work.add_with(kind.of(key), Priority::of_profile(grant, exists));
        }
    }

    fn changed(&self, key: &AccountKey) {
        if self.host.is_working() {
            self.queue(&self.fleet.read(), key, None);
        }
    }

    /// Whether the watch has yet to show what our last write has left of an object.
    pub(crate) fn is_unseen(&self, key: &AccessKey) -> bool {
        self.work.written.unseen(key, self.state.lock().objects.version(key).as_ref()).is_some()
    }

    pub(crate) fn report(&self, key: &AccessKey, findings: Vec<Finding>) {
        let uid = self.state.lock().objects.version(key).map(|version| version.uid);
        self.reporter.report(&key.subject(), uid.as_ref(), findings);
    }

    /// Records that the list of a watch is complete.
    pub(crate) fn listed(&self, watch: &WatchName) {
        let mut state = self.state.lock();
        let was_listed = state.objects.is_listed(watch);
        state.objects.end_list(watch.clone());
        state.unread.remove(watch);
        drop(state);
        // A repeated list need not queue more: the sink was called for each object that it shows or no longer shows.
        if was_listed || !self.host.is_working() {
            return;
        }
        match &watch.1 {
            Some(account) => {
                self.queue_account(account);
                self.follow(account);
            }
            None => self.queue_everything(),
        }
    }

    /// Records the namespace of the addon managed-serviceaccount on a cluster, if it shows one.
    pub(crate) fn set_agent_namespace(&self, cluster: &ClusterName, namespace: Option<&Namespace>) {
        let mut state = self.state.lock();
        let before = match namespace {
            Some(namespace) => state.agents.insert(cluster.clone(), namespace.clone()),
            None => state.agents.remove(cluster),
        };
        drop(state);
        if before.as_ref() != namespace && self.host.is_working() {
            self.fleet_changed(&self.fleet.read(), &Touched::Cluster(cluster.clone()));
        }
    }

    /// Records that the list of these addons is complete, or that the hub does not serve the kind.
    pub(crate) fn agents_listed(&self) {
        let was_known = std::mem::replace(&mut self.state.lock().knows_agents, true);
        if !was_known && self.host.is_working() {
            self.queue_everything();
        }
    }

    /// Records that these addons cannot be read.
    pub(crate) fn agents_unread(&self) {
        self.state.lock().knows_agents = false;
    }

    /// Records that the objects of a watch cannot be read: what is known of them is out of date.
    pub(crate) fn unread(&self, watch: &WatchName) {
        let mut state = self.state.lock();
        state.objects.unlist(watch, |_| false);
        state.unread.insert(watch.clone());
        drop(state);
        for name in self.settings().consumers.names() {
            self.statuses.mark(name);
        }
    }

    /// Records an object that a watch shows.
    pub(crate) fn show(&self, key: &AccessKey, object: ObservedObject) {
        let AccessKey { kind, account } = key;
        let settings = self.settings();
        let is_declared = settings.consumers.contains(&account.account);
        let mut state = self.state.lock();
        state.objects.show(&settings, key, object, is_declared);
        state.refresh(account, is_declared);
        let is_ours = state.objects.is_ours(key);
        drop(state);
        if *kind == AccessKind::Account && is_ours && !is_declared {
            self.follow(&account.account);
        }
        if is_declared || is_ours {
            self.changed(account);
        }
    }

    /// Records that a watch shows the end of an object.
    pub(crate) fn ended(&self, key: &AccessKey) {
        let account = &key.account;
        let is_declared = self.settings().consumers.contains(&account.account);
        let mut state = self.state.lock();
        let matters = is_declared || state.objects.is_ours(key);
        let ended = state.objects.ended(key);
        state.refresh(account, is_declared);
        drop(state);
        if let Some(uid) = ended {
            self.work.written.ended(key, &uid);
        }
        if matters {
            self.changed(account);
        }
        if !is_declared && matters {
            self.follow(&account.account);
        }
    }

    /// Whether the accounts and the permissions of one are listed; `None` while their first lists are under way.
    pub(crate) fn is_listed(&self, state: &AccessState, account: &AccountName) -> Option<bool> {
        let permissions = (self.settings().permission_kind(), Some(account.clone()));
        let watches = [(AccessKind::Account, None), permissions];
        let mut unlisted = watches.iter().filter(|watch| !state.objects.is_listed(watch)).peekable();
        if unlisted.peek().is_none() {
            return Some(true);
        }
        unlisted.all(|watch| state.unread.contains(watch)).then_some(false)
    }

    /// Plans the next write to the objects of an account, for the key of one of them; an object that was just read
    /// replaces the cached one. `None` until the list of accounts is complete, and while it is out of date, unless the
    /// grant of an account that is known has ended: an account is deleted before its permissions. Permissions that cannot
    /// be listed delay only their own creation and that of their accounts.
    pub(crate) fn plan_next(&self, key: &AccessKey, read: Option<&Read>) -> Option<AccessPlan> {
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let state = self.state.lock();
        let account = &key.account;
        let watched = settings.permission_kinds().iter().copied().chain([AccessKind::Account]);
        let unlisted: BTreeSet<_> =
            watched.filter(|kind| !state.objects.is_listed(&watch_of(&kind.of(account)))).collect();
        let mut objects = state.objects(account);
        let has_ended = || {
            objects.contains_key(&AccessKind::Account) && settings.grant(&fleet, account) == Grant::Refused
        };
        if unlisted.contains(&AccessKind::Account) && !has_ended() {
            return None;
        }
        if let Some(read) = read {
            objects.remove(&key.kind);
            let found = as_read(read).map(|object| {
                let object = ObservedObject::read(&object.metadata, Some(&object.data));
                state.objects.as_read(&settings, key, object)
            });
            objects.extend(found.map(|found| (key.kind, found)));
        }
        let created =
            |kind: AccessKind| Some((kind, state.objects.uid_of_created(&kind.of(account))?.to_owned()));
        let others = AccessKind::ALL.into_iter().filter(|kind| *kind != key.kind);
        let passed = others.filter_map(|kind| Some((kind, *state.passed.get(&kind.of(account))?)));
        let observed = ObservedAccess {
            objects,
            created: AccessKind::ALL.into_iter().filter_map(created).collect(),
            unlisted,
            agent_namespace: state.agent_namespace(&account.cluster),
            passed: passed.collect(),
        };
        Some(settings.plan(&fleet, account, &observed))
    }
}
