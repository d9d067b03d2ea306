//! The controller's state: the observed accounts and permissions, and which keys a change affects.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace};
use hub_core::access::Known;
use hub_core::consumer_access::{
    AccessKind, AccessPlan, AccessSettings, FoundObject, ObservedAccess, ObservedObject,
};
use hub_core::finding::Subject;
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::Grant;
use hub_core::priority::Priority;
use hub_core::version::Version;
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_runtime::host::Host;
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::work::Work;
use hub_runtime::written::Written;
use kube::api::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;

use crate::cache::ObjectCache;

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

/// The object of a finding.
pub(crate) fn subject(kind: AccessKind, key: &AccountKey) -> Subject {
    match kind {
        AccessKind::Account => Subject::Account(key.clone()),
        AccessKind::ManifestWork => Subject::ManifestWork(key.cluster.clone(), kind.name(key)),
        AccessKind::ClusterPermission => Subject::ClusterPermission(key.cluster.clone(), kind.name(key)),
    }
}

/// The key of an object of an account.
pub(crate) type AccessKey = (AccessKind, AccountKey);

/// The controller's state: its watches fill it, and its writes are planned from it. A key is an account on a cluster.
pub(crate) struct Store {
    pub(crate) host: Arc<Host>,
    pub(crate) reporter: Reporter,
    pub(crate) settings: AccessSettings,
    pub(crate) work: Arc<Work<AccountKey>>,
    /// What our writes have left of each object: a key of the queue has several objects.
    pub(crate) written: Written<AccessKey>,
    fleet: FleetCache,
    state: Mutex<AccessState>,
}

#[derive(Default)]
struct AccessState {
    objects: ObjectCache<AccessKey, WatchName>,
    /// The namespace of the addon managed-serviceaccount on each cluster that shows one, and whether all are known.
    agents: BTreeMap<ClusterName, Namespace>,
    knows_agents: bool,
    /// The accounts with findings: the end of the grant alone may resolve them.
    noted: BTreeSet<AccountKey>,
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
        let found = |kind| Some((kind, self.objects.get(&(kind, key.clone()))?.clone()));
        AccessKind::ALL.into_iter().filter_map(found).collect()
    }

    /// Whether an account has an object or a finding.
    fn concerns(&self, key: &AccountKey) -> bool {
        self.noted.contains(key)
            || AccessKind::ALL.iter().any(|kind| self.objects.get(&(*kind, key.clone())).is_some())
    }

    /// The keys with an object of ours.
    fn keys(&self) -> BTreeSet<AccountKey> {
        self.objects.ours().map(|(_, account)| account.clone()).collect()
    }
}

/// A watch: on all accounts, or on the permissions of one.
pub(crate) type WatchName = (AccessKind, Option<AccountName>);

/// The watch that shows an object.
fn watch_of((kind, account): &AccessKey) -> WatchName {
    (*kind, (*kind != AccessKind::Account).then(|| account.account.clone()))
}

impl Store {
    pub(crate) fn new(shared: &Shared, settings: AccessSettings) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        let consumers = &settings.consumers;
        let permissions =
            consumers.accounts().flat_map(|account| consumers.permission_kinds(account)).copied();
        for kind in permissions.chain([AccessKind::Account, AccessKind::ManifestWork]) {
            host.metrics.declare_written(resource(kind));
        }
        let (work, fleet) = (Work::new(&host, CONTROLLER), shared.fleet.clone());
        Arc::new(Self {
            reporter: host.reporter(CONTROLLER),
            host,
            settings,
            work,
            written: Written::default(),
            fleet,
            state: Mutex::default(),
        })
    }

    /// Queues every account of ours that exists or should exist.
    pub(crate) fn queue_everything(&self) {
        let fleet = self.fleet.read();
        // In the head of the loop, the lock would be held while keys are queued.
        let known = self.state.lock().keys();
        for key in known {
            self.queue(&fleet, key);
        }
        let namespaces = self.settings.consumers.iter().map(|consumer| consumer.namespace.clone());
        self.fleet_changed(&fleet, &Touched::Namespaces(namespaces.collect()));
    }

    /// Records that the hub does not serve the kind of a watch. ClusterPermissions need not be installed: nothing that the
    /// watch has shown exists any more. Returns whether no consumer lacks them.
    pub(crate) fn not_served(&self, watch: &WatchName) -> bool {
        let (kind, _) = watch;
        if *kind != AccessKind::ClusterPermission {
            return false;
        }
        self.written.retain(|object| watch_of(object) != *watch);
        let mut state = self.state.lock();
        let was_listed = state.objects.is_listed(watch);
        state.objects.unlist(watch, |object| watch_of(object) == *watch);
        drop(state);
        if was_listed && self.host.is_working() {
            self.queue_everything();
        }
        !self.needs(watch)
    }

    /// Whether the consumers of a watch need its kind: that of accounts always, that of permissions if they declare it.
    pub(crate) fn needs(&self, (kind, account): &WatchName) -> bool {
        account.as_ref().is_none_or(|account| self.settings.consumers.permission_kind(account) == *kind)
    }

    /// Queues what a change of the fleet affects.
    pub(crate) fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        for key in self.settings.concerned(fleet, touched, || self.state.lock().keys()) {
            self.queue_if_needed(fleet, key);
        }
    }

    /// Queues a key, unless it is refused and has neither object nor finding, and no attempt for it is under way.
    fn queue_if_needed(&self, fleet: &Fleet, key: AccountKey) {
        let exists = self.state.lock().concerns(&key) || self.settings.excludes_local_cluster(fleet, &key);
        if exists || self.settings.grant(fleet, &key) != Grant::Refused || self.work.holds(&key) {
            self.queue(fleet, key);
        }
    }

    fn queue(&self, fleet: &Fleet, key: AccountKey) {
        let exists = self.state.lock().objects.get(&(AccessKind::Account, key.clone())).is_some();
        let mut grants = self.settings.consumers.of(&key.account).iter();
        // If several consumers use an account, one of them may have lost its grant.
        let is_refused = grants.any(|it| self.settings.grant_to(fleet, it, &key.cluster) == Grant::Refused);
        let grant = if is_refused && exists { Grant::Refused } else { self.settings.grant(fleet, &key) };
        let priority = Priority::of_profile(grant, exists);
        self.work.add_with(key, priority);
    }

    fn changed(&self, key: AccountKey) {
        if self.host.is_working() {
            self.queue(&self.fleet.read(), key);
        }
    }

    /// Records that the list of a watch is complete.
    pub(crate) fn listed(&self, watch: &WatchName) {
        let mut state = self.state.lock();
        let was_listed = state.objects.is_listed(watch);
        state.objects.end_list(watch.clone());
        drop(state);
        // A repeated list need not queue more: the sink was called for each object that it shows or no longer shows.
        if was_listed || !self.host.is_working() {
            return;
        }
        match &watch.1 {
            Some(account) => {
                let consumers = self.settings.consumers.of(account).iter();
                let namespaces = consumers.map(|consumer| consumer.namespace.clone()).collect();
                self.fleet_changed(&self.fleet.read(), &Touched::Namespaces(namespaces));
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
            let accounts = self.settings.consumers.accounts();
            let keys =
                accounts.map(|account| AccountKey { cluster: cluster.clone(), account: account.clone() });
            let fleet = self.fleet.read();
            keys.for_each(|key| self.queue_if_needed(&fleet, key));
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
        self.state.lock().objects.unlist(watch, |_| false);
    }

    /// Records an object that a watch shows.
    pub(crate) fn show(&self, key: &AccessKey, object: ObservedObject) {
        let (_, account) = key;
        let is_declared = self.settings.consumers.contains(&account.account);
        let mut state = self.state.lock();
        state.objects.show(&self.settings, key, object, is_declared);
        let matters = is_declared || state.objects.is_ours(key);
        drop(state);
        if matters {
            self.changed(account.clone());
        }
    }

    /// Records that a watch shows the end of an object.
    pub(crate) fn ended(&self, key: &AccessKey) {
        let (_, account) = key;
        let mut state = self.state.lock();
        let matters = self.settings.consumers.contains(&account.account) || state.objects.is_ours(key);
        let ended = state.objects.ended(key);
        drop(state);
        if let Some(uid) = ended {
            self.written.ended(key, &uid);
        }
        if matters {
            self.changed(account.clone());
        }
    }

    /// Records that this process has created the object with this uid.
    pub(crate) fn created(&self, key: &AccessKey, uid: &str) {
        self.state.lock().objects.created(key, uid);
    }

    pub(crate) fn known(&self, key: &AccessKey) -> Option<Version> {
        self.state.lock().objects.version(key)
    }

    /// Records that the API server has accepted the delete of the object with this uid.
    pub(crate) fn deleted(&self, key: &AccessKey, uid: &str) {
        self.state.lock().objects.deleted(key, uid);
    }

    /// The uid of the object whose last write, which has left this version, no watch has shown yet.
    pub(crate) fn unseen(&self, key: &AccessKey, left: Option<&Version>) -> Option<String> {
        self.state.lock().objects.unseen(key, left)
    }

    /// Records whether an account has findings.
    pub(crate) fn set_has_findings(&self, key: &AccountKey, has_findings: bool) {
        let mut state = self.state.lock();
        if has_findings {
            state.noted.insert(key.clone());
        } else {
            state.noted.remove(key);
        }
    }

    /// Plans the next write that is not blocked, and returns the observed objects with it; objects that were just read
    /// replace the cached ones. `None` until the list of accounts is complete, and while it is out of date, unless the
    /// grant of an account that is known has ended: an account is deleted before its permissions. The permissions of an
    /// account whose consumer is no longer declared are not watched: they are garbage-collected with the account.
    /// Permissions that cannot be listed delay only their own creation and that of their accounts.
    pub(crate) fn plan(
        &self,
        key: &AccountKey,
        read: &BTreeMap<AccessKind, Option<ObservedObject>>,
        unseen: &BTreeMap<AccessKind, String>,
        blocked: BTreeSet<(AccessKind, &'static str)>,
    ) -> Option<(ObservedAccess, AccessPlan)> {
        let fleet = self.fleet.read();
        let state = self.state.lock();
        let kinds = self.settings.consumers.permission_kinds(&key.account);
        let watched = kinds.iter().copied().chain([AccessKind::Account]);
        let unlisted: BTreeSet<_> =
            watched.filter(|kind| !state.objects.is_listed(&watch_of(&(*kind, key.clone())))).collect();
        let mut objects = state.objects(key);
        let has_ended = || {
            objects.contains_key(&AccessKind::Account) && self.settings.grant(&fleet, key) == Grant::Refused
        };
        if unlisted.contains(&AccessKind::Account) && !has_ended() {
            return None;
        }
        let agent_namespace = state.agent_namespace(&key.cluster);
        for (kind, object) in read {
            objects.remove(kind);
            let object_key = (*kind, key.clone());
            let found =
                object.clone().map(|object| state.objects.as_read(&self.settings, &object_key, object));
            objects.extend(found.map(|found| (*kind, found)));
        }
        let unseen = unseen.clone();
        let observed = ObservedAccess { objects, unseen, unlisted, agent_namespace, blocked };
        let plan = self.settings.plan(&fleet, key, &observed);
        Some((observed, plan))
    }
}
