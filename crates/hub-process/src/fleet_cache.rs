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
use hub_runtime::watch::{Each, ObjectKey, Unreadable, Watch};

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
            let sets = Each {
                store: self.clone(),
                set: Self::set_cluster_set,
                set_read: |this, is_read| this.set_read(Part::Sets, is_read),
            };
            watches.watch(Watch::all("managedclustersets"), sets);
            let bindings = Each {
                store: self.clone(),
                set: Self::set_binding,
                set_read: |this, is_read| this.set_read(Part::Bindings, is_read),
            };
            watches.watch(Watch::all("managedclustersetbindings"), bindings);
        }
        if needs(FleetKind::Clusters) {
            let clusters = Each {
                store: self.clone(),
                set: Self::set_cluster,
                set_read: |this, is_read| this.set_read(Part::Clusters, is_read),
            };
            watches.watch(Watch::all("managedclusters"), clusters);
        }
        if needs(FleetKind::HubId) {
            let hub = Each {
                store: self.clone(),
                set: Self::set_hub,
                // The uid of a namespace never changes.
                set_read: |_, _| {},
            };
            watches.watch(Watch::metadata("namespaces").named("kube-system"), hub);
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

    /// Reports what was found about an object with this uid, or with `None` that it does not exist any more.
    fn report(&self, subject: &Subject, found: Option<(Option<&Uid>, Vec<Finding>)>) {
        let reporter = self.0.host.reporter(NAME);
        match found {
            Some((uid, findings)) => reporter.report(subject, uid, findings),
            None => reporter.forget(subject),
        }
    }

    fn set_cluster(&self, key: &ObjectKey, cluster: Option<Result<ManagedCluster, Unreadable>>) {
        let name = ClusterName::new(key.name.clone());
        let cluster = cluster.map(ObservedCluster::read);
        let found = cluster.as_ref().map(|cluster| {
            let mut findings = project::cluster_findings(&name, cluster);
            findings.extend(self.controllers().flat_map(|it| it.cluster_findings(cluster)));
            (cluster.uid.as_ref(), findings)
        });
        self.report(&Subject::Cluster(name.clone()), found);
        self.change(|fleet| match cluster {
            Some(cluster) => fleet.apply_cluster(name, cluster),
            None => fleet.delete_cluster(&name),
        });
    }

    fn set_cluster_set(&self, key: &ObjectKey, set: Option<Result<ManagedClusterSet, Unreadable>>) {
        let name = ClusterSetName::new(key.name.clone());
        let set = set.map(ObservedClusterSet::read);
        let found = set.as_ref().map(|set| (set.uid.as_ref(), set.findings()));
        self.report(&Subject::ClusterSet(name.clone()), found);
        self.change(|fleet| match set {
            Some(set) => fleet.apply_set(name, set),
            None => fleet.delete_set(&name),
        });
    }

    fn set_binding(
        &self,
        key: &ObjectKey,
        binding: Option<Result<ManagedClusterSetBinding, Unreadable>>,
    ) {
        let namespace = Namespace::new(key.namespace.clone());
        let name = ClusterSetName::new(key.name.clone());
        let binding = binding.map(ObservedBinding::read);
        let found = binding.as_ref().map(|it| (it.uid.as_ref(), it.findings(&name)));
        self.report(&Subject::Binding(namespace.clone(), name.clone()), found);
        self.change(|fleet| match binding {
            Some(binding) => fleet.apply_binding(namespace, name, binding),
            None => fleet.delete_binding(&namespace, &name),
        });
    }

    fn set_hub(
        &self,
        _: &ObjectKey,
        namespace: Option<Result<PartialObjectMeta<NamespaceObject>, Unreadable>>,
    ) {
        let id =
            namespace.and_then(|it| it.map_or_else(|it| it.metadata.uid, |it| it.metadata.uid));
        self.change(|fleet| fleet.set_hub_id(id));
    }
}
