//! The hub's clusters, sets and bindings, watched once for all controllers of the process.
//!
//! Watches ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding and the metadata of the namespace kube-system,
//! if a controller needs them. Writes nothing. Guarantees that every controller is called after each change that may
//! affect a decision, once the index contains it.

use std::sync::{Arc, OnceLock, Weak};

use hub_api::managed_cluster::ManagedCluster;
use hub_api::managed_cluster_set::ManagedClusterSet;
use hub_api::managed_cluster_set_binding::ManagedClusterSetBinding;
use hub_api::names::{ClusterName, ClusterSetName, Namespace};
use hub_core::finding::{Finding, Subject};
use hub_core::fleet::{
    BoundSource, Fleet, ObservedBinding, ObservedCluster, ObservedClusterSet, Part, Touched,
};
use hub_core::project;
use hub_core::version::Uid;
use k8s_openapi::api::core::v1::Namespace as NamespaceObject;
use kube::core::PartialObjectMeta;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::controller::{Controller, FleetKind};
use hub_runtime::host::{Host, Watches};
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};

/// The name of these watches in logs.
const NAME: &str = "fleet";

/// The watched index. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct FleetCache(Arc<Inner>);

struct Inner {
    fleet: RwLock<Fleet>,
    controllers: OnceLock<Vec<Weak<dyn Controller>>>,
    host: Arc<Host>,
}

impl FleetCache {
    /// An empty index; [`Self::watch`] fills it.
    pub(crate) fn new(bound_source: BoundSource, host: &Arc<Host>) -> Self {
        let fleet = RwLock::new(Fleet::new(bound_source));
        Self(Arc::new(Inner { fleet, controllers: OnceLock::new(), host: Arc::clone(host) }))
    }

    /// The current index. Hold the guard for one decision, not across an await.
    pub fn read(&self) -> RwLockReadGuard<'_, Fleet> {
        self.0.fleet.read()
    }

    /// Starts the watches that these controllers need. A second call changes nothing.
    pub(crate) fn watch(&self, controllers: &[Arc<dyn Controller>]) {
        let needs = |kind| controllers.iter().any(|controller| controller.needs().contains(&kind));
        if self.0.controllers.set(controllers.iter().map(Arc::downgrade).collect()).is_err() {
            return;
        }
        let watches = Watches::new(&self.0.host, NAME);
        if needs(FleetKind::Grants) {
            watches.watch(Watch::all("managedclustersets"), Sets(self.clone()));
            watches.watch(Watch::all("managedclustersetbindings"), Bindings(self.clone()));
        }
        if needs(FleetKind::Clusters) {
            watches.watch(Watch::all("managedclusters"), Clusters(self.clone()));
        }
        if needs(FleetKind::HubId) {
            watches.watch(Watch::metadata("namespaces").named("kube-system"), HubId(self.clone()));
        }
    }

    fn controllers(&self) -> impl Iterator<Item = Arc<dyn Controller>> {
        self.0.controllers.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    /// Returns whether the controllers were called.
    fn change(&self, change: impl FnOnce(&mut Fleet) -> Touched) -> bool {
        let touched = {
            let mut fleet = self.0.fleet.write();
            change(&mut fleet)
        };
        // Until the process works, there is no need to call the controllers: `begin` queues everything.
        if touched == Touched::Nothing || !self.0.host.is_working() {
            return false;
        }
        let fleet = self.read();
        for controller in self.controllers() {
            controller.fleet_changed(&fleet, &touched);
        }
        true
    }

    /// Records whether a kind can be read.
    fn set_read(&self, part: Part, is_read: bool) {
        if self.change(|fleet| fleet.set_read(part, is_read)) && is_read {
            for controller in self.controllers() {
                controller.fleet_read();
            }
        }
    }

    fn report(&self, subject: &Subject, uid: Option<&Uid>, findings: Vec<Finding>) {
        self.0.host.reporter(NAME).report(subject, uid, findings);
    }

    fn forget(&self, subject: &Subject) {
        self.0.host.reporter(NAME).forget(subject);
    }
}

struct Clusters(FleetCache);

impl Sink<ManagedCluster> for Clusters {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedCluster, Unreadable>) {
        let name = ClusterName::new(key.name.clone());
        let cluster = ObservedCluster::read(object);
        let subject = Subject::Cluster(name.clone());
        let mut findings = project::cluster_findings(&name, &cluster);
        findings.extend(
            self.0.controllers().flat_map(|controller| controller.cluster_findings(&cluster)),
        );
        self.0.report(&subject, cluster.uid.as_ref(), findings);
        self.0.change(|fleet| fleet.apply_cluster(name, cluster));
    }

    fn delete(&mut self, key: &ObjectKey) {
        let name = ClusterName::new(key.name.clone());
        self.0.forget(&Subject::Cluster(name.clone()));
        self.0.change(|fleet| fleet.delete_cluster(&name));
    }

    fn set_read(&mut self, is_read: bool) {
        self.0.set_read(Part::Clusters, is_read);
    }
}

struct HubId(FleetCache);

impl Sink<PartialObjectMeta<NamespaceObject>> for HubId {
    fn apply(
        &mut self,
        _: &ObjectKey,
        object: Result<PartialObjectMeta<NamespaceObject>, Unreadable>,
    ) {
        let id =
            object.map_or_else(|unreadable| unreadable.metadata.uid, |object| object.metadata.uid);
        self.0.change(|fleet| fleet.set_hub_id(id));
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.0.change(|fleet| fleet.set_hub_id(None));
    }
}

struct Sets(FleetCache);

impl Sink<ManagedClusterSet> for Sets {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedClusterSet, Unreadable>) {
        let name = ClusterSetName::new(key.name.clone());
        let set = ObservedClusterSet::read(object);
        let subject = Subject::ClusterSet(name.clone());
        self.0.report(&subject, set.uid.as_ref(), set.findings());
        self.0.change(|fleet| fleet.apply_set(name, set));
    }

    fn delete(&mut self, key: &ObjectKey) {
        let name = ClusterSetName::new(key.name.clone());
        self.0.forget(&Subject::ClusterSet(name.clone()));
        self.0.change(|fleet| fleet.delete_set(&name));
    }

    fn set_read(&mut self, is_read: bool) {
        self.0.set_read(Part::Sets, is_read);
    }
}

struct Bindings(FleetCache);

impl Sink<ManagedClusterSetBinding> for Bindings {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedClusterSetBinding, Unreadable>) {
        let (namespace, name) = binding_names(key);
        let binding = ObservedBinding::read(object);
        let subject = Subject::Binding(namespace.clone(), name.clone());
        self.0.report(&subject, binding.uid.as_ref(), binding.findings(&name));
        self.0.change(|fleet| fleet.apply_binding(namespace, name, binding));
    }

    fn delete(&mut self, key: &ObjectKey) {
        let (namespace, name) = binding_names(key);
        self.0.forget(&Subject::Binding(namespace.clone(), name.clone()));
        self.0.change(|fleet| fleet.delete_binding(&namespace, &name));
    }

    fn set_read(&mut self, is_read: bool) {
        self.0.set_read(Part::Bindings, is_read);
    }
}

fn binding_names(key: &ObjectKey) -> (Namespace, ClusterSetName) {
    (Namespace::new(key.namespace.clone()), ClusterSetName::new(key.name.clone()))
}
