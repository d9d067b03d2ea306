//! `PlacementDecision`: which clusters a Placement has decided for.

use std::collections::BTreeSet;

use hub_api::names::{ApiKind, ClusterName};
use serde_json::Value;

/// The kinds of objects with decisions of Placements. Where the hub serves both, a decision of either counts: Open Cluster
/// Management copies its own to those of SIG Multicluster, which other schedulers can write, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecisionKind {
    /// `cluster.open-cluster-management.io/v1beta1`.
    Ocm,
    /// `multicluster.x-k8s.io`, in each version that a hub may serve: one that serves several shows each object in all.
    SigV1alpha1,
    SigV1alpha2,
}

impl DecisionKind {
    pub const ALL: [Self; 3] = [Self::Ocm, Self::SigV1alpha1, Self::SigV1alpha2];

    /// The kind of the API.
    #[must_use]
    pub fn api(self) -> ApiKind {
        let (group, version) = match self {
            Self::Ocm => ("cluster.open-cluster-management.io", "v1beta1"),
            Self::SigV1alpha1 => ("multicluster.x-k8s.io", "v1alpha1"),
            Self::SigV1alpha2 => ("multicluster.x-k8s.io", "v1alpha2"),
        };
        ApiKind::new(group, version, "PlacementDecision", "placementdecisions")
    }

    /// The selector of the objects of a Placement.
    #[must_use]
    pub fn selector(self, placement: &str) -> String {
        let label = match self {
            Self::Ocm => "cluster.open-cluster-management.io/placement",
            Self::SigV1alpha1 | Self::SigV1alpha2 => "multicluster.x-k8s.io/placement-key",
        };
        format!("{label}={placement}")
    }

    /// The clusters in an object of this kind in a namespace. A decision of SIG Multicluster is about a ClusterProfile,
    /// which has the name of its cluster.
    #[must_use]
    pub fn clusters(self, namespace: &str, object: &Value) -> BTreeSet<ClusterName> {
        let decisions = match self {
            Self::Ocm => &object["status"]["decisions"],
            Self::SigV1alpha1 | Self::SigV1alpha2 => &object["decisions"],
        };
        let name = |decision: &Value| {
            let name = match self {
                Self::Ocm => &decision["clusterName"],
                Self::SigV1alpha1 | Self::SigV1alpha2 => {
                    let profile = &decision["clusterProfileRef"];
                    let of = profile["namespace"].as_str().unwrap_or_default();
                    if of.is_empty() || of == namespace { &profile["name"] } else { &Value::Null }
                }
            };
            name.as_str().filter(|name| !name.is_empty()).map(ClusterName::from)
        };
        decisions.as_array().into_iter().flatten().filter_map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_decision_of_either_kind_is_about_a_cluster_of_its_namespace() {
        let of_ocm =
            json!({ "status": { "decisions": [{ "clusterName": "c1" }, { "clusterName": "" }] } });
        let profiles = [
            json!({ "name": "c1", "namespace": "team" }),
            json!({ "name": "c2" }),
            json!({ "name": "c3", "namespace": "elsewhere" }),
        ];
        let of_sig = json!({ "decisions": profiles.map(|it| json!({ "clusterProfileRef": it })) });
        for (kind, object, expected) in [
            (DecisionKind::Ocm, &of_ocm, &["c1"][..]),
            (DecisionKind::SigV1alpha1, &of_sig, &["c1", "c2"]),
            (DecisionKind::SigV1alpha2, &of_sig, &["c1", "c2"]),
            (DecisionKind::Ocm, &of_sig, &[]),
            (DecisionKind::SigV1alpha2, &of_ocm, &[]),
        ] {
            let clusters = kind.clusters("team", object);
            assert!(
                clusters.iter().map(ClusterName::as_str).eq(expected.iter().copied()),
                "{kind:?}"
            );
        }
    }
}
