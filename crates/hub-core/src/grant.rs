//! Which cluster belongs in which namespace, and why.
//!
//! A cluster is granted to a namespace when a ManagedClusterSetBinding there carries the name of the set it
//! binds, is in force (`Bound`), the set exists and picks the cluster, and the cluster is not being deleted.
//! Several bindings make a union.
//!
//! **Unknown is not empty.** A selector that does not parse or a binding that cannot be read leaves the
//! answer open, and an open answer neither adds nor takes away. It is open only where it matters: a cluster
//! that another binding grants is granted, and one that a readable part already rules out is refused.

use std::fmt;

use hub_api::names::{ClusterSetName, Namespace, ProfileKey};

use crate::fleet::{BoundSource, Fleet, ObservedBinding, ObservedCluster};

/// Whether a namespace may see a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// At least one binding grants it.
    Granted,
    /// Every binding refuses it, or there is none.
    Refused,
    /// No binding grants it, and at least one cannot be judged.
    Unknown,
}

/// What one binding says about one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The binding grants the cluster.
    Granted,
    /// The binding does not grant it.
    Refused(Refusal),
    /// The binding cannot be judged.
    Doubtful(Doubt),
}

/// Why a binding does not grant a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The hub has no such cluster.
    NoSuchCluster,
    /// The cluster has a deletionTimestamp.
    ClusterDeleting,
    /// The binding's name is not the name of the set it binds.
    NameMismatch,
    /// The binding's condition `Bound` is not True.
    NotBound,
    /// The hub has no such set.
    NoSuchSet,
    /// The set's selector does not pick the cluster.
    NotSelected,
}

/// Why a binding cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The binding does not have the shape of its kind.
    BindingUnreadable,
    /// The set's selector cannot be used.
    SelectorUnusable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Granted => "granted",
            Self::Refused(Refusal::NoSuchCluster) => "the hub has no such ManagedCluster",
            Self::Refused(Refusal::ClusterDeleting) => "the ManagedCluster is being deleted",
            Self::Refused(Refusal::NameMismatch) => "the binding's name is not the name of its set",
            Self::Refused(Refusal::NotBound) => "the binding is not Bound",
            Self::Refused(Refusal::NoSuchSet) => "the hub has no such ManagedClusterSet",
            Self::Refused(Refusal::NotSelected) => "the set does not select the cluster",
            Self::Doubtful(Doubt::BindingUnreadable) => "the binding cannot be read",
            Self::Doubtful(Doubt::SelectorUnusable) => "the set's selector cannot be used",
        })
    }
}

/// Decides whether `key.namespace` may see `key.cluster`.
#[must_use]
pub fn decide(fleet: &Fleet, key: &ProfileKey) -> Grant {
    verdicts(fleet, key).fold(Grant::Refused, |grant, (_, verdict)| match (grant, verdict) {
        (Grant::Granted, _) | (_, Verdict::Granted) => Grant::Granted,
        (Grant::Unknown, _) | (_, Verdict::Doubtful(_)) => Grant::Unknown,
        (Grant::Refused, Verdict::Refused(_)) => Grant::Refused,
    })
}

/// What each binding of the namespace says about the cluster: the decision, explained.
pub fn verdicts<'a>(
    fleet: &'a Fleet,
    key: &'a ProfileKey,
) -> impl Iterator<Item = (&'a ClusterSetName, Verdict)> {
    let cluster = fleet.cluster(&key.cluster);
    fleet.bindings_in(&key.namespace).map(move |(name, binding)| (name, judge(fleet, name, binding, cluster)))
}

/// Whether any binding of a namespace is in force, or may be: only then a cluster can be granted to it.
#[must_use]
pub fn is_bound(fleet: &Fleet, namespace: &Namespace) -> bool {
    fleet.bindings_in(namespace).any(|(name, binding)| refusal(fleet, name, binding).is_none())
}

/// Why a binding grants nothing, whatever the cluster.
pub(crate) fn refusal(fleet: &Fleet, name: &ClusterSetName, binding: &ObservedBinding) -> Option<Refusal> {
    if let Ok(terms) = &binding.terms {
        if terms.cluster_set != *name {
            return Some(Refusal::NameMismatch);
        }
        if !terms.bound && fleet.bound_source() == BoundSource::Status {
            return Some(Refusal::NotBound);
        }
    }
    fleet.set(name).is_none().then_some(Refusal::NoSuchSet)
}

/// Every condition that can be read is asked before a doubt is: one clear "no" makes the rest immaterial.
fn judge(
    fleet: &Fleet,
    name: &ClusterSetName,
    binding: &ObservedBinding,
    cluster: Option<&ObservedCluster>,
) -> Verdict {
    let Some(cluster) = cluster else { return Verdict::Refused(Refusal::NoSuchCluster) };
    if cluster.deleting {
        return Verdict::Refused(Refusal::ClusterDeleting);
    }
    if let Some(refusal) = refusal(fleet, name, binding) {
        return Verdict::Refused(refusal);
    }
    let Some(set) = fleet.set(name) else { return Verdict::Refused(Refusal::NoSuchSet) };
    match &set.selector {
        Ok(selector) if !selector.picks(name.as_str(), &cluster.labels) => {
            Verdict::Refused(Refusal::NotSelected)
        }
        Err(_) => Verdict::Doubtful(Doubt::SelectorUnusable),
        Ok(_) if binding.terms.is_err() => Verdict::Doubtful(Doubt::BindingUnreadable),
        Ok(_) => Verdict::Granted,
    }
}
