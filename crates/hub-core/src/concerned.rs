//! Which profiles a change of the fleet affects.
//!
//! A hub has a key for every pair of namespace and cluster, and almost all of them are refused and have no profile.
//! Only keys whose profile exists, may have to exist, or is pending are queued.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{ClusterName, Namespace, ProfileKey};

use crate::fleet::{Fleet, Touched};
use crate::grant::{self, Grant};

/// The known profiles of a hub.
pub trait KnownProfiles {
    /// The namespaces that have a profile of this cluster.
    fn namespaces_with(&self, cluster: &ClusterName) -> Vec<Namespace>;

    /// The clusters that have a profile in this namespace, or one that is pending.
    fn clusters_in(&self, namespace: &Namespace) -> Vec<ClusterName>;

    /// Whether the profile at `key` is queued, in progress or waits for a retry. That attempt may already be outdated.
    fn is_pending(&self, key: &ProfileKey) -> bool;
}

/// The profiles that a change of the fleet affects: those that exist, those that may have to exist, and pending ones,
/// whose retry the change may make unnecessary. Each with its grant.
#[must_use]
pub fn concerned(
    fleet: &Fleet,
    touched: &Touched,
    profiles: &impl KnownProfiles,
) -> BTreeMap<ProfileKey, Grant> {
    let (mut known, mut candidates) = (BTreeSet::new(), BTreeSet::new());
    match touched {
        Touched::Nothing => {}
        Touched::Cluster(cluster) | Touched::Report(cluster) => {
            let key = |namespace: &Namespace| cluster.in_namespace(namespace);
            candidates.extend(fleet.candidates_for(cluster).map(key));
            known.extend(profiles.namespaces_with(cluster).iter().map(key));
            known.extend(fleet.namespaces().map(key).filter(|key| profiles.is_pending(key)));
        }
        Touched::Namespaces(namespaces) => {
            for namespace in namespaces {
                let key = |cluster: &ClusterName| cluster.in_namespace(namespace);
                candidates.extend(fleet.candidates_in(namespace).map(key));
                known.extend(profiles.clusters_in(namespace).iter().map(key));
            }
        }
    }
    candidates.extend(known.iter().cloned());
    let decided = candidates.into_iter().filter_map(|key| {
        let grant = grant::decide(fleet, &key);
        (grant != Grant::Refused || known.contains(&key)).then_some((key, grant))
    });
    decided.collect()
}
