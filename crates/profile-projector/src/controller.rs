//! The projector as a controller.

use std::collections::BTreeSet;
use std::sync::Arc;

use hub_api::names::{Namespace, ProfileKey};
use hub_core::concerned::concerned;
use hub_core::finding::Finding;
use hub_core::fleet::{Fleet, ObservedCluster, Touched};
use hub_core::grant;
use hub_core::priority::Priority;
use hub_core::profile::{Desired, ObservedProfile};
use hub_core::project::{self, ProjectionSettings};
use hub_process::controller::{Controller, Owner};
use hub_process::process::Shared;
use parking_lot::Mutex;
use tokio::task::yield_now;

/// The feature gate that starts the projector.
pub const GATE: &str = "ClusterProfile";

pub struct Projector {
    shared: Shared,
    settings: ProjectionSettings,
    /// The namespaces whose profiles are to be queued one by one, so that other tasks run in between: a hub has tens of
    /// thousands of profiles.
    backlog: Arc<Mutex<BTreeSet<Namespace>>>,
}

impl Projector {
    #[must_use]
    pub fn new(shared: &Shared, settings: ProjectionSettings) -> Self {
        Self { shared: shared.clone(), settings, backlog: Arc::default() }
    }

    fn queue_namespaces(&self, namespaces: impl IntoIterator<Item = Namespace>) {
        let (shared, backlog) = (self.shared.clone(), Arc::clone(&self.backlog));
        let mut waiting = backlog.lock();
        let is_running = !waiting.is_empty();
        waiting.extend(namespaces);
        drop(waiting);
        if is_running {
            return;
        }
        self.shared.host.tasks.spawn_once("the queue of namespaces", async move {
            loop {
                let Some(namespace) = backlog.lock().first().cloned() else { return };
                queue(
                    &shared,
                    &shared.fleet.read(),
                    &Touched::Namespaces([namespace.clone()].into()),
                );
                backlog.lock().remove(&namespace);
                yield_now().await;
            }
        });
    }
}

impl Controller for Projector {
    fn name(&self) -> &'static str {
        "profile-projector"
    }

    fn owner(&self) -> Option<&dyn Owner> {
        Some(self)
    }

    fn cluster_findings(&self, cluster: &ObservedCluster) -> Vec<Finding> {
        let shown = &self.settings.propagated_claims;
        let states = cluster.state.iter();
        states.filter_map(|state| project::claims_finding(&state.claims, shown)).collect()
    }

    fn begin(&self) {
        let namespaces: Vec<_> = self.shared.fleet.read().namespaces().cloned().collect();
        self.queue_namespaces(namespaces);
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        match touched {
            Touched::Namespaces(namespaces) => self.queue_namespaces(namespaces.iter().cloned()),
            Touched::Nothing | Touched::Report(_) | Touched::Cluster(_) => {
                queue(&self.shared, fleet, touched);
            }
        }
    }
}

/// Queues the profiles that a change affects.
fn queue(shared: &Shared, fleet: &Fleet, touched: &Touched) {
    let profiles = &shared.profiles;
    for (key, grant) in concerned(fleet, touched, &**profiles) {
        let priority = Priority::of_profile(grant, profiles.exists(&key));
        profiles.queue.add_with(key, priority);
    }
}

impl Owner for Projector {
    fn desired(&self, key: &ProfileKey, _: Option<&ObservedProfile>) -> Desired {
        project::desired(&self.shared.fleet.read(), key, &self.settings)
    }

    fn priority(&self, key: &ProfileKey, exists: bool) -> Priority {
        Priority::of_profile(grant::decide(&self.shared.fleet.read(), key), exists)
    }
}
