//! The controller's state, and which keys a change affects.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use hub_api::cluster_access::CLUSTER_ACCESSES;
use hub_api::names::{AccountKey, AccountName, ClusterName, ManagerName, Namespace, ProfileKey};
use hub_core::consumer_access::{
    AccessKey, AccessKind, AccessName, AccessSettings, Changed, Consumers, DecisionKind,
    KnownAccounts, ObservedObject, PlacementName, PublishedCluster, cluster_secret_name, of_kueue,
};
use hub_core::finding::{Finding, Subject};
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::Grant;
use hub_core::priority::Priority;
use hub_core::version::Version;
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_runtime::host::{HeldWatch, Host, Watches};
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::work::Work;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::state::{Reading, State, WatchName, set};
use crate::watches;

/// The name of this loop in logs and metrics.
pub(crate) const CONTROLLER: &str = "consumer-access";

/// How many keys are queued at once, each with its decisions.
const AT_ONCE: usize = 100;

/// The controller's state: its watches fill it, and its writes are planned from it. Its locks are taken in the order of
/// the fields, and held shortly.
pub(crate) struct Store {
    pub(crate) host: Arc<Host>,
    reporter: Reporter,
    pub(crate) manager: ManagerName,
    pub(crate) work: Arc<Work<AccessKey>>,
    pub(crate) fleet: FleetCache,
    /// The decisions of the Placements that ClusterAccesses refer to.
    placements: Mutex<BTreeMap<PlacementName, [HeldWatch; DecisionKind::ALL.len()]>>,
    settings: RwLock<AccessSettings>,
    /// The watches on permissions, of the accounts that consumers use and of those that exist, and on cluster Secrets.
    held: Mutex<BTreeMap<WatchName, HeldWatch>>,
    pub(crate) state: Mutex<State>,
    watches: OnceLock<Watches>,
    has_backlog: Notify,
}

impl Store {
    pub(crate) fn new(shared: &Shared, settings: AccessSettings) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        let kinds = [AccessKind::Account, AccessKind::ManifestWork]
            .iter()
            .chain(settings.permission_kinds());
        let others = ["secrets", CLUSTER_ACCESSES]
            .into_iter()
            .chain(watches::kueue().map(|key| key.resource()));
        for resource in kinds.map(|kind| kind.resource()).chain(others) {
            host.metrics.declare_written(resource);
        }
        Arc::new(Self {
            reporter: host.reporter(CONTROLLER),
            manager: shared.manager.clone(),
            work: Work::new(&host, CONTROLLER, |key| key.namespace().unwrap_or_default().into()),
            fleet: shared.fleet.clone(),
            placements: Mutex::default(),
            settings: RwLock::new(settings),
            held: Mutex::default(),
            state: Mutex::default(),
            watches: OnceLock::new(),
            has_backlog: Notify::new(),
            host,
        })
    }

    /// The settings, with the consumers that the ClusterAccesses declare. A caller may hold a guard already.
    pub(crate) fn settings(&self) -> RwLockReadGuard<'_, AccessSettings> {
        self.settings.read_recursive()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Consumers) -> T) -> T {
        change(&mut self.settings.write().consumers)
    }

    /// Changes ClusterAccesses, and queues what that affects.
    pub(crate) fn change_objects(self: &Arc<Self>, change: impl FnOnce(&mut Consumers) -> Changed) {
        let (changed, becomes_complete) = self.change(|consumers| {
            let was_complete = consumers.is_complete();
            (change(consumers), !was_complete && consumers.is_complete())
        });
        self.objects_changed(&changed);
        // What no object asks for is not in doubt any more.
        if becomes_complete && self.host.is_working() {
            self.queue_everything();
        }
    }

    /// Starts the watches, and those that ClusterAccesses need as they come.
    pub(crate) fn watch(self: &Arc<Self>, watches: &Watches) {
        self.host.tasks.spawn("the queue of consumer access", Arc::clone(self).queue_backlog());
        let _ = self.watches.set(watches.clone());
        watches::watch(self, watches);
    }

    /// Watches the permissions of an account while a consumer uses it, or it exists.
    fn follow(self: &Arc<Self>, account: &AccountName) {
        let Some(watches) = self.watches.get() else { return };
        let settings = self.settings();
        let is_followed =
            settings.consumers.contains(account) || self.state.lock().known.contains(account);
        for kind in settings.permission_kinds() {
            let name = WatchName::Permissions(*kind, account.clone());
            let mut held = self.held.lock();
            if is_followed {
                held.entry(name)
                    .or_insert_with(|| watches::watch_permissions(self, watches, *kind, account));
                continue;
            }
            let mut state = self.state.lock();
            // The first list may show what the account has left.
            if state.is_listed(&name) && held.remove(&name).is_some() {
                state.forget(*kind, account);
                state.read.remove(&name);
            }
        }
    }

    /// Watches the cluster Secrets and the profiles in a namespace whose consumer gets such Secrets. The watches stay:
    /// what exists may have to end.
    fn watch_secrets(self: &Arc<Self>, namespace: &Namespace) {
        let (settings, Some(watches)) = (self.settings(), self.watches.get()) else { return };
        let mut held = self.held.lock();
        let objects = settings.consumers.names_in(namespace);
        if objects.filter_map(|name| settings.consumers.object(name)).any(|it| it.has_secrets) {
            held.entry(WatchName::Secrets(namespace.clone()))
                .or_insert_with(|| watches::watch_secrets(self, watches, namespace));
        }
        let Some(consumer) = settings.consumers.argo_cd(namespace) else { return };
        let provider = settings.provider_of(consumer);
        let profiles = WatchName::Profiles(namespace.clone(), provider.to_owned());
        // Another consumer may use another access provider.
        let is_used = |name: &WatchName| {
            *name == profiles || !matches!(name, WatchName::Profiles(of, _) if of == namespace)
        };
        held.retain(|name, _| is_used(name));
        self.state.lock().read.retain(|name, _| is_used(name));
        held.entry(profiles.clone())
            .or_insert_with(|| watches::watch_profiles(self, watches, namespace, provider));
    }

    /// Watches the decisions of the Placements that ClusterAccesses refer to.
    fn watch_placements(self: &Arc<Self>) {
        let Some(watches) = self.watches.get() else { return };
        let mut held = self.placements.lock();
        let used = self.settings().consumers.placements();
        if held.len() == used.len() && used.iter().all(|placement| held.contains_key(placement)) {
            return;
        }
        held.retain(|placement, _| used.contains(placement));
        self.change(|consumers| consumers.forget_decisions(&used));
        for placement in used {
            held.entry(placement).or_insert_with_key(|placement| {
                DecisionKind::ALL
                    .map(|kind| watches::watch_decisions(self, watches, kind, placement))
            });
        }
    }

    /// Queues what a change of ClusterAccesses affects, and watches what they need.
    fn objects_changed(self: &Arc<Self>, changed: &Changed) {
        if changed.is_empty() {
            return;
        }
        self.watch_placements();
        for account in changed.values().flatten() {
            self.follow(account);
        }
        let namespaces: BTreeSet<_> = changed.keys().map(|name| name.namespace.clone()).collect();
        for namespace in &namespaces {
            self.watch_secrets(namespace);
        }
        if !self.host.is_working() {
            return;
        }
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let keys = settings.concerned_by(&fleet, changed, &self.state.lock().known);
        self.queue_accounts(&fleet, keys);
        self.queue_integrations_in(&fleet, namespaces);
        for name in changed.keys() {
            self.mark(name);
        }
    }

    /// Records whether all ClusterAccesses are known.
    pub(crate) fn set_read(&self, is_read: bool) {
        if self.change(|consumers| consumers.set_read(is_read)) && is_read && self.host.is_working()
        {
            self.queue_everything();
        }
    }

    /// Queues what a change of the decisions of a Placement affects: for these clusters, or for all.
    pub(crate) fn decided(
        &self,
        placement: &PlacementName,
        clusters: Option<&BTreeSet<ClusterName>>,
    ) {
        if !self.host.is_working() {
            return;
        }
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let consumers = settings.consumers.in_namespace(&placement.0);
        for consumer in consumers.filter(|it| it.placement_name().as_ref() == Some(placement)) {
            let keys = settings.concerned_by_decisions(
                &fleet,
                consumer,
                clusters,
                &self.state.lock().known,
            );
            self.queue_all(&fleet, keys.into_iter().collect());
            self.mark(&consumer.name);
        }
    }

    /// Makes [`Self::queue_backlog`] queue every object that exists or should exist.
    pub(crate) fn queue_everything(&self) {
        let settings = self.settings();
        let names = settings.consumers.names().chain(settings.consumers.unreadable());
        let names = names.cloned().collect();
        let mut state = self.state.lock();
        let (clusters, integrations): (_, Vec<_>) =
            (state.known.clusters().cloned().collect(), state.integrations().cloned().collect());
        state.backlog.names = names;
        state.backlog.clusters = clusters;
        state.backlog.keys.extend(integrations);
        drop(state);
        self.has_backlog.notify_one();
    }

    /// Queues the backlog, for as long as the process runs.
    async fn queue_backlog(self: Arc<Self>) {
        loop {
            self.has_backlog.notified().await;
            while self.queue_portion() {
                yield_now().await;
            }
        }
    }

    /// Queues a portion of the backlog: what exists on a cluster, or some keys; or adds the keys of a ClusterAccess to it.
    /// Returns whether there was any.
    fn queue_portion(&self) -> bool {
        let fleet = self.fleet.read();
        let mut state = self.state.lock();
        if let Some(cluster) = state.backlog.clusters.pop_first() {
            let known = state.known.on(&cluster);
            drop(state);
            for key in known {
                self.queue_access(&fleet, &key, None);
            }
            return true;
        }
        let keys = state.backlog.next_keys(AT_ONCE);
        if !keys.is_empty() {
            drop(state);
            self.queue_all(&fleet, keys);
            return true;
        }
        let Some(name) = state.backlog.names.pop_first() else { return false };
        let is_last_in_namespace =
            state.backlog.names.first().is_none_or(|next| next.namespace != name.namespace);
        drop(state);
        let account = self.settings().consumers.get(&name).map(|it| it.account.clone());
        self.queue_users(&fleet, &[(name.clone(), account.into_iter().collect())].into());
        self.mark(&name);
        if is_last_in_namespace {
            self.queue_integrations(&fleet, &Touched::Namespaces([name.namespace].into()));
        }
        true
    }

    /// Queues accounts on the clusters that can be granted to the objects that use them.
    fn queue_users(&self, fleet: &Fleet, users: &Changed) {
        let keys = self.settings().concerned_by(fleet, users, &KnownAccounts::default());
        self.queue_accounts(fleet, keys);
    }

    fn queue_accounts(&self, fleet: &Fleet, keys: impl IntoIterator<Item = AccountKey>) {
        let keys = keys.into_iter().map(|key| AccessKind::Account.of(&key));
        self.queue_all(fleet, keys.collect());
    }

    /// Queues a few keys at once, and many in portions, so that nothing else waits for long.
    fn queue_all(&self, fleet: &Fleet, keys: Vec<AccessKey>) {
        if keys.len() > AT_ONCE {
            self.state.lock().backlog.keys.extend(keys);
            return self.has_backlog.notify_one();
        }
        for key in keys {
            match key {
                AccessKey::Access(_, account) => self.queue_if_needed(fleet, &account),
                key => self.queue(fleet, key),
            }
        }
    }

    /// Queues an account on every cluster.
    fn queue_account(&self, account: &AccountName) {
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let users = settings.consumers.of(account);
        let users: Changed =
            users.map(|user| (user.name.clone(), [account.clone()].into())).collect();
        self.queue_users(&fleet, &users);
        let known = self.state.lock().known.of(account);
        self.queue_accounts(&fleet, known);
        for name in users.keys() {
            self.mark(name);
        }
    }

    /// Queues what a change of the fleet affects.
    pub(crate) fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        let keys = self.settings().concerned(fleet, touched, &self.state.lock().known);
        self.queue_accounts(fleet, keys);
        self.queue_integrations(fleet, touched);
        self.mark_touched(fleet, touched);
    }

    /// Queues the objects by which applications find their clusters that a change of the fleet affects.
    fn queue_integrations(&self, fleet: &Fleet, touched: &Touched) {
        let settings = self.settings();
        let keys = settings.integrations_concerned(fleet, touched, &self.state.lock().objects);
        self.queue_all(fleet, keys.into_iter().collect());
    }

    /// Queues the objects by which the applications in these namespaces find their clusters. The namespace of Kueue may
    /// have been another one, and what exists may have to end.
    fn queue_integrations_in(&self, fleet: &Fleet, namespaces: BTreeSet<Namespace>) {
        let existing: Vec<_> = of_kueue(&self.state.lock().objects).cloned().collect();
        self.queue_all(fleet, existing);
        self.queue_integrations(fleet, &Touched::Namespaces(namespaces));
    }

    /// Queues an account, unless it is refused and has no object, and no attempt to create it is under way.
    fn queue_if_needed(&self, fleet: &Fleet, key: &AccountKey) {
        let settings = self.settings();
        let exists = self.state.lock().concerns(key, settings.consumers.contains(&key.account));
        let is_needed = exists || settings.grant(fleet, key) != Grant::Refused;
        if is_needed || self.work.holds(&AccessKind::Account.of(key)) {
            self.queue_access(fleet, key, None);
        }
    }

    /// Queues the objects of an account, except for one of this kind.
    pub(crate) fn queue_access(&self, fleet: &Fleet, key: &AccountKey, except: Option<AccessKind>) {
        let settings = self.settings();
        let exists = self.state.lock().objects.contains_key(&AccessKind::Account.of(key));
        // If several consumers share the account, one of them may have lost its grant.
        let is_shared = settings.consumers.is_shared(&key.account);
        let grant = if is_shared && exists { Grant::Refused } else { settings.grant(fleet, key) };
        let kinds = settings.permission_kinds().iter().copied().chain([AccessKind::Account]);
        for kind in kinds.filter(|kind| Some(*kind) != except) {
            self.work.add_with(kind.of(key), Priority::of_profile(grant, exists));
        }
    }

    /// Queues an object by which an application finds its clusters. Revocations and MultiKueueConfigs go first; a
    /// MultiKueueConfig is a single write.
    fn queue(&self, fleet: &Fleet, key: AccessKey) {
        let priority = match &key {
            AccessKey::MultiKueueConfig(_) => Priority::End,
            key => Priority::of_profile(
                self.settings().grant_of(fleet, key),
                self.state.lock().is_ours(key),
            ),
        };
        self.work.add_with(key, priority);
    }

    /// Queues the status of a ClusterAccess.
    pub(crate) fn mark(&self, name: &AccessName) {
        if self.host.is_working() {
            self.work.add_with(AccessKey::ClusterAccess(name.clone()), Priority::Update);
        }
    }

    /// Queues the statuses that count a cluster or may have to, or are in these namespaces.
    fn mark_touched(&self, fleet: &Fleet, touched: &Touched) {
        let settings = self.settings();
        let mut names = BTreeSet::new();
        match touched {
            Touched::Nothing | Touched::Report(_) => {}
            Touched::Cluster(cluster) => {
                let counting = self.state.lock().counting.get(cluster).cloned();
                names.extend(counting.into_iter().flatten());
                // The namespace of a cluster is protected while the cluster exists.
                let own = cluster.as_str().into();
                let namespaces = fleet.candidates_for(cluster).chain([&own]);
                names.extend(namespaces.flat_map(|it| settings.consumers.names_in(it)).cloned());
            }
            Touched::Namespaces(namespaces) => {
                let in_namespaces = namespaces.iter();
                names.extend(in_namespaces.flat_map(|it| settings.consumers.names_in(it)).cloned());
            }
        }
        for name in &names {
            self.mark(name);
        }
    }

    /// Queues an object that has changed, with those that depend on it.
    fn changed(&self, key: &AccessKey) {
        if !self.host.is_working() {
            return;
        }
        let fleet = self.fleet.read();
        let AccessKey::Access(_, account) = key else { return self.queue(&fleet, key.clone()) };
        self.queue_access(&fleet, account, None);
    }

    /// Queues the statuses that depend on an object.
    fn mark_users(&self, key: &AccessKey) {
        let AccessKey::Access(_, account) = key else { return };
        if !self.host.is_working() {
            return;
        }
        let (fleet, settings) = (self.fleet.read(), self.settings());
        for consumer in settings.users(&fleet, account) {
            self.mark(&consumer.name);
        }
    }

    /// Whether the watch has yet to show what our last write has left of an object.
    pub(crate) fn is_unseen(&self, state: &State, key: &AccessKey) -> bool {
        self.work.written.unseen(key, state.version(key).as_ref()).is_some()
    }

    pub(crate) fn report(&self, key: &AccessKey, findings: Vec<Finding>) {
        let uid = self.version(key).map(|version| version.uid);
        self.reporter.report(&Subject::Access(key.clone()), uid.as_ref(), findings);
    }

    /// The version of an object.
    pub(crate) fn version(&self, key: &AccessKey) -> Option<Version> {
        match key {
            AccessKey::ClusterAccess(name) => {
                self.settings().consumers.object(name).map(|object| object.version.clone())
            }
            key => self.state.lock().version(key),
        }
    }

    /// Records that the list of a watch is complete.
    pub(crate) fn listed(self: &Arc<Self>, watch: &WatchName) {
        let was_listed =
            self.state.lock().read.insert(watch.clone(), Reading::Listed) == Some(Reading::Listed);
        // A repeated list need not queue more: the sink was called for each object that it shows or no longer shows.
        if was_listed || !self.host.is_working() {
            return;
        }
        match watch {
            WatchName::All(_) => self.queue_everything(),
            WatchName::Permissions(_, account) => {
                self.queue_account(account);
                self.follow(account);
            }
            WatchName::Secrets(namespace) | WatchName::Profiles(namespace, _) => {
                self.queue_integrations_in(&self.fleet.read(), [namespace.clone()].into());
                self.settings().consumers.names_in(namespace).for_each(|name| self.mark(name));
            }
        }
    }

    /// Records that the objects of a watch cannot be read, and queues the statuses that depend on them.
    fn set_unread(&self, watch: &WatchName, reading: Reading) {
        if self.state.lock().read.insert(watch.clone(), reading) == Some(reading) {
            return;
        }
        let settings = self.settings();
        match watch {
            WatchName::All(_) => settings.consumers.names().for_each(|name| self.mark(name)),
            WatchName::Permissions(_, account) => {
                settings.consumers.of(account).for_each(|consumer| self.mark(&consumer.name));
            }
            WatchName::Secrets(namespace) | WatchName::Profiles(namespace, _) => {
                settings.consumers.names_in(namespace).for_each(|name| self.mark(name));
            }
        }
    }

    /// Records that lists of the objects of a watch have failed for a minute. Why they cannot be read may be known.
    pub(crate) fn unread(&self, watch: &WatchName) {
        let before = self.state.lock().read.get(watch).copied();
        if before != Some(Reading::Unavailable) {
            self.set_unread(watch, Reading::OutOfDate);
        }
    }

    /// Records that the API server refuses to list the objects of a watch. Once they are listed, a watch may continue
    /// without another list.
    pub(crate) fn refused(&self, watch: &WatchName) {
        if !self.state.lock().is_listed(watch) {
            self.set_unread(watch, Reading::Unavailable);
        }
    }

    /// Records that the hub does not serve the kind of a watch. ClusterPermissions need not be installed: nothing that the
    /// watch has shown exists any more. Returns whether no consumer lacks the kind.
    pub(crate) fn not_served(&self, watch: &WatchName) -> bool {
        let was_listed = self.state.lock().is_listed(watch);
        // A list follows in any case.
        self.set_unread(watch, Reading::Unavailable);
        if let WatchName::Permissions(kind @ AccessKind::ClusterPermission, account) = watch {
            self.work.written.retain(|object| WatchName::of(object) != *watch);
            self.state.lock().forget(*kind, account);
            if was_listed && self.host.is_working() {
                self.queue_account(account);
            }
            // Nothing that the account has left will be shown.
            let is_used = self.settings().consumers.contains(account);
            if !self.needs(watch) && !is_used && !self.state.lock().known.contains(account) {
                self.state.lock().read.remove(watch);
                self.held.lock().remove(watch);
            }
        }
        !self.needs(watch)
    }

    /// Whether consumers need the kind of a watch: that of accounts always, that of permissions if it is configured, and
    /// those of Kueue if one asks for them.
    pub(crate) fn needs(&self, watch: &WatchName) -> bool {
        match watch {
            WatchName::Permissions(kind, _) => self.settings().permission_kind() == *kind,
            WatchName::All(resource) if *resource != AccessKind::Account.resource() => {
                self.settings().consumers.multi_kueue().next().is_some()
            }
            _ => true,
        }
    }

    /// Records the namespace of the addon managed-serviceaccount on a cluster, if it shows one.
    pub(crate) fn set_agent_namespace(&self, cluster: &ClusterName, namespace: Option<&Namespace>) {
        let before = set(&mut self.state.lock().agents, cluster, namespace);
        if before.as_ref() != namespace && self.host.is_working() {
            self.fleet_changed(&self.fleet.read(), &Touched::Cluster(cluster.clone()));
        }
    }

    /// Records whether these addons can be read; if the hub does not serve the kind, there are none.
    pub(crate) fn set_agents_read(&self, is_read: bool) {
        let was_read = std::mem::replace(&mut self.state.lock().knows_agents, is_read);
        if is_read && !was_read && self.host.is_working() {
            self.queue_everything();
        }
    }

    /// Records an object that a watch shows, or no longer shows.
    pub(crate) fn set(self: &Arc<Self>, key: &AccessKey, object: Option<ObservedObject>) {
        let is_declared = self.is_declared(key);
        let settings = self.settings();
        let mut state = self.state.lock();
        let (was_ours, was_foreign) = (state.is_ours(key), state.is_foreign(&settings, key));
        let is_changed = if let Some(object) = object {
            state.show(&settings, key, object, is_declared)
        } else {
            if let Some(uid) = state.ended(key, is_declared) {
                self.work.written.ended(key, &uid);
            }
            true
        };
        let is_ours = was_ours || state.is_ours(key);
        let is_foreign = state.is_foreign(&settings, key);
        drop(state);
        self.seen(key, is_declared, is_ours);
        if is_changed {
            self.mark_users(key);
        }
        self.owner_changed(key, was_foreign, is_foreign);
    }

    /// Queues the MultiKueueConfigs if a MultiKueueCluster passes to another owner, or from one: they do not list it then.
    fn owner_changed(&self, key: &AccessKey, was_foreign: bool, is_foreign: bool) {
        if !matches!(key, AccessKey::MultiKueueCluster(_))
            || was_foreign == is_foreign
            || !self.host.is_working()
        {
            return;
        }
        let fleet = self.fleet.read();
        let configs: Vec<_> = self.settings().multi_kueue_configs().collect();
        for config in configs {
            self.queue(&fleet, config);
        }
    }

    /// Whether an object has the name of one of a declared account.
    fn is_declared(&self, key: &AccessKey) -> bool {
        matches!(key, AccessKey::Access(_, account) if self.settings().consumers.contains(&account.account))
    }

    /// Queues what an object affects that a watch has shown, or no longer shows.
    fn seen(self: &Arc<Self>, key: &AccessKey, is_declared: bool, is_ours: bool) {
        let account = match key {
            AccessKey::Access(_, account) => Some(&account.account),
            _ => None,
        };
        if let Some(account) = account.filter(|_| is_ours && !is_declared) {
            self.follow(account);
        }
        if is_declared || is_ours || account.is_none() {
            self.changed(key);
        }
    }

    /// Records what a profile publishes.
    pub(crate) fn set_published(&self, key: &ProfileKey, published: Option<&PublishedCluster>) {
        let before = set(&mut self.state.lock().published, key, published);
        if before.as_ref() != published {
            self.changed(&AccessKey::ClusterSecret(key.clone()));
        }
    }

    /// Records for which cluster a cluster Secret is, unless it has the name of ours for it.
    pub(crate) fn set_rival(
        &self,
        namespace: &Namespace,
        secret: &str,
        cluster: Option<ClusterName>,
    ) {
        let cluster = cluster.filter(|cluster| cluster_secret_name(cluster) != secret);
        let id = (namespace.clone(), secret.to_owned());
        let before = set(&mut self.state.lock().rivals, &id, cluster.as_ref());
        if before != cluster {
            for cluster in before.into_iter().chain(cluster) {
                let namespace = namespace.clone();
                self.changed(&AccessKey::ClusterSecret(ProfileKey { namespace, cluster }));
            }
        }
    }
}
