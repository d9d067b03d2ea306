//! The ClusterAccesses, and the decisions of the Placements that they refer to.
//!
//! - A Placement's decisions are watched by its label in its namespace, while an object refers to it.
//! - What cannot be read is unknown: what objects have given stays, and nothing is created.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use hub_api::cluster_access::{CLUSTER_ACCESSES, ClusterAccess};
use hub_api::names::{ClusterName, Namespace};
use hub_core::consumer_access::{AccessName, Changed, PlacementName};
use hub_core::fleet::Touched;
use hub_process::fleet_cache::FleetCache;
use hub_runtime::host::{HeldWatch, Host, Watches};
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use parking_lot::Mutex;

use crate::integrations::IntegrationStore;
use crate::store::{Settings, Store};

const DECISIONS: &str = "placementdecisions";
/// The label of a PlacementDecision with the name of its Placement.
const PLACEMENT: &str = "cluster.open-cluster-management.io/placement";

/// Receives what the watches show, and passes on what it changes.
pub(crate) struct AccessObjects {
    pub(crate) host: Arc<Host>,
    pub(crate) settings: Settings,
    pub(crate) fleet: FleetCache,
    pub(crate) store: Arc<Store>,
    pub(crate) integrations: Vec<Arc<IntegrationStore>>,
    pub(crate) watches: OnceLock<Watches>,
    pub(crate) placements: Mutex<BTreeMap<PlacementName, HeldWatch>>,
}

impl AccessObjects {
    /// Starts the watch on objects. Those on what they refer to follow.
    pub(crate) fn watch(self: &Arc<Self>, watches: &Watches) {
        let _ = self.watches.set(watches.clone());
        watches.watch(Watch::<ClusterAccess>::all(CLUSTER_ACCESSES), ObjectSink(Arc::clone(self)));
    }

    fn changed(self: &Arc<Self>, changed: &Changed) {
        if changed.is_empty() {
            return;
        }
        self.watch_placements();
        self.store.objects_changed(changed);
        let namespaces = changed.keys().map(|name| name.namespace.clone()).collect();
        for integration in &self.integrations {
            integration.objects_changed(&namespaces);
        }
    }

    /// Watches the decisions of the Placements that objects refer to.
    fn watch_placements(self: &Arc<Self>) {
        let Some(watches) = self.watches.get() else { return };
        let used = self.settings.read_recursive().consumers.placements();
        let mut held = self.placements.lock();
        if held.len() == used.len() && used.iter().all(|placement| held.contains_key(placement)) {
            return;
        }
        held.retain(|placement, _| used.contains(placement));
        self.settings.write().consumers.forget_decisions(&used);
        let kind =
            GroupVersionKind::gvk("cluster.open-cluster-management.io", "v1beta1", "PlacementDecision");
        let kind = ApiResource::from_gvk_with_plural(&kind, DECISIONS);
        for placement in used {
            held.entry(placement).or_insert_with_key(|(namespace, name)| {
                let watch = Watch::dynamic(DECISIONS, &kind, Some(namespace.as_str()));
                let placement = (namespace.clone(), name.clone());
                let sink = DecisionSink { objects: Arc::clone(self), placement };
                watches.watch_while_held(watch.labelled(format!("{PLACEMENT}={name}")).late(), sink)
            });
        }
    }

    /// Passes on that decisions have changed: for these clusters, or for all that are granted to the namespace.
    fn decided(&self, (namespace, _): &PlacementName, clusters: Option<BTreeSet<ClusterName>>) {
        if !self.host.is_working() {
            return;
        }
        let touched: Vec<_> = match clusters {
            Some(clusters) => clusters.into_iter().map(Touched::Cluster).collect(),
            None => vec![Touched::Namespaces([namespace.clone()].into())],
        };
        let fleet = self.fleet.read();
        for touched in touched {
            self.store.fleet_changed(&fleet, &touched);
            for integration in &self.integrations {
                integration.fleet_changed(&fleet, &touched);
            }
        }
        // A decision for a cluster that is not granted is counted.
        self.store
            .statuses
            .fleet_changed(&self.settings.read_recursive(), &Touched::Namespaces([namespace.clone()].into()));
    }

    fn set_read(&self, is_read: bool) {
        let is_changed = self.settings.write().consumers.set_read(is_read);
        if is_changed && is_read && self.host.is_working() {
            self.store.queue_everything();
            for integration in &self.integrations {
                integration.queue_everything(&self.fleet.read());
            }
        }
    }
}

fn name_of(key: &ObjectKey) -> AccessName {
    AccessName { namespace: Namespace::new(key.namespace.clone()), name: key.name.to_string() }
}

/// Receives the objects.
struct ObjectSink(Arc<AccessObjects>);

impl Sink<ClusterAccess> for ObjectSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<ClusterAccess, Unreadable>) {
        let name = name_of(key);
        let changed = self.0.settings.write().consumers.apply(&name, object);
        self.0.changed(&changed);
        self.0.store.statuses.mark(&name);
    }

    fn delete(&mut self, key: &ObjectKey) {
        let name = name_of(key);
        let changed = self.0.settings.write().consumers.remove(&name);
        self.0.changed(&changed);
        self.0.store.statuses.forget(&name);
    }

    fn listed(&mut self) {
        self.0.set_read(true);
    }

    fn unread(&mut self) {
        self.0.set_read(false);
    }
}

/// Receives the decisions of a Placement.
struct DecisionSink {
    objects: Arc<AccessObjects>,
    placement: PlacementName,
}

impl DecisionSink {
    fn set(&self, key: &ObjectKey, clusters: BTreeSet<ClusterName>) {
        let mut settings = self.objects.settings.write();
        let changed = settings.consumers.set_decision(&self.placement, &key.name, clusters);
        drop(settings);
        if !changed.is_empty() {
            self.objects.decided(&self.placement, Some(changed));
        }
    }

    fn set_read(&self, is_read: bool) {
        self.objects.settings.write().consumers.set_decisions_read(&self.placement, is_read);
        self.objects.decided(&self.placement, None);
    }
}

impl Sink<DynamicObject> for DecisionSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        // The last readable decisions stay in use.
        let Ok(object) = object else { return };
        let decisions = object.data["status"]["decisions"].as_array().into_iter().flatten();
        let names = decisions.filter_map(|decision| decision["clusterName"].as_str());
        self.set(key, names.filter(|name| !name.is_empty()).map(ClusterName::from).collect());
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.set(key, BTreeSet::new());
    }

    fn listed(&mut self) {
        self.set_read(true);
    }

    fn unread(&mut self) {
        self.set_read(false);
    }

    fn refused(&mut self) {
        self.set_read(false);
    }

    fn not_served(&mut self) -> bool {
        self.set_read(false);
        false
    }
}
