//! What a controller is, to the process that runs it.

use futures::future::BoxFuture;
use hub_api::names::ProfileKey;
use hub_core::fleet::{Fleet, ObservedCluster, Touched};
use hub_core::note::Note;
use hub_core::priority::Priority;
use hub_core::profile::{ObservedProfile, Share};
use tokio_util::sync::CancellationToken;

use crate::host::Watches;

/// A part of the fleet that is watched once for all controllers that need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetKind {
    /// ManagedCluster.
    Clusters,
    /// ManagedClusterSet and ManagedClusterSetBinding, which grants rest on.
    Grants,
}

/// A controller of the process. [`Process`](crate::process::Process) calls these methods in their order here, each
/// once for all controllers before the next:
///
/// 1. every controller is made, and takes the Lease of its [name](Self::name);
/// 2. [`watch`](Self::watch): the watches start, first those of the fleet that some controller [needs](Self::needs);
/// 3. [`begin`](Self::begin), when every list is there; from then on [`fleet_changed`](Self::fleet_changed);
/// 4. [`work`](Self::work), until the process stops.
pub trait Controller: Send + Sync + 'static {
    /// Its name in logs and metrics; `hub-addons-NAME` is its Lease.
    fn name(&self) -> &'static str;

    /// Which parts of the fleet it needs watched.
    fn needs(&self) -> &'static [FleetKind];

    /// Its part of ClusterProfiles, where it owns one. The process watches and writes them for all owners.
    fn owner(&self) -> Option<&dyn Owner> {
        None
    }

    /// Starts its own watches.
    fn watch(&self, _watches: &Watches) {}

    /// What there is to report on a cluster, beyond what the process itself does.
    fn cluster_notes(&self, _cluster: &ObservedCluster) -> Vec<Note> {
        Vec::new()
    }

    /// Every list is there: what is absent now does not exist. Queues everything that may need work.
    fn begin(&self) {}

    /// The fleet has changed, and decisions may have changed with it. Called by the task of the watch that saw it, never
    /// before every list is there.
    fn fleet_changed(&self, _fleet: &Fleet, _touched: &Touched) {}

    /// Works until `stop`; then returns when what is in flight is done. Owners of profiles have no work of their own.
    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(stop.cancelled_owned())
    }
}

/// The part of ClusterProfiles that a controller owns.
pub trait Owner {
    /// What the owner wants of the profile at `key` now, where `observed` is what there is. Quick, and without
    /// I/O.
    fn share(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Share;

    /// How urgent the work on a profile is that has changed or is gone.
    fn priority(&self, _key: &ProfileKey, _exists: bool) -> Priority {
        Priority::Update
    }
}
