//! Which profiles a change of the fleet affects.
//!
//! A hub has a key for every pair of namespace and cluster, and almost all of them are refused and have no profile.
//! Only keys whose profile exists, may have to exist, or is pending are queued.

use std::collections::BTreeSet;

use hub_api::names::{ClusterName, Namespace, ProfileKey};

use crate::fleet::{Fleet, Touched};
use crate::grant::{self, Grant};

/// The known profiles of a hub.
pub trait KnownProfiles {
    /// The namespaces that have a profile of this cluster, or a write of it that is pending.
    fn namespaces_with(&self, cluster: &ClusterName) -> Vec<Namespace>;

    /// The clusters that have a profile in this namespace, or one that is pending.
    fn clusters_in(&self, namespace: &Namespace) -> Vec<ClusterName>;

    /// Whether the profile at `key` exists or is pending: queued, in progress or waiting for a retry. That attempt may
    /// already be outdated.
    fn has(&self, key: &ProfileKey) -> bool;
}

/// The keys among which are all profiles that a change of the fleet affects. Decides no grant.
#[must_use]
pub fn candidates(
    fleet: &Fleet,
    touched: &Touched,
    profiles: &impl KnownProfiles,
) -> BTreeSet<ProfileKey> {
    let mut keys = BTreeSet::new();
    match touched {
        Touched::Nothing => {}
        Touched::Cluster(cluster) | Touched::Report(cluster) => {
            let key = |namespace: &Namespace| cluster.in_namespace(namespace);
            keys.extend(fleet.candidates_for(cluster).map(key));
            keys.extend(profiles.namespaces_with(cluster).iter().map(key));
        }
        Touched::Namespaces(namespaces) => {
            for namespace in namespaces {
                let key = |cluster: &ClusterName| cluster.in_namespace(namespace);
                keys.extend(fleet.candidates_in(namespace).map(key));
                keys.extend(profiles.clusters_in(namespace).iter().map(key));
            }
        }
    }
    keys
}

/// The profiles of these keys that exist, those that may have to exist, and pending ones, whose retry a change may make
/// unnecessary. Each with its grant.
pub fn concerned(
    fleet: &Fleet,
    keys: impl IntoIterator<Item = ProfileKey>,
    profiles: &impl KnownProfiles,
) -> impl Iterator<Item = (ProfileKey, Grant)> {
    keys.into_iter().filter_map(|key| {
        let grant = grant::decide(fleet, &key);
        (grant != Grant::Refused || profiles.has(&key)).then_some((key, grant))
    })
}
