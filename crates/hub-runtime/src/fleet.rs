//! The hub's clusters, sets and bindings, watched once for all controllers of the process.
//!
//! Watches: ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding. Writes nothing. Guarantees that a
//! listener hears of every change that may change a decision, after the index shows it.

use std::sync::Arc;

use hub_api::managed_cluster::ManagedCluster;
use hub_api::managed_cluster_set::ManagedClusterSet;
use hub_api::managed_cluster_set_binding::ManagedClusterSetBinding;
use hub_api::names::{ClusterName, ClusterSetName, Namespace};
use hub_core::fleet::{BoundSource, Fleet, ObservedBinding, ObservedCluster, ObservedClusterSet, Touched};
use hub_core::note::{Note, Subject};
use hub_core::project;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::host::Host;
use crate::report::Reporter;
use crate::watch::{ObjectKey, Sink, Unreadable, Watch};

/// Hears which decisions a change may have changed.
type Listener = Box<dyn Fn(&Fleet, &Touched) + Send + Sync>;

/// Finds what a person should hear about a cluster, beyond what every controller does.
type ClusterNotes = Box<dyn Fn(&ObservedCluster) -> Vec<Note> + Send + Sync>;

/// The watched index. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct FleetCache {
    inner: Arc<Inner>,
}

struct Inner {
    fleet: RwLock<Fleet>,
    listeners: RwLock<Vec<Listener>>,
    cluster_notes: RwLock<Vec<ClusterNotes>>,
    reporter: Reporter,
}

impl FleetCache {
    /// An index that nobody fills yet.
    #[must_use]
    pub fn new(bound_source: BoundSource, reporter: Reporter) -> Self {
        let fleet = RwLock::new(Fleet::new(bound_source));
        let (listeners, cluster_notes) = (RwLock::default(), RwLock::default());
        Self { inner: Arc::new(Inner { fleet, listeners, cluster_notes, reporter }) }
    }

    /// Has `notes` asked about every cluster that is seen, for its Events.
    pub fn add_cluster_notes(&self, notes: impl Fn(&ObservedCluster) -> Vec<Note> + Send + Sync + 'static) {
        self.inner.cluster_notes.write().push(Box::new(notes));
    }

    /// Calls `listener` after every change, from the task of the watch that saw it.
    pub fn listen(&self, listener: impl Fn(&Fleet, &Touched) + Send + Sync + 'static) {
        self.inner.listeners.write().push(Box::new(listener));
    }

    /// The index as it is now. Hold it for one decision, not across an await.
    pub fn read(&self) -> RwLockReadGuard<'_, Fleet> {
        self.inner.fleet.read()
    }

    /// Starts to watch what grants rest on.
    pub fn watch_grants(&self, host: &Host) {
        host.watch(Watch::all("managedclustersets"), Sets(self.clone()));
        host.watch(Watch::all("managedclustersetbindings"), Bindings(self.clone()));
    }

    /// Starts to watch the clusters.
    pub fn watch_clusters(&self, host: &Host) {
        host.watch(Watch::all("managedclusters"), Clusters(self.clone()));
    }

    fn change(&self, change: impl FnOnce(&mut Fleet) -> Touched) {
        let touched = {
            let mut fleet = self.inner.fleet.write();
            change(&mut fleet)
        };
        if touched == Touched::Nothing {
            return;
        }
        let fleet = self.read();
        for listener in self.inner.listeners.read().iter() {
            listener(&fleet, &touched);
        }
    }
}

struct Clusters(FleetCache);

impl Sink<ManagedCluster> for Clusters {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedCluster, Unreadable>) {
        let name = ClusterName::new(Arc::clone(&key.name));
        let cluster = match object {
            Ok(object) => ObservedCluster::read(&object),
            Err(unreadable) => ObservedCluster::unreadable(&unreadable.metadata, unreadable.error),
        };
        let subject = Subject::Cluster(name.clone());
        let mut notes = project::cluster_notes(&name, &cluster);
        for more in self.0.inner.cluster_notes.read().iter() {
            notes.extend(more(&cluster));
        }
        self.0.inner.reporter.report(&subject, cluster.uid.as_deref(), notes);
        self.0.change(|fleet| fleet.apply_cluster(name, cluster));
    }

    fn delete(&mut self, key: &ObjectKey) {
        let name = ClusterName::new(Arc::clone(&key.name));
        self.0.inner.reporter.forget(&Subject::Cluster(name.clone()));
        self.0.change(|fleet| fleet.delete_cluster(&name));
    }
}

struct Sets(FleetCache);

impl Sink<ManagedClusterSet> for Sets {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedClusterSet, Unreadable>) {
        let name = ClusterSetName::new(Arc::clone(&key.name));
        let set = match object {
            Ok(object) => ObservedClusterSet::read(&object),
            Err(unreadable) => ObservedClusterSet::unreadable(&unreadable.metadata, &unreadable.error),
        };
        let subject = Subject::ClusterSet(name.clone());
        self.0.inner.reporter.report(&subject, set.uid.as_deref(), set.notes());
        self.0.change(|fleet| fleet.apply_set(name, set));
    }

    fn delete(&mut self, key: &ObjectKey) {
        let name = ClusterSetName::new(Arc::clone(&key.name));
        self.0.inner.reporter.forget(&Subject::ClusterSet(name.clone()));
        self.0.change(|fleet| fleet.delete_set(&name));
    }
}

struct Bindings(FleetCache);

impl Sink<ManagedClusterSetBinding> for Bindings {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedClusterSetBinding, Unreadable>) {
        let (namespace, name) = binding_names(key);
        let binding = match object {
            Ok(object) => ObservedBinding::read(&object),
            Err(unreadable) => ObservedBinding::unreadable(&unreadable.metadata, unreadable.error),
        };
        let subject = Subject::Binding(namespace.clone(), name.clone());
        self.0.inner.reporter.report(&subject, binding.uid.as_deref(), binding.notes(&name));
        self.0.change(|fleet| fleet.apply_binding(namespace, name, binding));
    }

    fn delete(&mut self, key: &ObjectKey) {
        let (namespace, name) = binding_names(key);
        self.0.inner.reporter.forget(&Subject::Binding(namespace.clone(), name.clone()));
        self.0.change(|fleet| fleet.delete_binding(&namespace, &name));
    }
}

fn binding_names(key: &ObjectKey) -> (Namespace, ClusterSetName) {
    (Namespace::new(Arc::clone(&key.namespace)), ClusterSetName::new(Arc::clone(&key.name)))
}
