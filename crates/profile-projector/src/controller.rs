//! The projector as a controller.

use std::sync::Arc;

use hub_api::names::{Namespace, ProfileKey};
use hub_core::concerned::{KnownProfiles, candidates, concerned};
use hub_core::finding::Finding;
use hub_core::fleet::{Fleet, ObservedCluster, Touched};
use hub_core::grant;
use hub_core::in_turn::InTurn;
use hub_core::priority::Priority;
use hub_core::profile::{Desired, ObservedProfile};
use hub_core::project::{self, ProjectionSettings};
use hub_process::controller::{Controller, Owner};
use hub_process::process::Shared;
use parking_lot::Mutex;
use tokio::task::yield_now;

/// The feature gate that starts the projector.
pub const GATE: &str = "ClusterProfile";

/// How many profiles are queued before other tasks run: some milliseconds of work.
const AT_ONCE: usize = 256;

pub struct Projector {
    shared: Shared,
    settings: ProjectionSettings,
    backlog: Arc<Mutex<Backlog>>,
}

/// What is to be queued in portions, so that other tasks run in between: a hub has tens of thousands of profiles.
#[derive(Default)]
struct Backlog {
    /// The namespaces whose profiles are all to be queued.
    namespaces: InTurn<Namespace>,
    keys: InTurn<ProfileKey>,
}

impl Backlog {
    fn is_empty(&self) -> bool {
        self.namespaces.count() + self.keys.count() == 0
    }

    /// Takes some keys, once the next namespace has been divided into them.
    fn next(&mut self, fleet: &Fleet, profiles: &impl KnownProfiles) -> Vec<ProfileKey> {
        if self.keys.count() == 0
            && let Some(namespace) = self.namespaces.pop()
        {
            let touched = Touched::Namespaces([namespace].into());
            self.keys.extend(candidates(fleet, &touched, profiles));
        }
        self.keys.take(AT_ONCE)
    }
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
        waiting.namespaces.extend(namespaces);
        drop(waiting);
        if is_running {
            return;
        }
        self.shared.host.tasks.spawn_once("the queue of namespaces", async move {
            while queue_portion(&shared, &backlog) {
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
                queue(&self.shared, fleet, candidates(fleet, touched, &*self.shared.profiles));
            }
        }
    }
}

/// Queues a portion of the backlog; returns whether there was any.
fn queue_portion(shared: &Shared, backlog: &Mutex<Backlog>) -> bool {
    let fleet = shared.fleet.read();
    let mut backlog = backlog.lock();
    let is_any = !backlog.is_empty();
    queue(shared, &fleet, backlog.next(&fleet, &*shared.profiles));
    is_any
}

/// Queues the profiles of these keys that a change affects.
fn queue(shared: &Shared, fleet: &Fleet, keys: impl IntoIterator<Item = ProfileKey>) {
    let profiles = &shared.profiles;
    for (key, grant) in concerned(fleet, keys, &**profiles) {
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

#[cfg(test)]
mod tests {
    use hub_api::names::ClusterName;

    use super::*;

    /// A hub with one profile in each namespace.
    struct OneEach;

    impl KnownProfiles for OneEach {
        fn namespaces_with(&self, _: &ClusterName) -> Vec<Namespace> {
            Vec::new()
        }

        fn clusters_in(&self, _: &Namespace) -> Vec<ClusterName> {
            vec!["c1".into()]
        }

        fn has(&self, _: &ProfileKey) -> bool {
            true
        }
    }

    #[test]
    fn a_namespace_that_changes_again_and_again_keeps_no_other_back() {
        let mut backlog = Backlog::default();
        backlog.namespaces.extend(["a", "b", "c"].map(Namespace::from));
        let seen: Vec<_> = (0..3)
            .flat_map(|_| {
                let keys = backlog.next(&Fleet::default(), &OneEach);
                backlog.namespaces.extend([Namespace::from("a")]);
                keys.into_iter().map(|key| key.namespace.to_string())
            })
            .collect();
        assert_eq!(seen, ["a", "b", "c"]);
    }
}
