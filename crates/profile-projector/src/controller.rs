//! The projector as a controller.

use hub_api::names::ProfileKey;
use hub_core::concerned::concerned;
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant;
use hub_core::priority::Priority;
use hub_core::profile::{ObservedProfile, Share};
use hub_core::project::{self, ProjectionSettings};
use hub_runtime::controller::{Controller, FleetKind, Owner};
use hub_runtime::process::Shared;

/// The feature gate that starts the projector.
pub const GATE: &str = "ClusterProfile";

/// The projector.
pub struct Projector {
    shared: Shared,
    settings: ProjectionSettings,
}

impl Projector {
    /// A projector.
    #[must_use]
    pub fn new(shared: &Shared, settings: ProjectionSettings) -> Self {
        Self { shared: shared.clone(), settings }
    }
}

impl Controller for Projector {
    fn name(&self) -> &'static str {
        "profile-projector"
    }

    fn needs(&self) -> &'static [FleetKind] {
        &[FleetKind::Grants, FleetKind::Clusters]
    }

    fn owner(&self) -> Option<&dyn Owner> {
        Some(self)
    }

    fn begin(&self) {
        let fleet = self.shared.fleet.read();
        let everywhere = Touched::Namespaces(fleet.namespaces().cloned().collect());
        self.fleet_changed(&fleet, &everywhere);
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        let profiles = &self.shared.profiles;
        if let Touched::Namespaces(namespaces) = touched {
            for namespace in namespaces {
                profiles.resume(namespace);
            }
        }
        for key in concerned(fleet, touched, &**profiles) {
            let exists = profiles.exists(&key);
            let priority = Priority::of_profile(grant::decide(fleet, &key), exists);
            profiles.enqueue(key, priority);
        }
    }
}

impl Owner for Projector {
    fn share(&self, key: &ProfileKey, _: Option<&ObservedProfile>) -> Share {
        project::share(&self.shared.fleet.read(), key, &self.settings)
    }

    fn priority(&self, key: &ProfileKey, exists: bool) -> Priority {
        Priority::of_profile(grant::decide(&self.shared.fleet.read(), key), exists)
    }
}
