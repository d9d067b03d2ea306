//! The interface between controllers and the process that runs them.

use futures::future::BoxFuture;
use hub_api::names::ProfileKey;
use hub_core::finding::Finding;
use hub_core::fleet::{Fleet, ObservedCluster, Touched};
use hub_core::priority::Priority;
use hub_core::profile::{Desired, ObservedProfile};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio_util::sync::CancellationToken;

use hub_runtime::host::Watches;

/// A part of the fleet that is watched once for all controllers that need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetKind {
    /// ManagedCluster.
    Clusters,
    /// ManagedClusterSet and ManagedClusterSetBinding, which grants depend on.
    Grants,
    /// The namespace kube-system, whose uid shows which managed cluster is the hub itself.
    HubId,
}

/// A controller of the process. [`Process`](crate::process::Process) calls these methods in this order, each one for
/// all controllers before the next:
///
/// 1. it creates every controller, and acquires the Lease of the process;
/// 2. [`watch`](Self::watch) starts the watches, after those of the fleet that some controller [needs](Self::needs);
/// 3. [`begin`](Self::begin), when every watch has its first list; from then on [`fleet_changed`](Self::fleet_changed);
/// 4. [`work`](Self::work), until the process stops.
pub trait Controller: Send + Sync + 'static {
    /// The name in logs, in metrics and in the annotation of the Lease.
    fn name(&self) -> &'static str;

    /// The parts of the fleet that it needs watched: by default those that grants depend on.
    fn needs(&self) -> &'static [FleetKind] {
        &[FleetKind::Grants, FleetKind::Clusters]
    }

    /// The part of ClusterProfiles that it owns, if any. The process watches and writes them for all owners.
    fn owner(&self) -> Option<&dyn Owner> {
        None
    }

    /// Its read-only ClusterProfile observer, if any. The process watches ClusterProfiles once for all observers.
    fn follower(&self) -> Option<&dyn ProfileFollower> {
        None
    }

    /// An annotation of the Lease and the value to write with the next renewal; no value removes it. Called also before
    /// the controller works.
    fn lease_annotation(&self) -> Option<(&'static str, Option<String>)> {
        None
    }

    /// Starts its own watches.
    fn watch(&self, _watches: &Watches) {}

    /// Its findings about a cluster, in addition to those of the process.
    fn cluster_findings(&self, _cluster: &ObservedCluster) -> Vec<Finding> {
        Vec::new()
    }

    /// Queues everything that may need work: every watch has its first list now, so an absent object does not exist.
    fn begin(&self) {}

    /// The fleet has changed, and decisions may have changed. Called by the watch's task, and only after `begin`.
    fn fleet_changed(&self, _fleet: &Fleet, _touched: &Touched) {}

    /// A kind of the fleet can be read again: what changed meanwhile where nothing of the fleet has changed is decided
    /// now. Called after [`fleet_changed`](Self::fleet_changed).
    fn fleet_read(&self) {}

    /// Works until `stop`, then returns when all writes in flight have finished. Owners of profiles have no work of
    /// their own.
    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(stop.cancelled_owned())
    }
}

/// The part of ClusterProfiles that a controller owns.
pub trait Owner {
    /// The desired state of the owner's part of the profile at `key`, given the observed one. Must be fast and without
    /// I/O.
    fn desired(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Desired;

    /// The priority of a profile that has changed or been deleted.
    fn priority(&self, _key: &ProfileKey, _exists: bool) -> Priority {
        Priority::Update
    }
}

/// Follows ClusterProfiles. Called by the watch's task, in the order of the events.
pub trait ProfileFollower {
    /// A profile exists, with this metadata. `manager` is the cluster manager that its spec names, if that can be read.
    fn shown(&self, key: &ProfileKey, metadata: &ObjectMeta, manager: Option<&str>);
    /// A profile does not exist any more.
    fn gone(&self, key: &ProfileKey);
    /// Profiles can be read, or cannot be read any more, so that what was shown is out of date.
    fn set_read(&self, is_read: bool);
}
