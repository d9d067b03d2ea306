//! The projector as a controller.

use hub_api::names::ProfileKey;
use hub_core::concerned::concerned;
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant;
use hub_core::priority::Priority;
use hub_core::profile::{Desired, ObservedProfile};
use hub_core::project::{self, ProjectionSettings};
use hub_process::controller::{Controller, Owner};
use hub_process::process::Shared;
use tokio::task::yield_now;

/// The feature gate that starts the projector.
pub const GATE: &str = "ClusterProfile";

pub struct Projector {
    shared: Shared,
    settings: ProjectionSettings,
}

impl Projector {
    #[must_use]
    pub fn new(shared: &Shared, settings: ProjectionSettings) -> Self {
        Self { shared: shared.clone(), settings }
    }
}

impl Controller for Projector {
    fn name(&self) -> &'static str {
        "profile-projector"
    }

    fn owner(&self) -> Option<&dyn Owner> {
        Some(self)
    }

    fn begin(&self) {
        // Other tasks run in between: a hub has tens of thousands of profiles.
        let shared = self.shared.clone();
        let namespaces: Vec<_> = shared.fleet.read().namespaces().cloned().collect();
        self.shared.host.tasks.spawn_once("the first queue of profiles", async move {
            for namespace in namespaces {
                queue(&shared, &shared.fleet.read(), &Touched::Namespaces([namespace].into()));
                yield_now().await;
            }
        });
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        queue(&self.shared, fleet, touched);
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
