//! The projector as a controller: which profiles a change concerns.

use std::collections::BTreeSet;

use hub_api::names::ProfileKey;
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::{self, Grant};
use hub_core::profile::{ObservedProfile, Share};
use hub_core::project::{self, ProjectionSettings};
use hub_runtime::controller::{Controller, FleetKind, Owner};
use hub_runtime::process::Shared;
use hub_runtime::profiles::Profiles;

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
        for key in concerned(fleet, touched, profiles) {
            profiles.enqueue(key);
        }
    }
}

impl Owner for Projector {
    fn share(&self, key: &ProfileKey, _: Option<&ObservedProfile>) -> Share {
        project::share(&self.shared.fleet.read(), key, &self.settings)
    }
}

/// The profiles that a change of the fleet concerns: those that are there, those that may have to be, and those
/// that wait to be tried again, which may be over. A key that is none of these is refused and has no profile, and
/// of those a hub has most.
fn concerned(fleet: &Fleet, touched: &Touched, profiles: &Profiles) -> BTreeSet<ProfileKey> {
    let may_have_to_be =
        |key: &ProfileKey| grant::decide(fleet, key) != Grant::Refused || profiles.is_pending(key);
    match touched {
        Touched::Nothing => BTreeSet::new(),
        Touched::Cluster(cluster) => {
            let key = |namespace| ProfileKey { namespace, cluster: cluster.clone() };
            let possible = fleet.namespaces().cloned().map(key).filter(may_have_to_be);
            possible.chain(profiles.namespaces_with(cluster).into_iter().map(key)).collect()
        }
        Touched::Namespaces(namespaces) => {
            let keys = namespaces.iter().flat_map(|namespace| {
                let key = |cluster| ProfileKey { namespace: namespace.clone(), cluster };
                let possible = fleet.cluster_names().cloned().map(key).filter(may_have_to_be);
                possible.chain(profiles.clusters_in(namespace).into_iter().map(key)).collect::<Vec<_>>()
            });
            keys.collect()
        }
    }
}
