//! The ClusterAccesses, and the decisions of the Placements that they refer to.
//!
//! - A Placement's decisions are watched by its label in its namespace, while an object refers to it: those of Open
//!   Cluster Management, and those of SIG Multicluster in the versions that the hub serves.
//! - What cannot be read is unknown: what objects have given stays, and nothing is created.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use hub_api::cluster_access::{CLUSTER_ACCESSES, ClusterAccess};
use hub_api::names::{ClusterName, Namespace};
use hub_core::access::Known;
use hub_core::consumer_access::{AccessName, Changed, DecisionKind, PlacementName};
use hub_core::fleet::Touched;
use hub_process::fleet_cache::FleetCache;
use hub_runtime::host::{HeldWatch, Host, Watches};
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::Value;

use crate::integrations::IntegrationStore;
use crate::store::{Settings, Store};

/// The name of the watch on a kind of decisions, the API of the kind, and the label with the name of the Placement.
const fn watch_of(kind: DecisionKind) -> (&'static str, (&'static str, &'static str), &'static str) {
    const SIG: (&str, &str) = ("multicluster.x-k8s.io", "multicluster.x-k8s.io/placement-key");
    match kind {
        DecisionKind::Ocm => (
            "placementdecisions",
            ("cluster.open-cluster-management.io", "v1beta1"),
            "cluster.open-cluster-management.io/placement",
        ),
        DecisionKind::SigV1alpha1 => ("placementdecisions (SIG v1alpha1)", (SIG.0, "v1alpha1"), SIG.1),
        DecisionKind::SigV1alpha2 => ("placementdecisions (SIG v1alpha2)", (SIG.0, "v1alpha2"), SIG.1),
    }
}

/// Receives what the watches show, and passes on what it changes.
pub(crate) struct AccessObjects {
    pub(crate) host: Arc<Host>,
    pub(crate) settings: Settings,
    pub(crate) fleet: FleetCache,
    pub(crate) store: Arc<Store>,
    pub(crate) integrations: Vec<Arc<IntegrationStore>>,
    pub(crate) watches: OnceLock<Watches>,
    pub(crate) placements: Mutex<BTreeMap<PlacementName, [HeldWatch; DecisionKind::ALL.len()]>>,
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
        for placement in used {
            held.entry(placement).or_insert_with_key(|placement| {
                DecisionKind::ALL.map(|kind| self.watch_decisions(watches, kind, placement))
            });
        }
    }

    fn watch_decisions(
        self: &Arc<Self>,
        watches: &Watches,
        kind: DecisionKind,
        placement: &PlacementName,
    ) -> HeldWatch {
        let (resource, (group, version), label) = watch_of(kind);
        let gvk = GroupVersionKind::gvk(group, version, "PlacementDecision");
        let api = ApiResource::from_gvk_with_plural(&gvk, "placementdecisions");
        let (namespace, name) = placement;
        let watch = Watch::dynamic(resource, &api, Some(namespace.as_str()));
        let sink = DecisionSink { objects: Arc::clone(self), kind, placement: placement.clone() };
        watches.watch_while_held(watch.labelled(format!("{label}={name}")).late(), sink)
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
    kind: DecisionKind,
    placement: PlacementName,
}

impl DecisionSink {
    fn set(&self, key: &ObjectKey, clusters: BTreeSet<ClusterName>) {
        let mut settings = self.objects.settings.write();
        let changed = settings.consumers.set_decision(&self.placement, (self.kind, &key.name), clusters);
        drop(settings);
        if !changed.is_empty() {
            self.objects.decided(&self.placement, Some(changed));
        }
    }

    fn set_listed(&self, listed: Known<()>) {
        let mut settings = self.objects.settings.write();
        let is_new = settings.consumers.set_decisions(&self.placement, self.kind, listed);
        drop(settings);
        if is_new {
            self.objects.decided(&self.placement, None);
        }
    }
}

/// The name of the cluster of a decision. That of SIG Multicluster is about a ClusterProfile, which has the name of its
/// cluster.
fn decided_cluster<'a>(kind: DecisionKind, namespace: &str, decision: &'a Value) -> Option<&'a str> {
    let name = match kind {
        DecisionKind::Ocm => &decision["clusterName"],
        DecisionKind::SigV1alpha1 | DecisionKind::SigV1alpha2 => {
            let profile = &decision["clusterProfileRef"];
            let of = profile["namespace"].as_str().unwrap_or_default();
            if of.is_empty() || of == namespace { &profile["name"] } else { &Value::Null }
        }
    };
    name.as_str().filter(|name| !name.is_empty())
}

impl Sink<DynamicObject> for DecisionSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        // The last readable decisions stay in use.
        let Ok(object) = object else { return };
        let decisions = match self.kind {
            DecisionKind::Ocm => &object.data["status"]["decisions"],
            DecisionKind::SigV1alpha1 | DecisionKind::SigV1alpha2 => &object.data["decisions"],
        };
        let decisions = decisions.as_array().into_iter().flatten();
        let names = decisions.filter_map(|decision| decided_cluster(self.kind, &key.namespace, decision));
        self.set(key, names.map(ClusterName::from).collect());
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.set(key, BTreeSet::new());
    }

    fn listed(&mut self) {
        self.set_listed(Known::Present(()));
    }

    fn unread(&mut self) {
        self.set_listed(Known::Unknown);
    }

    fn refused(&mut self) {
        self.set_listed(Known::Unknown);
    }

    fn not_served(&mut self) -> bool {
        self.set_listed(Known::Absent);
        self.kind != DecisionKind::Ocm
    }
}
