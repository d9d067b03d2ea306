//! The objects by which applications find their clusters: their state, their watches and their writer.
//!
//! - **Watches** for Kueue all MultiKueueClusters and MultiKueueConfigs, to see also those of other owners; for Argo CD
//!   the cluster Secrets and the ClusterProfiles, in the namespace of each consumer that asks for them. Of a Secret of
//!   another owner, it keeps the name of the cluster alone.
//! - **Writes** a MultiKueueCluster for each granted cluster, and the MultiKueueConfigs that list them; or a cluster
//!   Secret for each granted cluster: one write for each cluster that joins and one for each list.
//! - **Guarantees** that a hub that does not serve Kueue's API affects nothing else: it is reported, and the objects
//!   are written as soon as they can be listed; and that no Secret contains a token.

mod published;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use hub_api::names::{ClusterName, ManagerName, Namespace, ProfileKey};
use hub_core::consumer_access::{
    AccessSettings, CLUSTER_SECRET, IntegrationKey, IntegrationPlan, KUEUE_API, ObservedObject,
    PublishedCluster, cluster_in_secret, cluster_of_secret, cluster_secret_name,
};
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::Grant;
use hub_core::nested;
use hub_core::priority::Priority;
use hub_process::fleet_cache::FleetCache;
use hub_process::process::Shared;
use hub_runtime::host::{HeldWatch, Host, Watches};
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::Read;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use parking_lot::{Mutex, RwLockReadGuard};
use serde_json::json;

use self::published::{PROFILES, PublishedSink};
use crate::cache::{ObjectCache, as_read, shown};
use crate::store::Settings;

/// An application that finds its clusters by objects of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integration {
    MultiKueue,
    ArgoCd,
}

impl Integration {
    pub(crate) const ALL: [Self; 2] = [Self::MultiKueue, Self::ArgoCd];

    /// The name of its loop in logs and metrics.
    const fn controller(self) -> &'static str {
        match self {
            Self::MultiKueue => "consumer-access-kueue",
            Self::ArgoCd => "consumer-access-argocd",
        }
    }

    fn has(self, key: &IntegrationKey) -> bool {
        matches!(key, IntegrationKey::ClusterSecret(_)) == (self == Self::ArgoCd)
    }

    /// A key of each of its kinds.
    fn examples(self) -> Vec<IntegrationKey> {
        match self {
            Self::MultiKueue => {
                vec![
                    IntegrationKey::MultiKueueCluster("".into()),
                    IntegrationKey::MultiKueueConfig(String::new()),
                ]
            }
            Self::ArgoCd => {
                let key = ProfileKey { namespace: "".into(), cluster: "".into() };
                vec![IntegrationKey::ClusterSecret(key)]
            }
        }
    }
}

/// The API of a kind.
fn api_resource(key: &IntegrationKey) -> ApiResource {
    let ((kind, plural), (group, version)) = match key {
        IntegrationKey::ClusterSecret(_) => (key.kind(), ("", "v1")),
        IntegrationKey::MultiKueueCluster(_) | IntegrationKey::MultiKueueConfig(_) => (key.kind(), KUEUE_API),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Reads an object: the data of a Secret takes the place of a spec.
fn read(key: &IntegrationKey, object: &DynamicObject) -> ObservedObject {
    match key {
        IntegrationKey::ClusterSecret(_) => {
            ObservedObject::read(&object.metadata, Some(&json!({ "spec": object.data["data"] })))
        }
        IntegrationKey::MultiKueueCluster(_) | IntegrationKey::MultiKueueConfig(_) => {
            ObservedObject::read(&object.metadata, Some(&object.data))
        }
    }
}

/// The state: its watches fill it, and the writes are planned from it.
pub(crate) struct IntegrationStore {
    integration: Integration,
    host: Arc<Host>,
    reporter: Reporter,
    settings: Settings,
    manager: ManagerName,
    work: Arc<Work<IntegrationKey>>,
    fleet: FleetCache,
    state: Mutex<IntegrationState>,
    /// The watches in each namespace with cluster Secrets, by the access provider that these use.
    held: Mutex<BTreeMap<Namespace, (String, [HeldWatch; 2])>>,
    watches: OnceLock<Watches>,
}

#[derive(Default)]
struct IntegrationState {
    objects: ObjectCache<IntegrationKey, IntegrationWatch>,
    /// What the profiles in the namespaces of Argo CD's consumers publish.
    published: BTreeMap<ProfileKey, PublishedCluster>,
    /// The cluster Secrets that have not the name of ours for their cluster: by cluster, and the cluster of each.
    rivals: BTreeMap<ProfileKey, BTreeSet<String>>,
    rival_to: BTreeMap<(Namespace, String), ClusterName>,
}

/// A watch on a resource, in a namespace or everywhere.
type IntegrationWatch = (&'static str, Option<Namespace>);

/// The watch that shows an object.
fn watch_of(key: &IntegrationKey) -> IntegrationWatch {
    (key.kind().1, key.namespace().cloned())
}

/// The watch on the profiles in a namespace.
fn watch_of_profiles(namespace: &Namespace) -> IntegrationWatch {
    (PROFILES, Some(namespace.clone()))
}

impl IntegrationStore {
    pub(crate) fn new(integration: Integration, shared: &Shared, settings: &Settings) -> Arc<Self> {
        let host = Arc::clone(&shared.host);
        for key in integration.examples() {
            host.metrics.declare_written(key.kind().1);
        }
        Arc::new(Self {
            integration,
            reporter: host.reporter(integration.controller()),
            settings: Arc::clone(settings),
            manager: shared.manager.clone(),
            work: Work::new(&host, integration.controller()),
            fleet: shared.fleet.clone(),
            host,
            state: Mutex::default(),
            held: Mutex::default(),
            watches: OnceLock::new(),
        })
    }

    fn settings(&self) -> RwLockReadGuard<'_, AccessSettings> {
        self.settings.read_recursive()
    }

    /// Starts the watches: for Kueue at once, since what exists may have to end; for Argo CD as objects ask for them.
    pub(crate) fn watch(self: &Arc<Self>, watches: &Watches) {
        let _ = self.watches.set(watches.clone());
        if self.integration == Integration::MultiKueue {
            for example in self.integration.examples() {
                let watch = Watch::dynamic(example.kind().1, &api_resource(&example), None);
                let sink = ObjectSink { store: Arc::clone(self), example };
                watches.watch(watch.optional().expected(), sink);
            }
        }
    }

    /// Watches the cluster Secrets and the profiles in a namespace whose consumer gets such Secrets. The watches stay:
    /// what exists may have to end.
    fn watch_secrets(self: &Arc<Self>, namespace: &Namespace) {
        let settings = self.settings();
        let (Some(consumer), Some(watches)) = (settings.consumers.argo_cd(namespace), self.watches.get())
        else {
            return;
        };
        let provider = settings.provider_of(consumer).to_owned();
        let mut held = self.held.lock();
        if held.get(namespace).is_some_and(|(watched, _)| *watched == provider) {
            return;
        }
        held.remove(namespace);
        let key = ProfileKey { namespace: namespace.clone(), cluster: "".into() };
        let sink = ObjectSink { store: Arc::clone(self), example: IntegrationKey::ClusterSecret(key) };
        let secrets = Watch::dynamic("secrets", &api_resource(&sink.example), Some(namespace.as_str()));
        let secrets = watches.watch_while_held(
            secrets.labelled(format!("{}={}", CLUSTER_SECRET.0, CLUSTER_SECRET.1)).late(),
            sink,
        );
        let profiles = PublishedSink::watch(self, watches, namespace, &provider);
        held.insert(namespace.clone(), (provider, [secrets, profiles]));
    }

    /// Queues what a change of the objects in these namespaces affects.
    pub(crate) fn objects_changed(self: &Arc<Self>, namespaces: &BTreeSet<Namespace>) {
        if self.integration == Integration::ArgoCd {
            for namespace in namespaces {
                self.watch_secrets(namespace);
            }
        }
        if !self.host.is_working() {
            return;
        }
        let fleet = self.fleet.read();
        if self.integration == Integration::MultiKueue {
            // The namespace of Kueue itself may have changed, and lists may have lost their object.
            let existing: Vec<_> = self.state.lock().objects.ours().cloned().collect();
            for key in existing {
                self.queue(&fleet, key);
            }
            let kueue =
                self.settings().consumers.multi_kueue().map(|consumer| consumer.namespace().clone()).next();
            self.fleet_changed(&fleet, &Touched::Namespaces(kueue.into_iter().collect()));
        } else {
            let ours: Vec<_> = self.state.lock().objects.ours().cloned().collect();
            let is_concerned =
                |key: &IntegrationKey| key.namespace().is_some_and(|it| namespaces.contains(it));
            ours.into_iter().filter(is_concerned).for_each(|key| self.queue(&fleet, key));
            self.fleet_changed(&fleet, &Touched::Namespaces(namespaces.clone()));
        }
    }

    pub(crate) fn begin(&self) {
        self.queue_everything(&self.fleet.read());
    }

    /// Whether everything that a plan depends on is listed: all objects of Kueue, or the Secrets and the profiles in a
    /// namespace.
    fn is_listed(&self, state: &IntegrationState, namespace: Option<&Namespace>) -> bool {
        let profiles = namespace.map(watch_of_profiles);
        let examples = self.integration.examples().into_iter().map(|key| (key.kind().1, namespace.cloned()));
        examples.chain(profiles).all(|watch| state.objects.is_listed(&watch))
    }

    /// Queues an object. Revocations and MultiKueueConfigs go first; a MultiKueueConfig is a single write.
    fn queue(&self, fleet: &Fleet, key: IntegrationKey) {
        let settings = self.settings();
        let priority_of = |grant: Grant| {
            let exists = self.state.lock().objects.is_ours(&key);
            Priority::of_profile(grant, exists)
        };
        let priority = match &key {
            IntegrationKey::MultiKueueCluster(cluster) => priority_of(settings.kueue_grant(fleet, cluster)),
            IntegrationKey::ClusterSecret(key) => priority_of(settings.argo_cd_grant(fleet, key)),
            IntegrationKey::MultiKueueConfig(_) => Priority::End,
        };
        self.work.add_with(key, priority);
    }

    /// Queues what exists or should exist.
    pub(crate) fn queue_everything(&self, fleet: &Fleet) {
        let existing: Vec<_> = self.state.lock().objects.ours().cloned().collect();
        for key in existing {
            self.queue(fleet, key);
        }
        let namespaces = self.settings().consumers.names().map(|name| name.namespace.clone()).collect();
        self.fleet_changed(fleet, &Touched::Namespaces(namespaces));
    }

    /// Records that the list of a watch is complete.
    fn listed(&self, watch: IntegrationWatch) {
        self.state.lock().objects.end_list(watch);
        if self.host.is_working() {
            self.queue_everything(&self.fleet.read());
        }
    }

    /// Records that the objects of a watch cannot be read: what is known of them is out of date.
    fn unread(&self, watch: &IntegrationWatch) {
        self.state.lock().objects.unlist(watch, |_| false);
    }

    /// Queues what a change of the fleet affects.
    pub(crate) fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        let settings = self.settings();
        let existing = |cluster: Option<&ClusterName>| match cluster {
            None => self.state.lock().objects.ours().cloned().collect(),
            Some(cluster) => self.of_cluster(&settings, cluster),
        };
        let concerned = settings.integrations_concerned(fleet, touched, existing);
        for key in concerned.into_iter().filter(|key| self.integration.has(key)) {
            self.queue(fleet, key);
        }
    }

    /// The objects of ours of a cluster.
    fn of_cluster(&self, settings: &AccessSettings, cluster: &ClusterName) -> Vec<IntegrationKey> {
        let secret = |namespace: &Namespace| {
            IntegrationKey::ClusterSecret(ProfileKey {
                namespace: namespace.clone(),
                cluster: cluster.clone(),
            })
        };
        let mut keys: Vec<_> = settings.consumers.argo_cd_namespaces().map(secret).collect();
        keys.push(IntegrationKey::MultiKueueCluster(cluster.clone()));
        let state = self.state.lock();
        keys.retain(|key| state.objects.is_ours(key));
        keys
    }

    /// Queues an object that has changed; for a MultiKueueCluster also the MultiKueueConfigs, which list it.
    fn changed(&self, key: IntegrationKey) {
        if !self.host.is_working() {
            return;
        }
        let fleet = self.fleet.read();
        if matches!(key, IntegrationKey::MultiKueueCluster(_)) {
            let configs: Vec<_> = self.settings().multi_kueue_configs().collect();
            for config in configs {
                self.queue(&fleet, config);
            }
        }
        self.queue(&fleet, key);
    }

    /// Whether an object of ours exists whose cluster is not granted.
    fn is_ended(&self, fleet: &Fleet, state: &IntegrationState, key: &IntegrationKey) -> bool {
        let grant = match key {
            IntegrationKey::MultiKueueCluster(cluster) => self.settings().kueue_grant(fleet, cluster),
            IntegrationKey::ClusterSecret(key) => self.settings().argo_cd_grant(fleet, key),
            IntegrationKey::MultiKueueConfig(_) => return false,
        };
        grant == Grant::Refused && state.objects.is_ours(key)
    }

    /// The next write; `None` until what it depends on is listed, and while that is out of date, unless the grant has
    /// ended.
    fn plan_next(&self, key: &IntegrationKey, read: Option<&Read>) -> Option<IntegrationPlan> {
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let state = self.state.lock();
        if !self.is_listed(&state, key.namespace()) && !self.is_ended(&fleet, &state, key) {
            return None;
        }
        let found = read.and_then(as_read);
        let found = found.map(|object| state.objects.as_read(&settings, key, self::read(key, &object)));
        let observed = |of: &IntegrationKey| match read {
            Some(_) if of == key => found.as_ref(),
            _ => state.objects.get(of),
        };
        Some(match key {
            IntegrationKey::MultiKueueCluster(_) | IntegrationKey::MultiKueueConfig(_) => {
                settings.plan_kueue(&fleet, key, observed)
            }
            IntegrationKey::ClusterSecret(profile) => {
                let published = state.published.get(profile);
                let rival = state.rivals.get(profile).and_then(BTreeSet::first).map(String::as_str);
                settings.plan_cluster_secret(&fleet, profile, observed(key), published, rival)
            }
        })
    }
}

impl IntegrationStore {
    /// Records for which cluster a cluster Secret is, unless it has the name of ours for it.
    fn set_rival(&self, namespace: &Namespace, secret: &str, cluster: Option<ClusterName>) {
        let cluster = cluster.filter(|cluster| cluster_secret_name(cluster) != secret);
        let mut state = self.state.lock();
        let id = (namespace.clone(), secret.to_owned());
        let before = match cluster.clone() {
            Some(cluster) => state.rival_to.insert(id, cluster),
            None => state.rival_to.remove(&id),
        };
        if before == cluster {
            return;
        }
        let key = |cluster| ProfileKey { namespace: namespace.clone(), cluster };
        let (before, after) = (before.map(key), cluster.map(key));
        if let Some(before) = &before {
            nested::remove_value(&mut state.rivals, before, &secret.to_owned());
        }
        if let Some(after) = &after {
            state.rivals.entry(after.clone()).or_default().insert(secret.to_owned());
        }
        drop(state);
        for key in before.into_iter().chain(after) {
            self.changed(IntegrationKey::ClusterSecret(key));
        }
    }
}

/// Receives the objects of one kind.
struct ObjectSink {
    store: Arc<IntegrationStore>,
    /// A key of the same kind, and for a Secret of the same namespace.
    example: IntegrationKey,
}

impl ObjectSink {
    /// The key of an object; `None` for a Secret whose name we do not use.
    fn key(&self, key: &ObjectKey) -> Option<IntegrationKey> {
        Some(match &self.example {
            IntegrationKey::MultiKueueCluster(_) => {
                IntegrationKey::MultiKueueCluster(ClusterName::new(key.name.clone()))
            }
            IntegrationKey::MultiKueueConfig(_) => IntegrationKey::MultiKueueConfig(key.name.to_string()),
            IntegrationKey::ClusterSecret(example) => IntegrationKey::ClusterSecret(ProfileKey {
                namespace: example.namespace.clone(),
                cluster: cluster_of_secret(&key.name)?,
            }),
        })
    }
}

impl Sink<DynamicObject> for ObjectSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        if let (IntegrationKey::ClusterSecret(of), Ok(secret)) = (&self.example, &object) {
            self.store.set_rival(&of.namespace, &key.name, cluster_in_secret(&secret.data["data"]));
        }
        let Some(key) = self.key(key) else { return };
        let object = object.map_or_else(|unreadable| shown(Err(unreadable)), |object| read(&key, &object));
        let settings = self.store.settings();
        self.store.state.lock().objects.show(&settings, &key, object, false);
        drop(settings);
        self.store.changed(key);
    }

    fn delete(&mut self, key: &ObjectKey) {
        if let IntegrationKey::ClusterSecret(of) = &self.example {
            self.store.set_rival(&of.namespace, &key.name, None);
        }
        let Some(key) = self.key(key) else { return };
        if let Some(uid) = self.store.state.lock().objects.ended(&key) {
            self.store.work.written.ended(&key, &uid);
        }
        self.store.changed(key);
    }

    fn listed(&mut self) {
        self.store.listed(watch_of(&self.example));
    }

    fn unread(&mut self) {
        self.store.unread(&watch_of(&self.example));
    }

    fn not_served(&mut self) -> bool {
        // Kueue need not be installed unless an object asks for it.
        self.store.settings().consumers.multi_kueue().next().is_none()
    }
}
