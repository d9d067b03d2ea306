//! Which clusters a set may select, and which namespaces bind it, without visiting every pair of the two.
//!
//! A hub has a pair for every namespace and cluster, and most of them are refused. This index finds the others from
//! either side. It is exact about sets and selectors, and ignores the other conditions of a grant, which
//! [`crate::grant`] judges.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{ClusterName, ClusterSetName, Namespace};

use crate::fleet::{ObservedCluster, ObservedClusterSet};
use crate::nested;
use crate::selector::ClusterSelector;

#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// The clusters by the exclusive set that their label names, whether or not it exists.
    labelled: BTreeMap<ClusterSetName, BTreeSet<ClusterName>>,
    /// The sets that are not exclusive, with the clusters that each selects. A set whose selector is not valid lists
    /// none: every cluster is its candidate.
    others: BTreeMap<ClusterSetName, BTreeSet<ClusterName>>,
    /// The namespaces with a binding of this name.
    bound: BTreeMap<ClusterSetName, BTreeSet<Namespace>>,
}

impl Candidates {
    /// The namespaces with a binding of this name.
    pub(crate) fn bound(&self, set: &ClusterSetName) -> impl Iterator<Item = &Namespace> + use<'_> {
        self.bound.get(set).into_iter().flatten()
    }

    /// The clusters that a set selects, or may select.
    pub(crate) fn members<'a>(
        &'a self,
        name: &ClusterSetName,
        set: &ObservedClusterSet,
        clusters: &'a BTreeMap<ClusterName, ObservedCluster>,
    ) -> impl Iterator<Item = &'a ClusterName> + use<'a> {
        let (listed, all) = match &set.selector {
            Ok(ClusterSelector::Exclusive) => (self.labelled.get(name), None),
            Ok(ClusterSelector::Labels(_) | ClusterSelector::Nothing) => (self.others.get(name), None),
            Err(_) => (None, Some(clusters.keys())),
        };
        listed.into_iter().flatten().chain(all.into_iter().flatten())
    }

    /// The sets that select a cluster, or may select it.
    pub(crate) fn selecting<'a>(
        &'a self,
        cluster: &'a ObservedCluster,
        sets: &'a BTreeMap<ClusterSetName, ObservedClusterSet>,
    ) -> impl Iterator<Item = &'a ClusterSetName> {
        let exclusive = cluster.exclusive_set().and_then(|set| sets.get_key_value(set)).into_iter();
        let exclusive = exclusive.filter(|(_, set)| matches!(set.selector, Ok(ClusterSelector::Exclusive)));
        let others = self.others.keys().filter_map(|name| sets.get_key_value(name));
        exclusive.chain(others).filter(|(name, set)| may_select(name, set, cluster)).map(|(name, _)| name)
    }

    /// Records that a cluster has changed, appeared or disappeared.
    pub(crate) fn cluster_changed(
        &mut self,
        name: &ClusterName,
        before: Option<&ObservedCluster>,
        after: Option<&ObservedCluster>,
        sets: &BTreeMap<ClusterSetName, ObservedClusterSet>,
    ) {
        if before.map(|cluster| &cluster.labels) == after.map(|cluster| &cluster.labels) {
            return;
        }
        if let Some(set) = before.and_then(ObservedCluster::exclusive_set) {
            nested::remove_value(&mut self.labelled, &set.into(), name);
        }
        if let Some(set) = after.and_then(ObservedCluster::exclusive_set) {
            self.labelled.entry(set.into()).or_default().insert(name.clone());
        }
        for (set, members) in &mut self.others {
            let Some(observed) = sets.get(set).filter(|observed| observed.selector.is_ok()) else { continue };
            if after.is_some_and(|cluster| may_select(set, observed, cluster)) {
                members.insert(name.clone());
            } else {
                members.remove(name);
            }
        }
    }

    /// Records that a set has changed, appeared or disappeared.
    pub(crate) fn set_changed(
        &mut self,
        name: &ClusterSetName,
        set: Option<&ObservedClusterSet>,
        clusters: &BTreeMap<ClusterName, ObservedCluster>,
    ) {
        self.others.remove(name);
        let Some(set) = set.filter(|set| !matches!(set.selector, Ok(ClusterSelector::Exclusive))) else {
            return;
        };
        let selected = |cluster: &&ObservedCluster| set.selector.is_ok() && may_select(name, set, cluster);
        let members = clusters.iter().filter(|(_, cluster)| selected(cluster));
        self.others.insert(name.clone(), members.map(|(cluster, _)| cluster.clone()).collect());
    }

    /// Records a binding of this name.
    pub(crate) fn bind(&mut self, namespace: &Namespace, set: &ClusterSetName) {
        self.bound.entry(set.clone()).or_default().insert(namespace.clone());
    }

    /// Records that the binding of this name is gone.
    pub(crate) fn unbind(&mut self, namespace: &Namespace, set: &ClusterSetName) {
        nested::remove_value(&mut self.bound, set, namespace);
    }
}

/// Whether a set selects a cluster; true if its selector is not valid.
fn may_select(name: &ClusterSetName, set: &ObservedClusterSet, cluster: &ObservedCluster) -> bool {
    set.selector.as_ref().map_or(true, |selector| selector.picks(name.as_str(), &cluster.labels))
}
