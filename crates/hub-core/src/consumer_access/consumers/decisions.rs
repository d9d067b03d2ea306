//! The decisions of the Placements that ClusterAccesses refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use hub_api::names::{ClusterName, Namespace};

use super::{Consumer, Consumers};
use crate::consumer_access::decision::DecisionKind;
use crate::known::Known;

/// The decisions of a Placement: the clusters in each PlacementDecision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::consumer_access) struct Decisions {
    slices: BTreeMap<Slice, BTreeSet<ClusterName>>,
    /// In how many slices each cluster is: there is one for each hundred clusters.
    decided: BTreeMap<ClusterName, usize>,
    /// The clusters that no slice has any more, and since when, until [`Consumers::settle_decisions`].
    leaving: BTreeMap<ClusterName, Instant>,
    /// When all were read for the first time. A cluster may be on its way between two slices then, too.
    first_read: Option<Instant>,
    /// Whether that doubt has ended.
    is_settled: bool,
    /// Whether each kind is listed: absent if the hub does not serve it.
    kinds: BTreeMap<DecisionKind, Known<()>>,
    /// The kinds whose watch fails.
    failing: BTreeSet<DecisionKind>,
}

/// A PlacementDecision of a Placement.
type Slice = (DecisionKind, String);

impl Decisions {
    /// Sets or removes a slice, and returns it as it was.
    fn set(
        &mut self,
        slice: Slice,
        clusters: Option<BTreeSet<ClusterName>>,
    ) -> Option<BTreeSet<ClusterName>> {
        for cluster in clusters.iter().flatten() {
            *self.decided.entry(cluster.clone()).or_default() += 1;
        }
        let before = match clusters {
            Some(clusters) => self.slices.insert(slice, clusters),
            None => self.slices.remove(&slice),
        };
        for cluster in before.iter().flatten() {
            if let Some(slices) = self.decided.get_mut(cluster) {
                *slices -= 1;
                if *slices == 0 {
                    self.decided.remove(cluster);
                }
            }
        }
        before
    }

    /// Whether nothing of a kind was read, or found to be unreadable, yet.
    fn are_awaited(&self) -> bool {
        self.kinds.len() < DecisionKind::ALL.len()
    }

    /// Whether all decisions are known.
    pub(in crate::consumer_access) fn are_read(&self) -> bool {
        let is_any = |known| self.kinds.values().any(|kind| *kind == known);
        !self.are_awaited() && is_any(Known::Present(())) && !is_any(Known::Unknown)
    }

    /// Whether there is no PlacementDecision. Open Cluster Management creates one without clusters, too.
    pub(in crate::consumer_access) fn are_missing(&self) -> bool {
        self.slices.is_empty()
    }

    fn have(&self, cluster: &ClusterName) -> bool {
        self.decided.contains_key(cluster)
    }

    /// Those of these clusters that no slice has any more are in doubt from `now` on.
    fn changed<'a>(&mut self, clusters: impl IntoIterator<Item = &'a ClusterName>, now: Instant) {
        for cluster in clusters {
            if self.have(cluster) {
                self.leaving.remove(cluster);
            } else {
                self.leaving.insert(cluster.clone(), now);
            }
        }
    }

    /// The clusters that the Placement has decided for, with those that may be moving.
    pub(in crate::consumer_access) fn clusters(&self) -> BTreeSet<&ClusterName> {
        self.decided.keys().chain(self.leaving.keys()).collect()
    }
}

/// A Placement, by namespace and name.
pub type PlacementName = (Namespace, String);

impl Consumers {
    /// The Placements that the objects in a namespace refer to.
    pub fn placements_in(&self, namespace: &Namespace) -> impl Iterator<Item = PlacementName> {
        let objects = self.names_in(namespace).filter_map(|name| self.object(name));
        objects.filter_map(|object| object.consumer.as_ref().ok()?.placement_name())
    }

    /// Whether the Placement of a consumer has decided for a cluster; `None` if that is unknown.
    pub(in crate::consumer_access) fn is_decided(
        &self,
        consumer: &Consumer,
        cluster: &ClusterName,
    ) -> Option<bool> {
        if consumer.spec.clusters.placement_ref.is_none() {
            return Some(true);
        }
        let decisions = self.decisions(consumer).filter(|decisions| decisions.are_read())?;
        let has_lost = decisions.is_settled && !decisions.leaving.contains_key(cluster);
        if decisions.have(cluster) { Some(true) } else { has_lost.then_some(false) }
    }

    /// Like [`Self::is_decided`]. A cluster that may be moving counts as before.
    pub(in crate::consumer_access) fn counts_as_decided(
        &self,
        consumer: &Consumer,
        cluster: &ClusterName,
    ) -> Option<bool> {
        self.is_decided(consumer, cluster).or_else(|| {
            let decisions = self.decisions(consumer).filter(|decisions| decisions.are_read())?;
            Some(decisions.leaving.contains_key(cluster))
        })
    }

    /// Whether the decisions of the Placement of a consumer were neither read nor found to be unreadable yet.
    #[must_use]
    pub fn awaits_decisions(&self, consumer: &Consumer) -> bool {
        consumer.spec.clusters.placement_ref.is_some()
            && self.decisions(consumer).is_none_or(Decisions::are_awaited)
    }

    /// The decisions of the Placement of a consumer.
    pub(in crate::consumer_access) fn decisions(&self, consumer: &Consumer) -> Option<&Decisions> {
        self.decisions.get(&consumer.placement_name()?)
    }

    /// Records the clusters in one PlacementDecision of a Placement, or that it is gone. Returns those that it adds or
    /// removes; `None` if it is as before. Those that no other one has are in doubt from `now` on.
    pub fn set_decision(
        &mut self,
        placement: &PlacementName,
        (kind, slice): (DecisionKind, &str),
        clusters: Option<BTreeSet<ClusterName>>,
        now: Instant,
    ) -> Option<BTreeSet<ClusterName>> {
        let decisions = self.decisions.entry(placement.clone()).or_default();
        let before = decisions.set((kind, slice.to_owned()), clusters.clone());
        let is_same = before == clusters;
        let (before, after) = (before.unwrap_or_default(), clusters.unwrap_or_default());
        let changed: BTreeSet<_> = before.symmetric_difference(&after).cloned().collect();
        decisions.changed(&changed, now);
        (!is_same).then_some(changed)
    }

    /// Ends the doubt about the clusters that the decisions of a Placement have lost until `lost`. Returns them; `None` if
    /// it ends about all that they never had. It ends about none while a watch fails.
    pub fn settle_decisions(
        &mut self,
        placement: &PlacementName,
        lost: Instant,
    ) -> Option<BTreeSet<ClusterName>> {
        let decisions = self.decisions.get_mut(placement).filter(|it| it.failing.is_empty());
        let Some(decisions) = decisions else { return Some([].into()) };
        let leaving = decisions.leaving.extract_if(.., |_, since| *since <= lost);
        let lost_clusters = leaving.map(|(cluster, _)| cluster).collect();
        let was_settled = decisions.is_settled;
        decisions.is_settled |= decisions.first_read.is_some_and(|read| read <= lost);
        (was_settled == decisions.is_settled).then_some(lost_clusters)
    }

    /// Records whether the decisions of a Placement in one kind are listed: absent if the hub does not serve the kind.
    /// Returns whether this is new. After the first list, what they lack is in doubt from `now` on, and so is what only a
    /// kind had that is not served any more.
    pub fn set_decisions(
        &mut self,
        placement: &PlacementName,
        kind: DecisionKind,
        listed: Known<()>,
        now: Instant,
    ) -> bool {
        let decisions = self.decisions.entry(placement.clone()).or_default();
        let is_gone = |(of, _): &&Slice| *of == kind && listed == Known::Absent;
        let gone: Vec<_> = decisions.slices.keys().filter(is_gone).cloned().collect();
        let gone: Vec<_> =
            gone.into_iter().filter_map(|slice| decisions.set(slice, None)).collect();
        decisions.changed(gone.iter().flatten(), now);
        let is_new = decisions.kinds.insert(kind, listed.clone()) != Some(listed);
        if decisions.are_read() {
            decisions.first_read.get_or_insert(now);
        }
        is_new || !gone.is_empty()
    }

    /// Records whether the watch on the decisions of a Placement in one kind fails. Once it no longer does, every doubt
    /// begins again, unless it begins later: what would have ended it may not have been shown. Returns whether it does.
    pub fn set_failing(
        &mut self,
        placement: &PlacementName,
        kind: DecisionKind,
        is_failing: bool,
        now: Instant,
    ) -> bool {
        let decisions = self.decisions.entry(placement.clone()).or_default();
        // A kind that the hub does not serve has nothing to show.
        if is_failing && decisions.kinds.get(&kind) != Some(&Known::Absent) {
            decisions.failing.insert(kind);
            return false;
        }
        let has_recovered = decisions.failing.remove(&kind);
        if has_recovered {
            decisions.leaving.values_mut().for_each(|since| *since = now.max(*since));
            decisions.first_read = decisions.first_read.map(|_| now);
        }
        has_recovered
    }

    /// Drops what is known of a Placement that no object refers to.
    pub fn forget_decisions(&mut self, placement: &PlacementName) {
        self.decisions.remove(placement);
    }
}
