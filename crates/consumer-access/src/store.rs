//! The controller's state, and how its watches fill it.

mod queue;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use hub_api::cluster_access::CLUSTER_ACCESSES;
use hub_api::names::{AccountKey, ClusterName, ManagerName, Namespace, ProfileKey};
use hub_core::consumer_access::{
    AccessKey, AccessKind, AccessSettings, Changed, Consumers, DecisionKind, MULTI_KUEUE_CLUSTER,
    MULTI_KUEUE_CONFIG, ObservedObject, PublishedCluster, SECRET, cluster_secret_name,
};
use hub_core::finding::{Finding, Subject};
use hub_core::fleet::Touched;
use hub_core::version::Version;
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_runtime::host::Host;
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::work::Work;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::Notify;

use crate::state::{Reading, State, set};
use crate::watch_name::{Scope, WatchName};

/// The name of this loop in logs and metrics.
pub(crate) const CONTROLLER: &str = "consumer-access";

/// The controller's state: its watches fill it, and its writes are planned from it. Its locks are taken in the order of
/// the fields, and held shortly.
pub(crate) struct Store {
    pub(crate) host: Arc<Host>,
    reporter: Reporter,
    pub(crate) manager: ManagerName,
    pub(crate) work: Arc<Work<AccessKey>>,
    pub(crate) fleet: FleetCache,
    settings: RwLock<AccessSettings>,
    pub(crate) state: Mutex<State>,
    has_unfollowed: Notify,
    has_backlog: Notify,
}

impl Store {
    pub(crate) fn new(shared: &Shared, settings: AccessSettings) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        let kinds = [AccessKind::Account].iter().chain(settings.permission_kinds());
        let others = [MULTI_KUEUE_CLUSTER, MULTI_KUEUE_CONFIG, SECRET];
        for kind in kinds.map(|kind| kind.api()).chain(others) {
            host.metrics.declare_written(kind.plural);
        }
        host.metrics.declare_written(CLUSTER_ACCESSES);
        Arc::new(Self {
            reporter: host.reporter(CONTROLLER),
            manager: shared.manager.clone(),
            work: Work::new(&host, CONTROLLER, |key| key.namespace().unwrap_or_default().into()),
            fleet: shared.fleet.clone(),
            settings: RwLock::new(settings),
            state: Mutex::default(),
            has_unfollowed: Notify::new(),
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
    pub(crate) fn change_objects(&self, change: impl FnOnce(&mut Consumers) -> Changed) {
        let (changed, concerns_kueue, becomes_complete) = self.change(|consumers| {
            let was_complete = consumers.is_complete();
            let asked: BTreeSet<_> = consumers.asking_for_kueue().cloned().collect();
            let changed = change(consumers);
            let mut asking = consumers.asking_for_kueue().chain(&asked);
            let concerns_kueue = asking.any(|name| changed.contains_key(name));
            (changed, concerns_kueue, !was_complete && consumers.is_complete())
        });
        self.objects_changed(&changed, concerns_kueue);
        // What no object asks for is not in doubt any more.
        if becomes_complete && self.host.is_working() {
            self.queue_everything();
        }
    }

    /// Notifies that the watches of an account or of a namespace may have to begin or to end.
    pub(crate) fn follow(&self, scope: Scope) {
        self.state.lock().unfollowed.insert(scope);
        self.has_unfollowed.notify_one();
    }

    /// Waits until watches may have to begin or to end.
    pub(crate) async fn unfollowed(&self) -> BTreeSet<Scope> {
        self.has_unfollowed.notified().await;
        std::mem::take(&mut self.state.lock().unfollowed)
    }

    /// The watches that an account or a namespace needs: on the permissions of an account that a consumer uses, or that
    /// has an object of ours; and in a namespace on the cluster Secrets, the profiles and the decisions for its ClusterAccesses.
    pub(crate) fn needed(&self, scope: &Scope) -> BTreeSet<WatchName> {
        let settings = self.settings();
        let consumers = &settings.consumers;
        let namespace = match scope {
            Scope::Account(account) => {
                let state = self.state.lock();
                let has_ours = || {
                    let mut clusters = state.known.clusters_of(account);
                    clusters.any(|it| state.concerns(&it.account(account), false))
                };
                let is_followed = consumers.contains(account) || has_ours();
                let kinds = settings.permission_kinds().iter().filter(|_| is_followed);
                return kinds.map(|kind| WatchName::of(*kind, account)).collect();
            }
            Scope::Namespace(namespace) => namespace,
        };
        let mut objects = consumers.names_in(namespace).filter_map(|name| consumers.object(name));
        let secrets = objects.any(|object| object.has_secrets);
        let profiles = consumers.argo_cd(namespace).map(|consumer| {
            WatchName::Profiles(namespace.clone(), settings.provider_of(consumer).to_owned())
        });
        let decisions = consumers.placements_in(namespace).flat_map(|placement| {
            DecisionKind::ALL.map(|kind| WatchName::Decisions(kind, placement.clone()))
        });
        let secrets = secrets.then(|| WatchName::Secrets(namespace.clone()));
        secrets.into_iter().chain(profiles).chain(decisions).collect()
    }

    /// Forgets what a watch has shown that is not needed any more. Returns whether it can end.
    pub(crate) fn end(&self, watch: &WatchName) -> bool {
        if let WatchName::Decisions(_, placement) = watch {
            self.change(|consumers| consumers.forget_decisions(placement));
        }
        let (settings, mut state) = (self.settings(), self.state.lock());
        let mut unknown = Vec::new();
        match watch {
            WatchName::Permissions(kind, account) => {
                // The first list may show what the account has left.
                if !state.is_listed(watch) {
                    return false;
                }
                state.forget(*kind, account);
            }
            WatchName::Secrets(namespace) => {
                if !state.have_secrets_ended(&settings, namespace) {
                    return false;
                }
                unknown = state.forget_secrets(namespace);
            }
            // What has to end does so whatever the profiles publish.
            WatchName::Profiles(namespace, _) => {
                state.published.retain(|profile, _| profile.namespace != *namespace);
            }
            _ => {}
        }
        state.read.remove(watch);
        drop(state);
        // No other event ends the findings on them.
        for key in unknown {
            self.report(&key, Vec::new());
        }
        true
    }

    /// Records whether all ClusterAccesses are known.
    pub(crate) fn set_read(&self, is_read: bool) {
        if self.change(|consumers| consumers.set_read(is_read)) && is_read && self.host.is_working()
        {
            self.queue_everything();
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

    /// Records whether a watch can read its objects, which may let watches end. Returns whether that is new.
    fn set_reading(&self, watch: &WatchName, reading: Reading) -> bool {
        let mut state = self.state.lock();
        if let (WatchName::Secrets(namespace), Reading::Listed) = (watch, reading) {
            state.failing.remove(namespace);
        }
        let before = state.read.insert(watch.clone(), reading);
        drop(state);
        let is_new = before != Some(reading);
        if is_new && let Some(scope) = watch.scope() {
            self.follow(scope);
        }
        is_new
    }

    /// Records that the list of a watch is complete.
    pub(crate) fn listed(&self, watch: &WatchName) {
        let is_new = self.set_reading(watch, Reading::Listed);
        // A repeated list need not queue more: the sink was called for each object that it shows or no longer shows.
        if !is_new || !self.host.is_working() {
            return;
        }
        match watch.scope() {
            None => self.queue_everything(),
            Some(Scope::Account(account)) => self.queue_account(&account),
            Some(Scope::Namespace(namespace)) => {
                let (fleet, settings) = (self.fleet.read(), self.settings());
                settings.consumers.names_in(&namespace).for_each(|name| self.mark(name));
                let keys = settings.cluster_secrets(&fleet, &namespace, &self.state.lock().objects);
                self.queue_all(&fleet, keys);
            }
        }
    }

    /// Records that the objects of a watch cannot be read, and queues the statuses that depend on them.
    fn set_unread(&self, watch: &WatchName, reading: Reading) {
        if !self.set_reading(watch, reading) {
            return;
        }
        let consumers = &self.settings().consumers;
        match watch.scope() {
            None => consumers.names().for_each(|name| self.mark(name)),
            Some(Scope::Account(account)) => {
                consumers.of(&account).for_each(|consumer| self.mark(&consumer.name));
            }
            Some(Scope::Namespace(namespace)) => {
                consumers.names_in(&namespace).for_each(|name| self.mark(name));
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

    /// Records that lists of the Secrets in a namespace fail for longer than an API server that starts refuses everything:
    /// what cannot be read is not waited for.
    pub(crate) fn still_failing(&self, watch: &WatchName) {
        let WatchName::Secrets(namespace) = watch else { return };
        if self.state.lock().failing.insert(namespace.clone()) {
            self.secrets_may_have_ended(namespace);
        }
    }

    /// Queues the watches of a namespace whose Secrets may have ended, and the statuses that wait for that.
    pub(crate) fn secrets_may_have_ended(&self, namespace: &Namespace) {
        self.follow(Scope::Namespace(namespace.clone()));
        self.settings().consumers.names_in(namespace).for_each(|name| self.mark(name));
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
        let is_needed = self.needs(watch);
        if let WatchName::Permissions(kind @ AccessKind::ClusterPermission, account) = watch {
            let is_it = |key: &AccountKey| key.account == *account;
            self.work.written.retain(
                |object| !matches!(object, AccessKey::Access(of, key) if of == kind && is_it(key)),
            );
            if self.state.lock().forget(*kind, account) {
                self.follow(Scope::Account(account.clone()));
                if self.host.is_working() {
                    self.queue_account(account);
                }
            }
            // Without the kind, no object of it exists.
            if !is_needed {
                self.listed(watch);
                return true;
            }
        }
        // A list follows in any case.
        self.set_unread(watch, Reading::Unavailable);
        !is_needed
    }

    /// Whether consumers need the kind of a watch: that of accounts always, that of permissions if it is configured, and
    /// those of Kueue if one asks for them.
    pub(crate) fn needs(&self, watch: &WatchName) -> bool {
        match watch {
            WatchName::Permissions(kind, _) => self.settings().permission_kind() == *kind,
            WatchName::MultiKueueClusters | WatchName::MultiKueueConfigs => {
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

    /// Records an object that a watch shows, or no longer shows, and queues what it affects.
    pub(crate) fn set(&self, key: &AccessKey, object: Option<ObservedObject>) {
        let (fleet, settings) = (self.fleet.read(), self.settings());
        // An object that has the name of one of a declared account.
        let is_declared = matches!(key, AccessKey::Access(_, account) if settings.consumers.contains(&account.account));
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
        match key {
            AccessKey::Access(_, account) if is_ours && !is_declared => {
                self.follow(Scope::Account(account.account.clone()));
            }
            AccessKey::ClusterSecret(ProfileKey { namespace, .. })
                if settings.consumers.argo_cd(namespace).is_none() =>
            {
                self.secrets_may_have_ended(namespace);
            }
            _ => {}
        }
        if !self.host.is_working() {
            return;
        }
        let AccessKey::Access(_, account) = key else {
            self.queue(&fleet, key.clone());
            // A MultiKueueConfig does not list the MultiKueueCluster of another owner.
            if matches!(key, AccessKey::MultiKueueCluster(_)) && was_foreign != is_foreign {
                settings.multi_kueue_configs().for_each(|config| self.queue(&fleet, config));
            }
            return;
        };
        if is_declared || is_ours {
            self.queue_access(&fleet, account, None);
        }
        if is_changed {
            self.account_changed(&fleet, account);
        }
    }

    /// Records what a profile publishes.
    pub(crate) fn set_published(&self, key: &ProfileKey, published: Option<&PublishedCluster>) {
        let before = set(&mut self.state.lock().published, key, published);
        if before.as_ref() != published {
            self.secret_changed(key.clone());
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
        let after: BTreeSet<_> = cluster.map(|it| it.in_namespace(namespace)).into_iter().collect();
        let id = (namespace.clone(), secret.to_owned());
        let mut state = self.state.lock();
        let before: BTreeSet<_> = state.rivals.of_left(&id).cloned().collect();
        state.rivals.set(&id, &after);
        drop(state);
        for profile in &before ^ &after {
            self.secret_changed(profile);
        }
    }
}
