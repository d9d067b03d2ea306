//! The index of the hub's clusters, sets and bindings.
//!
//! Objects are applied as they arrive; every change returns which decisions it may affect. The index keeps only the
//! fields that decisions read, and a change of any other field returns [`Touched::Nothing`].
//!
//! An object that does not match the schema of its kind is *unreadable*, which is not the same as absent: its metadata
//! still counts, and what depends on the rest is unknown (see [`crate::grant`]). So is a whole kind that can no longer be
//! read ([`Fleet::set_read`]).

mod candidates;
mod objects;

use std::collections::{BTreeMap, BTreeSet};

use hub_api::labels;
use hub_api::names::{ClusterName, ClusterSetName, Namespace};

use self::candidates::Candidates;
pub use self::objects::{
    BindingTerms, ClusterState, ObservedBinding, ObservedCluster, ObservedClusterSet,
};
use crate::nested;

/// The name of the ManagedCluster that is the hub itself, by convention of Open Cluster Management.
const LOCAL_CLUSTER: &str = "local-cluster";

/// The claim with the ID of a cluster: the uid of its namespace kube-system.
const CLUSTER_ID: &str = "id.k8s.io";

/// How to determine whether a binding is in effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BoundSource {
    /// By the condition that OCM's registration controller writes.
    #[default]
    Status,
    /// Without OCM: a binding is in effect if its set exists, which is OCM's own rule.
    Computed,
}

/// A kind of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Clusters,
    Sets,
    Bindings,
}

/// The decisions that a change may affect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    Nothing,
    /// What the profiles of one cluster show, and no grant: a version, a claim or a condition.
    Report(ClusterName),
    /// Decisions about one cluster, in every namespace.
    Cluster(ClusterName),
    /// Decisions about every cluster, in these namespaces.
    Namespaces(BTreeSet<Namespace>),
}

/// The index of clusters, sets and bindings.
#[derive(Debug, Default)]
pub struct Fleet {
    bound_source: BoundSource,
    hub_id: Option<String>,
    /// The kinds that cannot be read.
    unread: BTreeSet<Part>,
    clusters: BTreeMap<ClusterName, ObservedCluster>,
    sets: BTreeMap<ClusterSetName, ObservedClusterSet>,
    bindings: BTreeMap<Namespace, BTreeMap<ClusterSetName, ObservedBinding>>,
    candidates: Candidates,
}

impl Fleet {
    #[must_use]
    pub fn new(bound_source: BoundSource) -> Self {
        Self { bound_source, ..Self::default() }
    }

    /// How to determine whether bindings are in effect.
    #[must_use]
    pub fn bound_source(&self) -> BoundSource {
        self.bound_source
    }

    /// Records whether a kind can be read: what is known of it is out of date if not.
    pub fn set_read(&mut self, part: Part, is_read: bool) -> Touched {
        let is_changed = if is_read { self.unread.remove(&part) } else { self.unread.insert(part) };
        if !is_changed {
            return Touched::Nothing;
        }
        Touched::Namespaces(self.bindings.keys().cloned().collect())
    }

    /// Whether every kind can be read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.unread.is_empty()
    }

    /// Whether clusters can be read.
    pub(crate) fn knows_clusters(&self) -> bool {
        !self.unread.contains(&Part::Clusters)
    }

    /// Whether clusters and sets can be read, so that it is known which set selects which cluster.
    pub(crate) fn knows_selections(&self) -> bool {
        self.knows_clusters() && !self.unread.contains(&Part::Sets)
    }

    /// Records the ID of the hub: the uid of its namespace kube-system.
    pub fn set_hub_id(&mut self, id: Option<String>) -> Touched {
        if self.hub_id == id {
            return Touched::Nothing;
        }
        self.hub_id = id;
        Touched::Namespaces(self.bindings.keys().cloned().collect())
    }

    /// Whether a managed cluster is the hub itself: by the name that Open Cluster Management gives it, by the label
    /// that Advanced Cluster Management sets whatever its name is, or by the ID of the hub
    /// ([KEP-2149](https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/2149-clusterid)).
    #[must_use]
    pub fn is_hub(&self, name: &ClusterName) -> bool {
        let is_it = |cluster: &ObservedCluster| {
            let is_labelled =
                cluster.labels.get(labels::LOCAL_CLUSTER).is_some_and(|it| it == labels::TRUE);
            is_labelled
                || self.hub_id.as_deref().is_some_and(|id| cluster.has_claim(CLUSTER_ID, id))
        };
        name.as_str() == LOCAL_CLUSTER || self.cluster(name).is_some_and(is_it)
    }

    #[must_use]
    pub fn cluster(&self, name: &ClusterName) -> Option<&ObservedCluster> {
        self.clusters.get(name)
    }

    /// Every cluster's name, in order.
    pub fn cluster_names(&self) -> impl Iterator<Item = &ClusterName> {
        self.clusters.keys()
    }

    /// Every set's name, in order.
    pub fn set_names(&self) -> impl Iterator<Item = &ClusterSetName> {
        self.sets.keys()
    }

    #[must_use]
    pub fn set(&self, name: &ClusterSetName) -> Option<&ObservedClusterSet> {
        self.sets.get(name)
    }

    /// The bindings of a namespace, by name.
    pub fn bindings_in(
        &self,
        namespace: &Namespace,
    ) -> impl Iterator<Item = (&ClusterSetName, &ObservedBinding)> {
        self.bindings.get(namespace).into_iter().flatten()
    }

    /// Every namespace that has a binding, in order.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.bindings.keys()
    }

    /// A superset of the clusters that are granted to a namespace, by names and selectors only. A cluster that several
    /// bindings select occurs several times.
    pub(crate) fn candidates_in(
        &self,
        namespace: &Namespace,
    ) -> impl Iterator<Item = &ClusterName> {
        self.bindings_in(namespace).flat_map(|(name, _)| {
            let members =
                self.set(name).map(|set| self.candidates.members(name, set, &self.clusters));
            members.into_iter().flatten()
        })
    }

    /// A superset of the namespaces that are granted a cluster, by names and selectors only. A namespace in which
    /// several bindings select the cluster occurs several times.
    pub fn candidates_for(&self, cluster: &ClusterName) -> impl Iterator<Item = &Namespace> {
        self.selecting(cluster).flat_map(|set| self.candidates.bound(set))
    }

    /// Whether [`Self::candidates_for`] a cluster include a namespace. Visits no others.
    pub(crate) fn is_candidate(&self, namespace: &Namespace, cluster: &ClusterName) -> bool {
        self.selecting(cluster).any(|set| self.candidates.is_bound(set, namespace))
    }

    /// The sets that select a cluster, or may select it.
    fn selecting(&self, cluster: &ClusterName) -> impl Iterator<Item = &ClusterSetName> {
        let observed = self.cluster(cluster);
        let selecting =
            observed.map(|observed| self.candidates.selecting(cluster, observed, &self.sets));
        selecting.into_iter().flatten()
    }

    /// Adds or replaces a ManagedCluster.
    pub fn apply_cluster(&mut self, name: ClusterName, cluster: ObservedCluster) -> Touched {
        if self.clusters.get(&name) == Some(&cluster) {
            return Touched::Nothing;
        }
        let was_hub = self.is_hub(&name);
        let before = self.clusters.insert(name.clone(), cluster);
        self.candidates.cluster_changed(
            &name,
            before.as_ref(),
            self.clusters.get(&name),
            &self.sets,
        );
        let after = self.clusters.get(&name);
        let is_report =
            before.zip(after).is_some_and(|(before, after)| before.is_granted_like(after))
                && was_hub == self.is_hub(&name);
        if is_report { Touched::Report(name) } else { Touched::Cluster(name) }
    }

    pub fn delete_cluster(&mut self, name: &ClusterName) -> Touched {
        let Some(before) = self.clusters.remove(name) else { return Touched::Nothing };
        self.candidates.cluster_changed(name, Some(&before), None, &self.sets);
        Touched::Cluster(name.clone())
    }

    /// Adds or replaces a ManagedClusterSet.
    pub fn apply_set(&mut self, name: ClusterSetName, set: ObservedClusterSet) -> Touched {
        if self.sets.get(&name) == Some(&set) {
            return Touched::Nothing;
        }
        let touched = self.namespaces_bound_to(&name);
        self.candidates.set_changed(&name, Some(&set), &self.clusters);
        self.sets.insert(name, set);
        touched
    }

    pub fn delete_set(&mut self, name: &ClusterSetName) -> Touched {
        if self.sets.remove(name).is_none() {
            return Touched::Nothing;
        }
        self.candidates.set_changed(name, None, &self.clusters);
        self.namespaces_bound_to(name)
    }

    /// Adds or replaces a ManagedClusterSetBinding.
    pub fn apply_binding(
        &mut self,
        namespace: Namespace,
        name: ClusterSetName,
        binding: ObservedBinding,
    ) -> Touched {
        let bindings = self.bindings.entry(namespace.clone()).or_default();
        if bindings.get(&name) == Some(&binding) {
            return Touched::Nothing;
        }
        self.candidates.bind(&namespace, &name);
        bindings.insert(name, binding);
        Touched::Namespaces(BTreeSet::from([namespace]))
    }

    pub fn delete_binding(&mut self, namespace: &Namespace, name: &ClusterSetName) -> Touched {
        if nested::remove(&mut self.bindings, namespace, name).is_none() {
            return Touched::Nothing;
        }
        self.candidates.unbind(namespace, name);
        Touched::Namespaces(BTreeSet::from([namespace.clone()]))
    }

    fn namespaces_bound_to(&self, set: &ClusterSetName) -> Touched {
        let namespaces: BTreeSet<_> = self.candidates.bound(set).cloned().collect();
        if namespaces.is_empty() { Touched::Nothing } else { Touched::Namespaces(namespaces) }
    }
}
