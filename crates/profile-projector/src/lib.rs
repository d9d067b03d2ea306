//! The profile projector: one ClusterProfile per granted cluster in each bound namespace.
//!
//! - **Watches** ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding (through [`FleetCache`]) and
//!   ClusterProfile (through [`Profiles`]).
//! - **Owns** of a profile: that it exists, its labels, its spec, and `status.{version,properties,conditions}`.
//! - **Guarantees** that a profile exists where and only where its cluster is granted, that unknown is never
//!   taken for empty, and that nothing is written where nothing differs. The decisions are
//!   [`hub_core::project::share`]; what is here only says which profiles a change concerns.

use std::collections::BTreeSet;
use std::sync::Arc;

use hub_api::names::ProfileKey;
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::{self, Grant};
use hub_core::profile::{ObservedProfile, Share};
use hub_core::project::{self, ProjectionSettings};
use hub_runtime::fleet::FleetCache;
use hub_runtime::profiles::{Owner, Profiles};

/// The feature gate that starts the projector.
pub const GATE: &str = "ClusterProfile";

/// The projector as an owner of profiles.
pub struct Projector {
    fleet: FleetCache,
    settings: ProjectionSettings,
}

impl Projector {
    /// Has `profiles` looked at again whenever the fleet changes. Call it before the fleet's watches start.
    #[must_use]
    pub fn new(fleet: FleetCache, profiles: &Arc<Profiles>, settings: ProjectionSettings) -> Self {
        let profiles = Arc::clone(profiles);
        fleet.listen(move |fleet, touched| {
            if let Touched::Namespaces(namespaces) = touched {
                for namespace in namespaces {
                    profiles.resume(namespace);
                }
            }
            for key in concerned(fleet, touched, &profiles) {
                profiles.enqueue(key);
            }
        });
        Self { fleet, settings }
    }
}

impl Owner for Projector {
    fn share(&self, key: &ProfileKey, _: Option<&ObservedProfile>) -> Share {
        project::share(&self.fleet.read(), key, &self.settings)
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
