//! Which profiles a change of the fleet concerns, by example. That these are enough for every hub is a law
//! (`laws.rs`).

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{ClusterName, Namespace, ProfileKey};
use hub_core::concerned::{KnownProfiles, candidates, concerned};
use hub_core::fleet::{Fleet, Touched};
use hub_core::grant::Grant;

use crate::support::{binding, exclusive, fleet, key, member};

/// The profiles of a hub, and those that are pending.
#[derive(Default)]
pub struct Profiles {
    pub existing: BTreeSet<ProfileKey>,
    pub pending: BTreeSet<ProfileKey>,
}

impl KnownProfiles for Profiles {
    fn namespaces_with(&self, cluster: &ClusterName) -> Vec<Namespace> {
        let all = self.existing.iter().chain(&self.pending);
        all.filter(|key| key.cluster == *cluster).map(|key| key.namespace.clone()).collect()
    }

    fn clusters_in(&self, namespace: &Namespace) -> Vec<ClusterName> {
        let all = self.existing.iter().chain(&self.pending);
        all.filter(|key| key.namespace == *namespace).map(|key| key.cluster.clone()).collect()
    }

    fn has(&self, key: &ProfileKey) -> bool {
        self.existing.contains(key) || self.pending.contains(key)
    }
}

/// Two clusters in a set that two namespaces bind, and one in a set that a third namespace binds.
fn hub() -> Fleet {
    fleet([
        member("c1", "prod"),
        member("c2", "prod"),
        member("c3", "dev"),
        exclusive("prod"),
        exclusive("dev"),
        binding("ops", "prod"),
        binding("team", "prod"),
        binding("lab", "dev"),
    ])
}

fn namespaces(names: &[&str]) -> Touched {
    Touched::Namespaces(names.iter().map(|name| (*name).into()).collect())
}

fn keys(keys: &[(&str, &str)]) -> BTreeSet<ProfileKey> {
    keys.iter().map(|(namespace, cluster)| key(namespace, cluster)).collect()
}

/// The profiles that a change concerns, with their grants.
pub fn concerned_by(
    fleet: &Fleet,
    touched: &Touched,
    profiles: &Profiles,
) -> BTreeMap<ProfileKey, Grant> {
    concerned(fleet, candidates(fleet, touched, profiles), profiles).collect()
}

fn concerned_keys(fleet: &Fleet, touched: &Touched, profiles: &Profiles) -> BTreeSet<ProfileKey> {
    concerned_by(fleet, touched, profiles).into_keys().collect()
}

#[test]
fn a_change_that_touches_nothing_concerns_no_profile() {
    let profiles = Profiles { existing: keys(&[("team", "c1")]), pending: keys(&[("team", "c2")]) };
    assert_eq!(concerned_keys(&hub(), &Touched::Nothing, &profiles), keys(&[]));
}

#[test]
fn a_cluster_concerns_the_namespaces_that_are_granted_it_and_those_that_have_its_profile() {
    let profiles =
        Profiles { existing: keys(&[("old", "c1"), ("old", "c2")]), ..Profiles::default() };
    let found = concerned_keys(&hub(), &Touched::Cluster("c1".into()), &profiles);
    assert_eq!(found, keys(&[("old", "c1"), ("ops", "c1"), ("team", "c1")]));
}

#[test]
fn a_namespace_concerns_the_clusters_that_are_granted_to_it_and_those_that_have_a_profile_there() {
    let profiles =
        Profiles { existing: keys(&[("team", "gone"), ("ops", "gone")]), ..Profiles::default() };
    let found = concerned_keys(&hub(), &namespaces(&["team"]), &profiles);
    assert_eq!(found, keys(&[("team", "c1"), ("team", "c2"), ("team", "gone")]));
}

#[test]
fn a_refused_key_without_a_profile_is_concerned_while_it_is_pending_only() {
    let cluster = Touched::Cluster("c3".into());
    assert_eq!(concerned_keys(&hub(), &cluster, &Profiles::default()), keys(&[("lab", "c3")]));
    let profiles = Profiles { pending: keys(&[("team", "c3")]), ..Profiles::default() };
    assert_eq!(concerned_keys(&hub(), &cluster, &profiles), keys(&[("lab", "c3"), ("team", "c3")]));
    assert_eq!(
        concerned_keys(&hub(), &namespaces(&["team"]), &profiles),
        keys(&[("team", "c1"), ("team", "c2"), ("team", "c3")])
    );
}
