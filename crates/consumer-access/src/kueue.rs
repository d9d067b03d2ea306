//! Kueue's objects for the consumer that declares MultiKueueConfigs: their state, their watches and their writer.
//!
//! - **Watches** all MultiKueueClusters and MultiKueueConfigs, to see also those of other owners.
//! - **Writes** a MultiKueueCluster for each granted cluster, and the MultiKueueConfigs that list them: one write for each
//!   cluster that joins and one for each list.
//! - **Guarantees** that a hub that does not serve Kueue's API affects nothing else: it is reported, and the objects are
//!   written as soon as they can be listed.

#[cfg(test)]
mod tests;
mod writes;

use std::collections::BTreeSet;
use std::sync::Arc;

use hub_api::names::ClusterName;
use hub_core::consumer_access::{AccessSettings, KUEUE_API, KueueKey, KueuePlan, ObservedObject};
use hub_core::fleet::{Fleet, Touched};
use hub_core::note::{Note, Reason, Subject};
use hub_core::priority::Priority;
use hub_runtime::fleet_cache::FleetCache;
use hub_runtime::host::{Host, Watches};
use hub_runtime::process::Shared;
use hub_runtime::report::Reporter;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use hub_runtime::work::Work;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use parking_lot::Mutex;

pub(crate) use self::writes::KueueWriter;
use crate::cache::{ObjectCache, WatchName, shown};

/// The name of this loop in logs and metrics.
const CONTROLLER: &str = "consumer-access-kueue";

/// The one watch of each kind.
const ALL: WatchName = WatchName(None);

/// The API of a kind.
fn api_resource(key: &KueueKey) -> ApiResource {
    let (kind, plural) = key.kind();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(KUEUE_API.0, KUEUE_API.1, kind), plural)
}

/// The state: its watches fill it, and the writes are planned from it.
pub(crate) struct KueueStore {
    host: Arc<Host>,
    reporter: Reporter,
    settings: AccessSettings,
    work: Arc<Work<KueueKey>>,
    fleet: FleetCache,
    state: Mutex<KueueState>,
}

#[derive(Default)]
struct KueueState {
    clusters: ObjectCache<KueueKey>,
    configs: ObjectCache<KueueKey>,
}

impl KueueState {
    fn cache(&self, key: &KueueKey) -> &ObjectCache<KueueKey> {
        match key {
            KueueKey::Cluster(_) => &self.clusters,
            KueueKey::Config(_) => &self.configs,
        }
    }

    fn cache_mut(&mut self, key: &KueueKey) -> &mut ObjectCache<KueueKey> {
        match key {
            KueueKey::Cluster(_) => &mut self.clusters,
            KueueKey::Config(_) => &mut self.configs,
        }
    }

    fn is_listed(&self) -> bool {
        self.clusters.is_listed(&ALL) && self.configs.is_listed(&ALL)
    }
}

impl KueueStore {
    pub(crate) fn new(shared: &Shared, settings: AccessSettings) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        for key in [KueueKey::Cluster("".into()), KueueKey::Config(String::new())] {
            host.metrics.declare_written(key.kind().1);
        }
        let (work, fleet) = (Work::new(&host, CONTROLLER), shared.fleet.clone());
        Arc::new(Self {
            reporter: host.reporter(CONTROLLER),
            host,
            settings,
            work,
            fleet,
            state: Mutex::default(),
        })
    }

    /// Starts the watches.
    pub(crate) fn watch(self: &Arc<Self>, watches: &Watches) {
        for example in [KueueKey::Cluster("".into()), KueueKey::Config(String::new())] {
            let watch = Watch::<DynamicObject>::dynamic(example.kind().1, api_resource(&example));
            watches.watch(watch.optional(), KueueSink { store: Arc::clone(self), example });
        }
    }

    /// Queues everything, and reports if nothing can be planned: until the first plan of the list.
    pub(crate) fn begin(&self) {
        if !self.state.lock().is_listed() {
            self.report_not_listed();
        }
        self.queue_everything(&self.fleet.read());
    }

    /// Reports that Kueue's objects cannot be listed: until the next plan of the list without a write.
    fn report_not_listed(&self) {
        let message = "cannot be maintained: MultiKueueClusters and MultiKueueConfigs (kueue.x-k8s.io/v1beta2) cannot \
                           be listed; install Kueue 0.15 or later, or see the log of the controller";
        let note = Note::new(Reason::KueueNotListed, message);
        for config in self.settings.multi_kueue_configs() {
            self.reporter.report(&Subject::Kueue(config), None, vec![note.clone()]);
        }
    }

    /// Queues an object. Revocations and the lists go first; a list is a single write.
    fn queue(&self, fleet: &Fleet, key: KueueKey) {
        let priority = match &key {
            KueueKey::Cluster(cluster) => {
                let exists = self.state.lock().clusters.is_ours(&key);
                Priority::of_profile(self.settings.kueue_grant(fleet, cluster), exists)
            }
            KueueKey::Config(_) => Priority::End,
        };
        self.work.add_with(key, priority);
    }

    /// Queues what exists or should exist.
    fn queue_everything(&self, fleet: &Fleet) {
        let mut keys = self.existing();
        keys.extend(fleet.cluster_names().cloned().map(KueueKey::Cluster));
        keys.extend(self.settings.multi_kueue_configs());
        for key in keys {
            self.queue(fleet, key);
        }
    }

    /// Our objects.
    fn existing(&self) -> BTreeSet<KueueKey> {
        let state = self.state.lock();
        state.clusters.ours().chain(state.configs.ours()).cloned().collect()
    }

    /// Queues what a change of the fleet affects.
    pub(crate) fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        for key in self.settings.kueue_concerned(fleet, touched, || self.existing()) {
            self.queue(fleet, key);
        }
    }

    /// A change of an object: of a MultiKueueCluster, it affects also the lists.
    fn changed(&self, key: KueueKey) {
        if !self.host.is_working() {
            return;
        }
        let fleet = self.fleet.read();
        if matches!(key, KueueKey::Cluster(_)) {
            for config in self.settings.multi_kueue_configs() {
                self.queue(&fleet, config);
            }
        }
        self.queue(&fleet, key);
    }

    /// Records that a create is sent.
    fn creating(&self, key: &KueueKey) {
        self.state.lock().cache_mut(key).creating(key);
    }

    /// Records the response to a create, `None` if it failed. Returns false if the object may have ended since.
    fn created(&self, key: &KueueKey, object: Option<ObservedObject>) -> bool {
        self.state.lock().cache_mut(key).created(&self.settings, &ALL, key, object)
    }

    /// Records the response to a patch or a delete.
    fn wrote(&self, key: &KueueKey, object: ObservedObject) {
        self.state.lock().cache_mut(key).wrote(&self.settings, &ALL, key, object);
    }

    /// Records that the object with this uid is gone.
    fn gone(&self, key: &KueueKey, uid: &str) {
        self.state.lock().cache_mut(key).gone(key, uid);
    }

    /// The uid of the object, and the next write; `None` until both lists are complete.
    fn plan(&self, key: &KueueKey) -> Option<(Option<String>, KueuePlan)> {
        let fleet = self.fleet.read();
        let state = self.state.lock();
        if !state.is_listed() {
            return None;
        }
        let observed = |key: &KueueKey| state.cache(key).get(key);
        let uid = observed(key).map(|found| found.object.version.uid.clone());
        Some((uid, self.settings.plan_kueue(&fleet, key, observed)))
    }
}

/// Receives the objects of one kind.
struct KueueSink {
    store: Arc<KueueStore>,
    /// A key of this kind.
    example: KueueKey,
}

impl KueueSink {
    fn key(&self, key: &ObjectKey) -> KueueKey {
        match self.example {
            KueueKey::Cluster(_) => KueueKey::Cluster(ClusterName::new(key.name.clone())),
            KueueKey::Config(_) => KueueKey::Config(key.name.to_string()),
        }
    }
}

impl Sink<DynamicObject> for KueueSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        let key = self.key(key);
        self.store.state.lock().cache_mut(&key).show(&self.store.settings, &ALL, &key, shown(object));
        self.store.changed(key);
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = self.key(key);
        self.store.state.lock().cache_mut(&key).ended(&ALL, &key);
        self.store.changed(key);
    }

    fn listing(&mut self) {
        self.store.state.lock().cache_mut(&self.example).begin_list(&ALL);
    }

    fn listed(&mut self, version: &str) {
        self.store.state.lock().cache_mut(&self.example).end_list(&ALL, version, |_| true);
        if self.store.host.is_working() {
            self.store.queue_everything(&self.store.fleet.read());
        }
    }
}
