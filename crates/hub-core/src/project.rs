//! The desired profile of a cluster: a pure function of the ManagedCluster.
//!
//! It depends neither on the current time nor on the current profile; timestamps come from the source. Whatever the
//! ClusterProfile CRD would reject is skipped or made valid, because one invalid claim must not cost a cluster its
//! whole status.

use std::collections::BTreeMap;

use hub_api::cluster_profile::{ClusterVersion, Property};
use hub_api::labels;
use hub_api::managed_cluster::{CONDITION_AVAILABLE, CONDITION_JOINED, ManagedClusterClaim};
use hub_api::names::{
    ClusterName, LABEL_VALUE_MAX_LENGTH, ManagerName, ProfileKey, is_label_value,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::claim_allow_list::ClaimAllowList;
use crate::finding::{Finding, Reason, first_of};
use crate::fleet::{ClusterState, Fleet, ObservedCluster};
use crate::grant::{self, Grant};
use crate::label_allow_list::LabelAllowList;
use crate::member_id::MemberId;
use crate::profile::{Desired, DesiredStatus, Identity, Presence};

/// The profile condition that reports whether the cluster's control plane is available, from [`CONDITION_AVAILABLE`]
/// (KEP-4322, <https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/4322-cluster-inventory>).
pub const CONTROL_PLANE_HEALTHY: &str = "ControlPlaneHealthy";
/// The profile condition that reports whether the cluster has joined the hub, from [`CONDITION_JOINED`] (defined by
/// OCM).
pub const JOINED: &str = "Joined";

/// The reason of a profile condition whose source is missing or has none.
const REASON_UNKNOWN: &str = "Unknown";

// Limits of the ClusterProfile CRD.
const PROPERTY_NAME_MAX_LENGTH: usize = 253;
const PROPERTY_VALUE_MAX_LENGTH: usize = 1024;
const CONDITION_REASON_MAX_LENGTH: usize = 1024;
const CONDITION_MESSAGE_MAX_LENGTH: usize = 32768;

/// Settings of the projection, the same for all profiles.
#[derive(Debug, Clone, Default)]
pub struct ProjectionSettings {
    /// The name of our cluster manager.
    pub manager: ManagerName,
    /// The labels to copy from ManagedClusters to their profiles.
    pub propagated_labels: LabelAllowList,
    /// The claims that profiles show as properties.
    pub propagated_claims: ClaimAllowList,
}

/// Whether a cluster of this name can have a profile: the name becomes a label value.
pub(crate) fn can_have_profile(name: &ClusterName) -> bool {
    is_label_value(name.as_str())
}

/// What the projector desires of the profile at `key`: whether it should exist, by the grant, and its content, from the
/// cluster.
///
/// If the grant is unknown, an existing profile is kept and updated. If the cluster cannot be read, its profiles keep
/// their status, and no new one is created.
#[must_use]
pub fn desired(fleet: &Fleet, key: &ProfileKey, settings: &ProjectionSettings) -> Desired {
    let grant = grant::decide(fleet, key);
    let cluster = fleet.cluster(&key.cluster).filter(|_| can_have_profile(&key.cluster));
    let (Grant::Granted | Grant::Unknown, Some(cluster)) = (grant, cluster) else {
        return Desired { presence: Presence::Unwanted, ..Desired::default() };
    };
    let identity = identity(&key.cluster, cluster, settings);
    match &cluster.state {
        Ok(state) => Desired {
            presence: match grant {
                Grant::Granted => Presence::Wanted(identity),
                _ => Presence::Kept(identity),
            },
            status: status(cluster, state, &settings.propagated_claims),
        },
        Err(_) => Desired { presence: Presence::Kept(identity), ..Desired::default() },
    }
}

/// The metadata and spec of a cluster's profiles.
#[must_use]
pub fn identity(
    name: &ClusterName,
    cluster: &ObservedCluster,
    settings: &ProjectionSettings,
) -> Identity {
    let propagated = &settings.propagated_labels;
    let mut wanted: BTreeMap<String, String> = cluster
        .labels
        .iter()
        .filter(|(key, _)| propagated.allows(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    wanted.insert(labels::CLUSTER_MANAGER.to_owned(), settings.manager.to_string());
    wanted.insert(labels::CLUSTER_NAME.to_owned(), name.to_string());
    if let Some(set) = cluster.exclusive_set() {
        wanted.insert(labels::CLUSTER_SET.to_owned(), set.to_owned());
    }
    let member_id = MemberId::of(name, cluster);
    wanted.insert(labels::MEMBER_ID.to_owned(), member_id.value.clone());
    Identity {
        labels: wanted,
        member_id,
        propagated: propagated.clone(),
        display_name: name.to_string(),
    }
}

/// What the projector desires of a profile's status.
#[must_use]
pub fn status(
    cluster: &ObservedCluster,
    state: &ClusterState,
    claims: &ClaimAllowList,
) -> DesiredStatus {
    let (properties, _) = properties(&state.claims, claims);
    let since = cluster.created.unwrap_or(Timestamp::UNIX_EPOCH);
    DesiredStatus {
        version: Some(ClusterVersion { kubernetes: state.kubernetes_version.clone() }),
        properties: Some(properties),
        conditions: vec![
            condition(CONTROL_PLANE_HEALTHY, CONDITION_AVAILABLE, state.available.as_ref(), since),
            condition(JOINED, CONDITION_JOINED, state.joined.as_ref(), since),
        ],
        ..DesiredStatus::default()
    }
}

/// A profile condition from the cluster's condition. Without one, it is `Unknown` since the creation of the cluster, so
/// that the output is a function of the input.
fn condition(
    kind: &str,
    source_kind: &str,
    source: Option<&Condition>,
    created: Timestamp,
) -> Condition {
    let message = source.map_or_else(
        || format!("The ManagedCluster has no condition {source_kind}"),
        |source| source.message.chars().take(CONDITION_MESSAGE_MAX_LENGTH).collect(),
    );
    Condition {
        type_: kind.to_owned(),
        status: match source.map(|source| source.status.as_str()) {
            Some(known @ ("True" | "False")) => known.to_owned(),
            _ => "Unknown".to_owned(),
        },
        reason: valid_reason(source.map_or("", |source| &source.reason)),
        message,
        last_transition_time: source
            .map_or(Time(created), |source| source.last_transition_time.clone()),
        observed_generation: None,
    }
}

/// Makes a text match the CRD's pattern `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$` with few changes: other characters
/// become `_`.
fn valid_reason(reason: &str) -> String {
    let valid: String = reason
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':') { c } else { '_' })
        .skip_while(|c| !c.is_ascii_alphabetic())
        .take(CONDITION_REASON_MAX_LENGTH)
        .collect();
    let valid = valid.trim_end_matches([',', ':']);
    if valid.is_empty() { REASON_UNKNOWN.to_owned() } else { valid.to_owned() }
}

/// Why a claim is not a valid property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    #[error("the name is empty")]
    EmptyName,
    #[error("the name exceeds {PROPERTY_NAME_MAX_LENGTH} bytes")]
    NameTooLong,
    #[error("the value is empty")]
    EmptyValue,
    #[error("the value exceeds {PROPERTY_VALUE_MAX_LENGTH} bytes")]
    ValueTooLong,
    #[error("an earlier claim has the same name")]
    Repeated,
}

/// Converts the claims that profiles show to properties, sorted by name so that the order of the claims makes no
/// difference. Also returns the names of those that are not valid properties.
fn properties<'a>(
    claims: &'a [ManagedClusterClaim],
    shown: &ClaimAllowList,
) -> (Vec<Property>, Vec<(&'a str, SkipReason)>) {
    let mut properties = BTreeMap::new();
    let mut skipped = Vec::new();
    for ManagedClusterClaim { name, value } in claims.iter().filter(|it| shown.allows(&it.name)) {
        let why = if name.is_empty() {
            SkipReason::EmptyName
        } else if name.len() > PROPERTY_NAME_MAX_LENGTH {
            SkipReason::NameTooLong
        } else if value.is_empty() {
            SkipReason::EmptyValue
        } else if value.len() > PROPERTY_VALUE_MAX_LENGTH {
            SkipReason::ValueTooLong
        } else if properties.contains_key(name) {
            SkipReason::Repeated
        } else {
            properties.insert(name, value);
            continue;
        };
        skipped.push((name.as_str(), why));
    }
    let properties = properties
        .into_iter()
        .map(|(name, value)| Property { name: name.clone(), value: value.clone() })
        .collect();
    (properties, skipped)
}

/// The findings on a cluster that its profiles cannot represent completely.
#[must_use]
pub fn cluster_findings(name: &ClusterName, cluster: &ObservedCluster) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !can_have_profile(name) {
        findings.push(Finding::new(
            Reason::NameTooLong,
            format!(
                "it cannot have a ClusterProfile: its name has {} bytes, and a label value has at \
                 most {LABEL_VALUE_MAX_LENGTH}",
                name.as_str().len(),
            ),
        ));
    }
    findings.extend(cluster.state.as_ref().err().map(|error| Finding::unreadable(error)));
    findings
}

/// One finding on all claims of a cluster that profiles should show, and cannot.
#[must_use]
pub fn claims_finding(claims: &[ManagedClusterClaim], shown: &ClaimAllowList) -> Option<Finding> {
    const SHOWN: usize = 5;
    const SHOWN_NAME_LENGTH: usize = 63;
    let (_, skipped) = properties(claims, shown);
    if skipped.is_empty() {
        return None;
    }
    let named = skipped.iter().map(|(name, why)| {
        let name: String = name.chars().take(SHOWN_NAME_LENGTH).collect();
        format!("{name:?} ({why})")
    });
    Some(Finding::new(
        Reason::ClaimSkipped,
        format!(
            "claims that are not valid properties of a ClusterProfile are skipped: {}",
            first_of(&named.collect::<Vec<_>>(), SHOWN)
        ),
    ))
}

#[cfg(test)]
mod tests {
    use hub_api::managed_cluster::ManagedCluster;
    use serde_json::{Value, json};

    use super::*;

    fn cluster(status: &Value) -> (ObservedCluster, ClusterState) {
        let object: ManagedCluster = serde_json::from_value(json!({
            "metadata": {"name": "c1", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": status,
        }))
        .unwrap();
        let cluster = ObservedCluster::read(Ok(object));
        let state = cluster.state.clone().unwrap();
        (cluster, state)
    }

    fn shown(status: &Value) -> DesiredStatus {
        let (cluster, state) = cluster(status);
        super::status(&cluster, &state, &ClaimAllowList::default())
    }

    #[test]
    fn of_many_skipped_claims_five_are_named_and_the_others_counted() {
        for (count, more) in [(5, ""), (6, " and 1 more"), (9, " and 4 more")] {
            let claims: Vec<_> =
                (0..count).map(|number| json!({ "name": format!("empty-{number}") })).collect();
            let (_, state) = cluster(&json!({ "clusterClaims": claims }));
            let finding = claims_finding(&state.claims, &ClaimAllowList::default()).unwrap();
            assert_eq!(finding.reason, Reason::ClaimSkipped);
            let message = finding.message;
            assert_eq!(message.matches("empty-").count(), 5, "{message}");
            assert!(message.ends_with(&format!("(the value is empty){more}")), "{message}");
        }
    }

    #[test]
    fn claims_that_are_not_propagated_are_no_properties() {
        let (cluster, state) = cluster(&json!({"clusterClaims": [
            {"name": "a.example.com", "value": "1"}, {"name": "b.example.com", "value": "1"}, {"name": "b.empty"},
        ]}));
        for (list, shown, is_skipped) in
            [("", 2, true), ("a.*", 1, false), ("b.*", 1, true), ("c", 0, false)]
        {
            let list = list.parse().unwrap();
            let properties = super::status(&cluster, &state, &list).properties;
            let (shows, finding) =
                (properties.map(|it| it.len()), claims_finding(&state.claims, &list));
            assert_eq!((shows, finding.is_some()), (Some(shown), is_skipped), "{list:?}");
        }
    }

    #[test]
    fn claims_that_the_crd_refuses_are_left_out_and_named() {
        let (name, value) = ("n".repeat(254), "v".repeat(1025));
        let (longest_name, longest_value) = (&name[1..], &value[1..]);
        let claims = [
            ("", "x"),
            (&name, "x"),
            ("a", ""),
            ("b", &value),
            ("c", "1"),
            ("c", "2"),
            (longest_name, longest_value),
        ];
        let claims = claims.map(|(name, value)| ManagedClusterClaim {
            name: name.to_owned(),
            value: value.to_owned(),
        });
        let (properties, skipped) = properties(&claims, &ClaimAllowList::default());
        let kept: Vec<_> = properties.iter().map(|it| (&*it.name, &*it.value)).collect();
        assert_eq!(kept, [("c", "1"), (longest_name, longest_value)]);
        let why: Vec<_> = skipped.iter().map(|(_, why)| *why).collect();
        assert_eq!(
            why,
            [
                SkipReason::EmptyName,
                SkipReason::NameTooLong,
                SkipReason::EmptyValue,
                SkipReason::ValueTooLong,
                SkipReason::Repeated
            ]
        );
        let message = claims_finding(&claims, &ClaimAllowList::default()).unwrap().message;
        assert!(message.contains("\"c\" (an earlier claim has the same name)"), "{message}");
        assert!(message.len() < 1024, "an Event's note has room for 1024 bytes");
    }

    #[test]
    fn a_missing_source_condition_is_unknown_since_the_cluster_was_made() {
        let desired = shown(&json!({}));
        let joined = serde_json::to_value(&desired.conditions[1]).unwrap();
        assert_eq!(joined["type"], "Joined");
        assert_eq!(joined["status"], "Unknown");
        assert_eq!(joined["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn reasons_and_messages_are_made_valid_for_the_crd() {
        for (reason, valid) in [
            ("LeaseExpired", "LeaseExpired"),
            ("", "Unknown"),
            ("404", "Unknown"),
            ("no answer!", "no_answer_"),
            ("_9Lives", "Lives"),
            ("Done:,", "Done"),
            ("Grün", "Gr_n"),
        ] {
            assert_eq!(valid_reason(reason), valid, "{reason:?}");
        }
        assert_eq!(valid_reason(&"x".repeat(2000)).len(), 1024);
        let desired = shown(&json!({"conditions": [
            {"type": "ManagedClusterJoined", "status": "Maybe", "reason": "R", "message": "ü".repeat(40000),
             "lastTransitionTime": "2026-03-04T05:06:07Z"},
        ]}));
        assert_eq!(desired.conditions[1].status, "Unknown");
        assert_eq!(desired.conditions[1].message.chars().count(), 32768);
    }

    #[test]
    fn an_empty_version_is_no_version() {
        for status in [json!({}), json!({"version": {}}), json!({"version": {"kubernetes": ""}})] {
            assert_eq!(shown(&status).version, Some(ClusterVersion::default()), "{status}");
        }
    }
}
