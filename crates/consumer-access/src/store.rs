//! The controller's state: the observed accounts and permissions, and which keys a change affects.

use std::collections::BTreeSet;
use std::sync::Arc;

use hub_api::names::{AccountKey, ClusterName};
use hub_core::consumer_access::{
    AccessAction, AccessKind, AccessPlan, AccessSettings, Consumer, ObservedAccess, ObservedObject,
};
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::Grant;
use hub_core::note::Subject;
use hub_core::priority::Priority;
use hub_runtime::fleet_cache::FleetCache;
use hub_runtime::host::Host;
use hub_runtime::process::Shared;
use hub_runtime::work::Work;
use parking_lot::Mutex;

use crate::cache::{ObjectCache, WatchName};

/// The name of this loop in logs and metrics.
pub(crate) const CONTROLLER: &str = "consumer-access";

/// The plural of a kind.
pub(crate) const fn resource(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Account => "managedserviceaccounts",
        AccessKind::Permissions => "manifestworks",
    }
}

/// The object of a finding.
pub(crate) fn subject(kind: AccessKind, key: &AccountKey) -> Subject {
    match kind {
        AccessKind::Account => Subject::Account(key.clone()),
        AccessKind::Permissions => Subject::ManifestWork(key.cluster.clone(), kind.name(key)),
    }
}

/// The controller's state: its watches fill it, and its writes are planned from it. A key is an account on a cluster.
pub(crate) struct Store {
    pub(crate) host: Arc<Host>,
    pub(crate) settings: AccessSettings,
    pub(crate) work: Arc<Work<AccountKey>>,
    fleet: FleetCache,
    state: Mutex<AccessState>,
}

#[derive(Default)]
struct AccessState {
    accounts: ObjectCache<AccountKey>,
    permissions: ObjectCache<AccountKey>,
    /// The accounts with findings, which may end with the grant alone.
    noted: BTreeSet<AccountKey>,
    /// The accounts that the API server has refused to delete.
    undeletable: BTreeSet<AccountKey>,
}

impl AccessState {
    fn cache(&mut self, kind: AccessKind) -> &mut ObjectCache<AccountKey> {
        match kind {
            AccessKind::Account => &mut self.accounts,
            AccessKind::Permissions => &mut self.permissions,
        }
    }

    fn observed(&self, key: &AccountKey) -> ObservedAccess {
        ObservedAccess {
            account: self.accounts.get(key).cloned(),
            permissions: self.permissions.get(key).cloned(),
            is_account_undeletable: self.undeletable.contains(key),
        }
    }

    /// Whether an account has an object or a finding.
    fn concerns(&self, key: &AccountKey) -> bool {
        !self.observed(key).is_empty() || self.noted.contains(key)
    }

    /// The keys with an object of ours.
    fn keys(&self) -> BTreeSet<AccountKey> {
        self.accounts.ours().chain(self.permissions.ours()).cloned().collect()
    }
}

/// The watch that shows an object: one for all accounts, and one for each name of a ManifestWork.
fn watch_of(kind: AccessKind, key: &AccountKey) -> WatchName {
    match kind {
        AccessKind::Account => WatchName(None),
        AccessKind::Permissions => WatchName(Some(key.account.clone())),
    }
}

impl Store {
    pub(crate) fn new(shared: &Shared, settings: AccessSettings) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        for kind in AccessKind::ALL {
            host.metrics.declare_written(resource(kind));
        }
        let (work, fleet) = (Work::new(&host, CONTROLLER), shared.fleet.clone());
        Arc::new(Self { host, settings, work, fleet, state: Mutex::default() })
    }

    /// Queues every account of ours that exists or should exist.
    pub(crate) fn queue_everything(&self) {
        let fleet = self.fleet.read();
        // Not in the loop, which would hold the lock.
        let known = self.state.lock().keys();
        for key in known {
            self.queue(&fleet, key);
        }
        for consumer in self.settings.consumers.iter() {
            self.queue_consumer(&fleet, consumer);
        }
    }

    /// Queues what a change of the fleet affects.
    pub(crate) fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        match touched {
            Touched::Nothing => {}
            Touched::Cluster(cluster) => {
                // Its namespace may have been recreated.
                self.work.resume(&cluster.as_str().into());
                for consumer in self.settings.consumers.iter() {
                    self.queue_if_concerned(fleet, key_of(consumer, cluster));
                    // The namespace of a cluster is protected while the cluster exists.
                    if consumer.namespace.as_str() == cluster.as_str() {
                        self.queue_consumer(fleet, consumer);
                    }
                }
            }
            Touched::Namespaces(namespaces) => {
                let consumers = self.settings.consumers.iter();
                for consumer in consumers.filter(|consumer| namespaces.contains(&consumer.namespace)) {
                    self.queue_consumer(fleet, consumer);
                }
            }
        }
    }

    /// Queues the accounts of a consumer that exist or should exist.
    fn queue_consumer(&self, fleet: &Fleet, consumer: &Consumer) {
        let mut clusters: BTreeSet<ClusterName> = fleet.cluster_names().cloned().collect();
        let known = self.state.lock().keys();
        let known = known.into_iter().filter(|key| key.account == consumer.account);
        clusters.extend(known.map(|key| key.cluster));
        for cluster in clusters {
            self.queue_if_concerned(fleet, key_of(consumer, &cluster));
        }
    }

    /// A key that is refused and has neither object nor finding needs no work, unless an attempt for it is under way.
    fn queue_if_concerned(&self, fleet: &Fleet, key: AccountKey) {
        let exists = self.state.lock().concerns(&key) || self.settings.excludes_local_cluster(fleet, &key);
        if exists || self.settings.grant(fleet, &key) != Grant::Refused || self.work.holds(&key) {
            self.queue(fleet, key);
        }
    }

    fn queue(&self, fleet: &Fleet, key: AccountKey) {
        let exists = self.state.lock().accounts.get(&key).is_some();
        let priority = Priority::of_profile(self.settings.grant(fleet, &key), exists);
        self.work.add_with(key, priority);
    }

    fn changed(&self, key: AccountKey) {
        if self.host.is_working() {
            self.queue(&self.fleet.read(), key);
        }
    }

    /// A list of this kind begins.
    pub(crate) fn listing(&self, kind: AccessKind, watch: &WatchName) {
        self.state.lock().cache(kind).begin_list(watch);
    }

    /// A list of this kind is complete.
    pub(crate) fn listed(&self, kind: AccessKind, watch: &WatchName) {
        self.state.lock().cache(kind).end_list(watch);
        if self.host.is_working() {
            self.queue_everything();
        }
    }

    /// Whether an object has to do with a consumer.
    fn matters(&self, cache: &ObjectCache<AccountKey>, key: &AccountKey) -> bool {
        self.settings.consumers.get(&key.account).is_some() || cache.is_ours(key)
    }

    /// Records an object that a watch shows.
    pub(crate) fn show(&self, kind: AccessKind, watch: &WatchName, key: AccountKey, object: ObservedObject) {
        let mut state = self.state.lock();
        let cache = state.cache(kind);
        cache.show(&self.settings, watch, &key, object);
        let matters = self.matters(cache, &key);
        drop(state);
        if matters {
            self.changed(key);
        }
    }

    /// Records that a watch shows an object to be gone.
    pub(crate) fn ended(&self, kind: AccessKind, watch: &WatchName, key: AccountKey) {
        let mut state = self.state.lock();
        let cache = state.cache(kind);
        let matters = self.matters(cache, &key);
        cache.ended(watch, &key);
        drop(state);
        if matters {
            self.changed(key);
        }
    }

    /// Records the response to our own patch or delete.
    pub(crate) fn wrote(&self, kind: AccessKind, key: &AccountKey, object: ObservedObject) {
        self.state.lock().cache(kind).wrote(&self.settings, &watch_of(kind, key), key, object);
    }

    /// Records the response to our own create.
    pub(crate) fn created(&self, kind: AccessKind, key: &AccountKey, object: ObservedObject) {
        self.state.lock().cache(kind).created(&self.settings, &watch_of(kind, key), key, object);
    }

    /// Records that the API server has refused to delete an account.
    pub(crate) fn mark_undeletable(&self, key: &AccountKey) {
        self.state.lock().undeletable.insert(key.clone());
    }

    /// Records that the next withdrawal begins with the account, although it may be refused again.
    pub(crate) fn mark_deletable(&self, key: &AccountKey) {
        self.state.lock().undeletable.remove(key);
    }

    /// Records whether an account has findings.
    pub(crate) fn note(&self, key: &AccountKey, has_findings: bool) {
        let mut state = self.state.lock();
        if has_findings {
            state.noted.insert(key.clone());
        } else {
            state.noted.remove(key);
        }
    }

    /// Records that an object of ours is gone.
    pub(crate) fn forget(&self, kind: AccessKind, key: &AccountKey) {
        self.state.lock().cache(kind).forget(key);
    }

    /// The observed objects, and the next write; `None` until both lists are complete. The permissions of an account
    /// whose consumer is no longer declared are not watched: they are garbage-collected with it.
    pub(crate) fn plan(&self, key: &AccountKey) -> Option<(ObservedAccess, AccessPlan)> {
        let fleet = self.fleet.read();
        let mut state = self.state.lock();
        let is_declared = self.settings.consumers.get(&key.account).is_some();
        let is_complete = state.accounts.is_listed(&watch_of(AccessKind::Account, key))
            && (!is_declared || state.permissions.is_listed(&watch_of(AccessKind::Permissions, key)));
        let observed = is_complete.then(|| state.observed(key))?;
        let plan = self.settings.plan(&fleet, key, &observed);
        // Every withdrawal begins with the account.
        if !matches!(plan.action, AccessAction::Delete(..)) {
            state.undeletable.remove(key);
        }
        Some((observed, plan))
    }
}

fn key_of(consumer: &Consumer, cluster: &ClusterName) -> AccountKey {
    AccountKey { cluster: cluster.clone(), account: consumer.account.clone() }
}
