//! The member ID: the label that correlates profiles of the same member cluster (KEP-4322,
//! <https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/4322-cluster-inventory>).
//!
//! It is the ManagedCluster's own label of that key, or the cluster's name if that label is absent or empty, and it
//! does not change while the profile represents the same cluster. A different value on the profile is therefore either
//! the cluster's earlier ID, which is kept and reported, or drift, which is repaired. [`MemberId::keeps`]
//! distinguishes them by what the API server records, so that the decision is the same after a restart:
//!
//! | the profile's value | is | because |
//! |---|---|---|
//! | absent or empty | drift | KEP-4322 does not allow an empty one |
//! | owned by another field manager, on a profile whose cluster-name label or cluster manager this project set | drift | `metadata.managedFields` records the manager of each field |
//! | on a profile that was created before the ManagedCluster | of another cluster | the profile is older than the current cluster of that name |
//! | any other different value | the earlier ID | this project set it, or the manager is not recorded (a restored backup, OCM's own projector) |
//!
//! A manually edited value is repaired to the current ID, even if the cluster's label changed before: the earlier ID is
//! not recorded anywhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use hub_api::labels;
use hub_api::names::{ClusterName, Namespace, ProfileKey};
use hub_api::text::Text;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::finding::{Finding, Reason, first_of};
use crate::fleet::ObservedCluster;
use crate::nested;

// JSON pointers to our labels in the fields of a manager.
static CLUSTER_NAME_FIELD: LazyLock<String> = LazyLock::new(|| pointer(labels::CLUSTER_NAME));
static MEMBER_ID_FIELD: LazyLock<String> = LazyLock::new(|| pointer(labels::MEMBER_ID));

fn pointer(key: &str) -> String {
    // "~1" is a slash in a JSON pointer.
    format!("/f:metadata/f:labels/f:{}", key.replace('/', "~1"))
}

/// The field manager of writes to profiles, by which the API server records who set which label. It must not change,
/// since `metadata.managedFields` of existing profiles contains it.
pub const FIELD_MANAGER: &str = "hub-addons";

/// How many clusters with the same ID a finding lists.
const SHOWN: usize = 5;

/// The desired member ID of a cluster's profiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberId {
    /// The ManagedCluster's label, or its name.
    pub value: String,
    /// `metadata.creationTimestamp` of the ManagedCluster.
    pub since: Option<Timestamp>,
}

/// What the API server records about the member ID of a profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberIdRecord {
    /// Whether this project created or labelled the profile, and another field manager set the member ID.
    pub is_foreign: bool,
    /// `metadata.creationTimestamp` of the profile.
    pub since: Option<Timestamp>,
}

impl MemberId {
    /// The member ID of a cluster.
    #[must_use]
    pub fn of(name: &ClusterName, cluster: &ObservedCluster) -> Self {
        let own = cluster.labels.get(labels::MEMBER_ID).filter(|id| !id.is_empty());
        let value = own.cloned().unwrap_or_else(|| name.to_string());
        Self { value, since: cluster.created }
    }

    /// Whether a profile keeps the member ID `shown` although it is not the current one.
    #[must_use]
    pub fn keeps(&self, shown: Option<&str>, record: MemberIdRecord) -> bool {
        let is_of_another_cluster =
            self.since.zip(record.since).is_some_and(|(cluster, profile)| profile < cluster);
        shown.is_some_and(|shown| !shown.is_empty() && shown != self.value)
            && !(record.is_foreign || is_of_another_cluster)
    }

    /// The finding on a profile with the member ID `shown`.
    pub(crate) fn finding(&self, shown: Option<&str>, record: MemberIdRecord) -> Option<Finding> {
        self.keeps(shown, record).then(|| {
            Finding::new(
                Reason::MemberIdChanged,
                format!(
                    "keeps the member ID {:?} although its ManagedCluster now has {:?}: an ID must not change while \
                     a profile represents the same cluster (to apply the change, delete the profile)",
                    shown.unwrap_or_default(),
                    self.value
                ),
            )
        })
    }
}

impl MemberIdRecord {
    /// Reads the record from the metadata of a ClusterProfile.
    #[must_use]
    pub fn read(metadata: &ObjectMeta) -> Self {
        let sets = |is_ours: bool, pointer: &str| {
            metadata.managed_fields.iter().flatten().any(|entry| {
                (entry.manager.as_deref() == Some(FIELD_MANAGER)) == is_ours
                    && entry
                        .fields_v1
                        .as_ref()
                        .is_some_and(|fields| fields.0.pointer(pointer).is_some())
            })
        };
        Self {
            is_foreign: (sets(true, &CLUSTER_NAME_FIELD) || sets(true, "/f:spec/f:clusterManager"))
                && sets(false, &MEMBER_ID_FIELD)
                && !sets(true, &MEMBER_ID_FIELD),
            since: metadata.creation_timestamp.as_ref().map(|time| time.0),
        }
    }
}

/// The member IDs of profiles, by namespace: an inventory is a namespace, in which IDs of different clusters must
/// differ.
#[derive(Debug, Default)]
pub struct MemberIds {
    ids: BTreeMap<ProfileKey, Text>,
    /// The clusters whose ID is not their name, by namespace and ID.
    renamed: BTreeMap<(Namespace, Text), BTreeSet<ClusterName>>,
}

impl MemberIds {
    /// Records the current ID of a profile, if it exists. Returns the profiles whose [finding](Self::finding) may have
    /// changed.
    pub fn set(&mut self, key: &ProfileKey, id: Option<&str>) -> BTreeSet<ProfileKey> {
        let id = id.filter(|id| !id.is_empty());
        if self.ids.get(key).map(Text::as_str) == id {
            return BTreeSet::new();
        }
        let mut others = BTreeSet::new();
        if let Some(before) = self.ids.remove(key) {
            nested::remove_value(
                &mut self.renamed,
                &(key.namespace.clone(), before.clone()),
                &key.cluster,
            );
            others.extend(self.clusters_with(&key.namespace, &before));
        }
        if let Some(id) = id.map(Text::from) {
            others.extend(self.clusters_with(&key.namespace, &id));
            if *id != *key.cluster.as_str() {
                let renamed = self.renamed.entry((key.namespace.clone(), id.clone())).or_default();
                renamed.insert(key.cluster.clone());
            }
            self.ids.insert(key.clone(), id);
        }
        if others.is_empty() {
            return BTreeSet::new();
        }
        others.insert(key.cluster.clone());
        let key = |cluster| ProfileKey { namespace: key.namespace.clone(), cluster };
        others.into_iter().map(key).collect()
    }

    fn clusters_with(&self, namespace: &Namespace, id: &Text) -> BTreeSet<ClusterName> {
        let renamed = self.renamed.get(&(namespace.clone(), id.clone()));
        let named = ProfileKey { namespace: namespace.clone(), cluster: id.as_str().into() };
        let named =
            Some(named).filter(|named| self.ids.get(named) == Some(id)).map(|named| named.cluster);
        renamed.into_iter().flatten().cloned().chain(named).collect()
    }

    /// The finding on a profile.
    #[must_use]
    pub fn finding(&self, key: &ProfileKey) -> Option<Finding> {
        let id = self.ids.get(key)?;
        let mut others = self.clusters_with(&key.namespace, id);
        others.remove(&key.cluster);
        if others.is_empty() {
            return None;
        }
        let others: Vec<_> = others.iter().map(ClusterName::as_str).collect();
        Some(Finding::new(
            Reason::MemberIdShared,
            format!(
                "has the member ID {id:?}, which profiles of other clusters in this namespace also have: {}; set the \
                 label {} of one of the ManagedClusters and delete its profile",
                first_of(&others, SHOWN),
                labels::MEMBER_ID
            ),
        ))
    }
}
