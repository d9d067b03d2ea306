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

    /// The clusters that have a profile in this namespace.
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
    let decided = |key| {
        let grant = grant::decide(fleet, &key);
        (key, grant)
    };
    match touched {
        Touched::Nothing => BTreeMap::new(),
        Touched::Cluster(cluster) => {
            let existing: BTreeSet<_> = profiles.namespaces_with(cluster).into_iter().collect();
            let namespaces: BTreeSet<_> = fleet.namespaces().chain(&existing).collect();
            let key =
                |namespace: &Namespace| ProfileKey { namespace: namespace.clone(), cluster: cluster.clone() };
            let keys = namespaces.into_iter().map(key).map(decided);
            let is_concerned = |(key, grant): &(ProfileKey, Grant)| {
                *grant != Grant::Refused || existing.contains(&key.namespace) || profiles.is_pending(key)
            };
            keys.filter(is_concerned).collect()
        }
        Touched::Namespaces(namespaces) => {
            let keys = namespaces.iter().flat_map(|namespace| {
                let key = |cluster| ProfileKey { namespace: namespace.clone(), cluster };
                let granted = grant::clusters_of(fleet, namespace);
                let others = fleet.cluster_names().filter(|cluster| !granted.contains(cluster));
                let pending = others.cloned().map(key).filter(|key| profiles.is_pending(key));
                let possible = granted.iter().map(|cluster| key((*cluster).clone())).chain(pending);
                possible.chain(profiles.clusters_in(namespace).into_iter().map(key)).collect::<BTreeSet<_>>()
            });
            keys.map(decided).collect()
        }
    }
}
