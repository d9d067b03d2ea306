//! Which clusters a set may select, and which namespaces bind it, without visiting every pair of the two.
//!
//! A hub has a pair for every namespace and cluster, and most of them are refused. This index finds the others from
//! either side. It is exact about sets and selectors, and ignores the other conditions of a grant, which
//! [`crate::grant`] judges.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{ClusterName, ClusterSetName, Namespace};

use super::objects::{ObservedCluster, ObservedClusterSet};
use crate::nested;
use crate::selector::ClusterSelector;

#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// The clusters by the exclusive set that their label names, whether or not it exists.
    labelled: BTreeMap<ClusterSetName, BTreeSet<ClusterName>>,
    /// The clusters that each set selects by labels, and the other way round.
    selected: BTreeMap<ClusterSetName, BTreeSet<ClusterName>>,
    selecting: BTreeMap<ClusterName, BTreeSet<ClusterSetName>>,
    /// The sets whose selectors are not valid: every cluster is their candidate.
    invalid: BTreeSet<ClusterSetName>,
    /// The namespaces with a binding of this name.
    bound: BTreeMap<ClusterSetName, BTreeSet<Namespace>>,
}

impl Candidates {
    /// The namespaces with a binding of this name.
    pub(crate) fn bound(&self, set: &ClusterSetName) -> impl Iterator<Item = &Namespace> + use<'_> {
        self.bound.get(set).into_iter().flatten()
    }

    /// Whether a namespace has a binding of this name.
    pub(crate) fn is_bound(&self, set: &ClusterSetName, namespace: &Namespace) -> bool {
        self.bound.get(set).is_some_and(|bound| bound.contains(namespace))
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
            Ok(ClusterSelector::Labels(_) | ClusterSelector::Nothing) => {
                (self.selected.get(name), None)
            }
            Err(_) => (None, Some(clusters.keys())),
        };
        listed.into_iter().flatten().chain(all.into_iter().flatten())
    }

    /// The sets that select a cluster, or may select it.
    pub(crate) fn selecting<'a>(
        &'a self,
        name: &ClusterName,
        cluster: &ObservedCluster,
        sets: &'a BTreeMap<ClusterSetName, ObservedClusterSet>,
    ) -> impl Iterator<Item = &'a ClusterSetName> + use<'a> {
        let exclusive = cluster.exclusive_set().and_then(|set| sets.get_key_value(set));
        let exclusive =
            exclusive.filter(|(_, set)| matches!(set.selector, Ok(ClusterSelector::Exclusive)));
        let by_labels = self.selecting.get(name).into_iter().flatten();
        exclusive.map(|(name, _)| name).into_iter().chain(by_labels).chain(&self.invalid)
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
        for set in self.selecting.remove(name).into_iter().flatten() {
            nested::remove_value(&mut self.selected, &set, name);
        }
        let Some(after) = after else { return };
        if let Some(set) = after.exclusive_set() {
            self.labelled.entry(set.into()).or_default().insert(name.clone());
        }
        for (set, observed) in sets {
            if selects_by_labels(set, observed, after) {
                self.select(set, name);
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
        for cluster in self.selected.remove(name).into_iter().flatten() {
            nested::remove_value(&mut self.selecting, &cluster, name);
        }
        self.invalid.remove(name);
        let Some(set) = set else { return };
        if set.selector.is_err() {
            self.invalid.insert(name.clone());
            return;
        }
        for (cluster, observed) in clusters {
            if selects_by_labels(name, set, observed) {
                self.select(name, cluster);
            }
        }
    }

    fn select(&mut self, set: &ClusterSetName, cluster: &ClusterName) {
        self.selected.entry(set.clone()).or_default().insert(cluster.clone());
        self.selecting.entry(cluster.clone()).or_default().insert(set.clone());
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

/// Whether a set selects a cluster by a label selector.
fn selects_by_labels(
    name: &ClusterSetName,
    set: &ObservedClusterSet,
    cluster: &ObservedCluster,
) -> bool {
    match &set.selector {
        Ok(selector @ ClusterSelector::Labels(_)) => selector.picks(name.as_str(), &cluster.labels),
        Ok(ClusterSelector::Exclusive | ClusterSelector::Nothing) | Err(_) => false,
    }
}
