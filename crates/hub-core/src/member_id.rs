//! The member ID: the label by which profiles that represent the same member cluster are correlated (KEP-4322).
//!
//! It is the ManagedCluster's own label of that key, or the cluster's name where that label is absent or empty, and it
//! stays unchanged while the profile represents the same cluster. A value on the profile that differs from the one of
//! today is therefore either the cluster's earlier ID, which is kept and reported, or drift, which is repaired.
//! [`MemberId::decide`] tells them apart by what the API server itself records, so that the decision is the same after
//! a restart:
//!
//! | the profile's value | is | because |
//! |---|---|---|
//! | absent or empty | drift | KEP-4322 forbids an empty one |
//! | last set by another field manager than the profile's cluster manager or other labels | drift | `metadata.managedFields` names who set which field |
//! | set before the ManagedCluster was created | of another cluster | the profile is older than the cluster that has its name now |
//! | anything else that differs | the earlier ID | this project set it, or nothing shows who did (a restored backup, OCM's own projector) |
//!
//! A value that was edited by hand is repaired to the ID of today, also where the cluster's label changed before: the
//! earlier ID is recorded nowhere else.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::labels;
use hub_api::names::{ClusterName, Namespace, ProfileKey};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::fleet::ObservedCluster;
use crate::note::{Note, Reason};

/// The field manager of what is written to profiles: the API server's own record of who set which label. It is a
/// contract with the profiles that exist.
pub const FIELD_MANAGER: &str = "hub-addons";

/// How many clusters with the same ID a finding names.
const SHOWN: usize = 5;

/// The member ID that a cluster's profiles should carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberId {
    /// The ManagedCluster's own, or its name.
    pub value: String,
    /// `metadata.creationTimestamp` of the ManagedCluster.
    pub since: Option<Timestamp>,
    /// Whether profiles follow a change of the ManagedCluster's label.
    pub follow: bool,
}

/// What the API server records of the member ID that a profile carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberIdRecord {
    /// Whether this project created or labelled the profile, and another field manager set the member ID.
    pub is_foreign: bool,
    /// `metadata.creationTimestamp` of the profile.
    pub since: Option<Timestamp>,
}

/// What becomes of the member ID that a profile carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberIdDecision {
    /// The profile carries the ID of today, or gets it.
    Apply,
    /// The profile keeps the ID that it has, which differs.
    Keep,
}

impl MemberId {
    /// The member ID of a cluster.
    #[must_use]
    pub fn of(name: &ClusterName, cluster: &ObservedCluster, follow: bool) -> Self {
        let own = cluster.labels.get(labels::MEMBER_ID).filter(|id| !id.is_empty());
        let value = own.cloned().unwrap_or_else(|| name.to_string());
        Self { value, since: cluster.created, follow }
    }

    /// Decides about a profile that carries `shown`.
    #[must_use]
    pub fn decide(&self, shown: Option<&str>, record: MemberIdRecord) -> MemberIdDecision {
        let Some(shown) = shown.filter(|shown| !shown.is_empty()) else { return MemberIdDecision::Apply };
        let is_of_another_cluster =
            self.since.zip(record.since).is_some_and(|(cluster, profile)| profile < cluster);
        if shown == self.value || self.follow || record.is_foreign || is_of_another_cluster {
            MemberIdDecision::Apply
        } else {
            MemberIdDecision::Keep
        }
    }

    /// What to report of a profile that carries `shown`.
    pub(crate) fn note(&self, shown: Option<&str>, record: MemberIdRecord) -> Option<Note> {
        (self.decide(shown, record) == MemberIdDecision::Keep).then(|| {
            Note::new(
                Reason::MemberIdChanged,
                format!(
                    "keeps the member ID {:?} although its ManagedCluster has {:?} now: an ID stays unchanged while \
                     a profile represents the same cluster (--follow-member-id applies the change)",
                    shown.unwrap_or_default(),
                    self.value
                ),
            )
        })
    }
}

impl MemberIdRecord {
    /// Reads the record of a ClusterProfile.
    #[must_use]
    pub fn read(metadata: &ObjectMeta) -> Self {
        let sets = |is_ours: bool, pointer: &str| {
            metadata.managed_fields.iter().flatten().any(|entry| {
                (entry.manager.as_deref() == Some(FIELD_MANAGER)) == is_ours
                    && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer(pointer).is_some())
            })
        };
        // "~1" is a slash in a JSON pointer.
        let label = |key: &str| format!("/f:metadata/f:labels/f:{}", key.replace('/', "~1"));
        let member_id = label(labels::MEMBER_ID);
        Self {
            is_foreign: (sets(true, &label(labels::CLUSTER_NAME)) || sets(true, "/f:spec/f:clusterManager"))
                && sets(false, &member_id)
                && !sets(true, &member_id),
            since: metadata.creation_timestamp.as_ref().map(|time| time.0),
        }
    }
}

/// Which profiles carry which member ID, namespace by namespace: an inventory is a namespace, and in one inventory two
/// clusters have different IDs.
#[derive(Debug, Default)]
pub struct MemberIds {
    ids: BTreeMap<ProfileKey, String>,
    clusters: BTreeMap<Namespace, BTreeMap<String, BTreeSet<ClusterName>>>,
}

impl MemberIds {
    /// Takes in the ID that a profile carries now, if there is a profile. Returns the profiles that may have another
    /// [finding](Self::note) now.
    pub fn set(&mut self, key: &ProfileKey, id: Option<&str>) -> BTreeSet<ProfileKey> {
        let id = id.filter(|id| !id.is_empty());
        if self.ids.get(key).map(String::as_str) == id {
            return BTreeSet::new();
        }
        let mut others = BTreeSet::new();
        let ids = self.clusters.entry(key.namespace.clone()).or_default();
        if let Some(before) = self.ids.remove(key)
            && let Some(clusters) = ids.get_mut(&before)
        {
            clusters.remove(&key.cluster);
            others.extend(clusters.iter().cloned());
            if clusters.is_empty() {
                ids.remove(&before);
            }
        }
        if let Some(id) = id {
            let clusters = ids.entry(id.to_owned()).or_default();
            others.extend(clusters.iter().cloned());
            clusters.insert(key.cluster.clone());
            self.ids.insert(key.clone(), id.to_owned());
        }
        if ids.is_empty() {
            self.clusters.remove(&key.namespace);
        }
        if others.is_empty() {
            return BTreeSet::new();
        }
        others.insert(key.cluster.clone());
        let key = |cluster| ProfileKey { namespace: key.namespace.clone(), cluster };
        others.into_iter().map(key).collect()
    }

    /// What to report of a profile.
    #[must_use]
    pub fn note(&self, key: &ProfileKey) -> Option<Note> {
        let id = self.ids.get(key)?;
        let clusters = self.clusters.get(&key.namespace)?.get(id)?;
        let others: Vec<_> = clusters.iter().filter(|cluster| **cluster != key.cluster).collect();
        if others.is_empty() {
            return None;
        }
        let mut shown: Vec<_> = others.iter().take(SHOWN).map(ToString::to_string).collect();
        if others.len() > SHOWN {
            shown.push(format!("{} more", others.len() - SHOWN));
        }
        Some(Note::new(
            Reason::MemberIdShared,
            format!(
                "has the member ID {id:?}, which profiles of other clusters in this namespace have too: {}; label one \
                 of the ManagedClusters with an {} of its own and delete its profile",
                shown.join(", "),
                labels::MEMBER_ID
            ),
        ))
    }
}
