//! Which clusters are granted to which namespaces, and why.
//!
//! A cluster is granted to a namespace if a ManagedClusterSetBinding there has the name of its set and is in effect
//! (`Bound`), the set exists and selects the cluster, and the cluster is accepted (`spec.hubAcceptsClient`) and not being
//! deleted. Several bindings form a union.
//!
//! **Unknown is not empty.** If a selector, a binding or whether the cluster is accepted cannot be read, the grant is
//! unknown, and nothing is created or deleted because of it. It is unknown only where it matters: a cluster that another
//! binding grants is granted, and one that a readable part excludes is refused. While a kind cannot be
//! read ([`Fleet::set_read`]), nothing is granted: what was granted is unknown, and ends only by what the other kinds show.

use std::collections::BTreeSet;

use hub_api::names::{ClusterName, ClusterSetName, Namespace, ProfileKey};
use strum::{IntoStaticStr, VariantArray};

use crate::effort;
use crate::fleet::{BoundSource, Fleet, ObservedBinding, ObservedCluster};

/// Whether a namespace may see a cluster. Of several grants, the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grant {
    /// Every binding refuses it, or there is none.
    Refused,
    /// No binding grants it, and at least one cannot be evaluated.
    Unknown,
    /// At least one binding grants it.
    Granted,
}

/// The decision of one binding about one cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Verdict {
    #[error("the binding grants the cluster")]
    Granted,
    #[error("{0}")]
    Refused(Refusal),
    /// The binding cannot be evaluated.
    #[error("{0}")]
    Doubtful(Doubt),
}

/// Why a binding does not grant a cluster. The names are codes of `explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantArray)]
#[strum(const_into_str)]
pub enum Refusal {
    #[error("the hub has no such ManagedCluster")]
    NoSuchCluster,
    #[error("the ManagedCluster is being deleted")]
    ClusterDeleting,
    #[error("the hub does not accept the ManagedCluster")]
    ClusterNotAccepted,
    #[error("the binding's name is not the name of its set")]
    BindingNameMismatch,
    #[error("the binding is not Bound")]
    NotBound,
    #[error("the hub has no such ManagedClusterSet")]
    NoSuchSet,
    #[error("the set does not select the cluster")]
    NotSelected,
}

/// Why a binding cannot be evaluated, with the code of `explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantArray)]
#[strum(const_into_str)]
pub enum Doubt {
    #[strum(serialize = "Unreadable")]
    #[error("the binding cannot be read")]
    BindingUnreadable,
    #[strum(serialize = "InvalidSelector")]
    #[error("the set's selector cannot be used")]
    SelectorUnusable,
    #[strum(serialize = "Unreadable")]
    #[error("whether the hub accepts the ManagedCluster cannot be read")]
    ClusterUnreadable,
}

impl Verdict {
    pub fn all() -> impl Iterator<Item = Self> {
        let refused = Refusal::VARIANTS.iter().copied().map(Self::Refused);
        let doubtful = Doubt::VARIANTS.iter().copied().map(Self::Doubtful);
        [Self::Granted].into_iter().chain(refused).chain(doubtful)
    }
}

/// Decides whether `key.namespace` may see `key.cluster`.
#[must_use]
pub fn decide(fleet: &Fleet, key: &ProfileKey) -> Grant {
    effort::count(|spent| spent.decisions += 1);
    verdicts(fleet, key).fold(Grant::Refused, |grant, (_, verdict)| match (grant, verdict) {
        (_, Verdict::Granted) if !fleet.is_read() => Grant::Unknown,
        // Either side of the selection may have changed with the other.
        (_, Verdict::Refused(Refusal::NotSelected)) if !fleet.knows_selections() => Grant::Unknown,
        (Grant::Granted, _) | (_, Verdict::Granted) => Grant::Granted,
        (Grant::Unknown, _) | (_, Verdict::Doubtful(_)) => Grant::Unknown,
        (Grant::Refused, Verdict::Refused(_)) => Grant::Refused,
    })
}

/// Whether `namespace` is granted `cluster`, or may be.
#[must_use]
pub fn is_possible(fleet: &Fleet, namespace: &Namespace, cluster: &ClusterName) -> bool {
    let key = cluster.in_namespace(namespace);
    decide(fleet, &key) != Grant::Refused
}

/// The namespaces that are granted a cluster, or may be. Visits no others, and each once, however many sets select the
/// cluster.
pub fn namespaces_of<'a>(
    fleet: &'a Fleet,
    cluster: &ClusterName,
) -> impl Iterator<Item = &'a Namespace> {
    let candidates: BTreeSet<_> = fleet.candidates_for(cluster).collect();
    candidates.into_iter().filter(|namespace| is_possible(fleet, namespace, cluster))
}

/// Whether a namespace is one of [`namespaces_of`] a cluster. Visits no others. Where only a kind that cannot be read
/// makes a grant unknown, it is none: no change of the fleet would visit it again.
#[must_use]
pub fn is_among(fleet: &Fleet, namespace: &Namespace, cluster: &ClusterName) -> bool {
    fleet.is_candidate(namespace, cluster) && is_possible(fleet, namespace, cluster)
}

/// Whether any namespace is granted a cluster, or may be.
#[must_use]
pub fn is_anywhere(fleet: &Fleet, cluster: &ClusterName) -> bool {
    fleet.candidates_for(cluster).any(|namespace| is_possible(fleet, namespace, cluster))
}

/// The decision of each binding of the namespace about the cluster.
pub fn verdicts<'a>(
    fleet: &'a Fleet,
    key: &'a ProfileKey,
) -> impl Iterator<Item = (&'a ClusterSetName, Verdict)> {
    let cluster = fleet.cluster(&key.cluster);
    fleet
        .bindings_in(&key.namespace)
        .map(move |(name, binding)| (name, judge(fleet, name, binding, cluster)))
}

/// Whether any binding of a namespace is in effect, or may be: a precondition for any grant.
#[must_use]
pub fn is_bound(fleet: &Fleet, namespace: &Namespace) -> bool {
    fleet.bindings_in(namespace).any(|(name, binding)| refusal(fleet, name, binding).is_none())
}

/// Why a binding grants no cluster at all, if so.
pub(crate) fn refusal(
    fleet: &Fleet,
    name: &ClusterSetName,
    binding: &ObservedBinding,
) -> Option<Refusal> {
    if let Ok(terms) = &binding.terms {
        if terms.cluster_set != *name {
            return Some(Refusal::BindingNameMismatch);
        }
        if !terms.bound && fleet.bound_source() == BoundSource::Status {
            return Some(Refusal::NotBound);
        }
    }
    fleet.set(name).is_none().then_some(Refusal::NoSuchSet)
}

/// Evaluates readable conditions first: one that refuses makes the unreadable ones irrelevant.
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
    if cluster.accepted == Some(false) {
        return Verdict::Refused(Refusal::ClusterNotAccepted);
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
        Ok(_) if cluster.accepted.is_none() => Verdict::Doubtful(Doubt::ClusterUnreadable),
        Ok(_) => Verdict::Granted,
    }
}
