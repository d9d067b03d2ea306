//! What decisions read of a Secret that may be a copy of ours, and how a copy is made.

use std::collections::BTreeMap;

use hub_api::cluster_profile::ProfileVersion;
use hub_api::names::{AccountKey, AccountName, ClusterName, LABEL_VALUE_MAX_LENGTH, SecretKey};
use hub_api::secret::{Secret, SecretBytes, TYPE_OPAQUE};
use hub_api::{cluster_profile, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::credential::source::{Credential, ENTRIES, Fingerprint};
use crate::version::Version;

/// The field manager of what the syncer writes. For people who read managedFields: it proves nothing, since whoever
/// may write a Secret may write under any field manager.
pub const FIELD_MANAGER: &str = "hub-addons-credential-syncer";

/// The annotations of a copy.
const ANNOTATIONS: [&str; 3] = [labels::SYNCED_CLUSTER, labels::SYNCED_ACCOUNT, labels::SYNCED_ACCOUNT_UID];

/// How many hexadecimal digits of its hash a label value gets that had to be shortened: an even number, up to 16.
const HASH_LENGTH: usize = 10;

/// Longest `metadata.uid` that is kept, in bytes: the API server's are UUIDs, and an annotation may be long.
pub(super) const UID_MAX_LENGTH: usize = 512;

/// A Secret where a copy belongs, as the API server has it: what plans read, and no secret. Its size does not depend
/// on what is in the Secret, since a tenant may label any Secret of his namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own, and none excludes another")]
pub struct ObservedCopy {
    /// This very object.
    pub version: Version,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// Whether it carries the label [`labels::SYNCED_FROM`], by which copies are watched.
    pub is_labelled: bool,
    /// Whose token it should hold, where label, annotations, name and type agree on that.
    pub record: Option<Record>,
    /// Whether its data can no longer change.
    immutable: bool,
    /// Whether it is of a copy's type, which never changes.
    is_opaque: bool,
    /// The profile that controls it, if nothing else owns it.
    owner: Option<Owner>,
    /// What it holds, or nothing where that cannot be read.
    fingerprint: Option<Fingerprint>,
    /// Whether it holds anything.
    is_full: bool,
    /// Whether it holds an entry that no copy has.
    holds_more: bool,
    /// Whether it carries labels, annotations or finalizers that we do not write.
    is_adorned: bool,
}

/// A profile that controls a copy. The garbage collector looks for it by name, and compares the uid.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    name: String,
    uid: String,
}

/// What is recorded on a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose token it holds.
    pub account: AccountKey,
    /// The `metadata.uid` of the account.
    pub uid: String,
}

impl ObservedCopy {
    /// Reads a Secret.
    #[must_use]
    pub fn read(key: &SecretKey, secret: &Secret) -> Self {
        let observed = Self::from_metadata(key, &secret.metadata);
        let is_opaque = secret.type_.as_deref().is_none_or(|type_| type_ == TYPE_OPAQUE);
        Self {
            immutable: secret.immutable == Some(true),
            is_opaque,
            record: observed.record.filter(|_| is_opaque),
            fingerprint: Some(Fingerprint::of(secret.entries())),
            is_full: secret.entries().next().is_some(),
            holds_more: secret.entries().any(|(key, _)| !ENTRIES.contains(&key)),
            ..observed
        }
    }

    /// Stands for a Secret of which only the metadata could be read.
    #[must_use]
    pub fn unreadable(key: &SecretKey, metadata: &ObjectMeta) -> Self {
        Self::from_metadata(key, metadata)
    }

    fn from_metadata(key: &SecretKey, metadata: &ObjectMeta) -> Self {
        let (labels, annotations) = (metadata.labels.as_ref(), metadata.annotations.as_ref());
        let label = labels.and_then(|all| all.get(labels::SYNCED_FROM));
        // An agent's Secret is a source, whatever else it carries.
        let is_source = labels.is_some_and(|all| all.contains_key(labels::IS_MANAGED_SERVICE_ACCOUNT));
        let record = Record::read(metadata).filter(|record| {
            record.account.copy_name() == *key.name
                && label.is_some_and(|label| *label == label_value(&record.account))
                && !is_source
        });
        Self {
            version: Version::of(metadata),
            terminating: metadata.deletion_timestamp.is_some(),
            is_labelled: label.is_some(),
            record,
            immutable: false,
            is_opaque: true,
            owner: match metadata.owner_references.as_deref() {
                Some([owner]) if cluster_profile::controls(owner) && key.name.starts_with(&owner.name) => {
                    let uid = Some(&owner.uid).filter(|uid| uid.len() <= UID_MAX_LENGTH);
                    uid.map(|uid| Owner { name: owner.name.clone(), uid: uid.clone() })
                }
                _ => None,
            },
            fingerprint: None,
            is_full: true,
            holds_more: false,
            is_adorned: labels.is_some_and(|all| all.keys().any(|key| key != labels::SYNCED_FROM))
                || annotations.is_some_and(|all| all.keys().any(|key| !ANNOTATIONS.contains(&key.as_str())))
                || metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()),
        }
    }

    /// Whether it holds anything, as far as is known.
    #[must_use]
    pub fn holds_data(&self) -> bool {
        self.is_full
    }

    /// Whether what it holds can be taken out.
    #[must_use]
    pub fn can_be_emptied(&self) -> bool {
        !self.immutable && self.is_full
    }

    /// Whether it holds this credential and nothing else. Nobody can write that who does not know the token.
    #[must_use]
    pub fn holds(&self, credential: &Credential) -> bool {
        self.is_opaque && self.fingerprint == Some(credential.digest)
    }

    /// Whether its profile is the one that its credential belongs to.
    #[must_use]
    pub fn is_owned_by(&self, wanted: &Wanted<'_>) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| owner.uid == wanted.owner && owner.name == wanted.account.cluster.as_str())
    }

    /// Whether it is what the copy of this credential should be. What others put beside that is theirs.
    #[must_use]
    pub fn is(&self, wanted: &Wanted<'_>) -> bool {
        self.holds(wanted.credential)
            && self.record.as_ref().is_some_and(|it| it.account == *wanted.account && it.uid == wanted.uid)
            && self.is_owned_by(wanted)
    }

    /// Whether it is as we write a copy of this credential, to the last label.
    #[must_use]
    pub fn is_exactly(&self, wanted: &Wanted<'_>) -> bool {
        self.is(wanted) && !self.is_adorned && !self.immutable
    }

    /// Whether only a new object can become what it should be. A token goes only into a Secret that is `known`, by its
    /// uid, to have been made for it: labels and annotations of any other may be there to carry the token away. One
    /// without its label is replaced as well, since that is how the chart's policies know what the syncer may change.
    #[must_use]
    pub fn must_be_replaced(&self, wanted: &Wanted<'_>, known: bool) -> bool {
        let is_filled = self.holds(wanted.credential);
        !self.is_opaque || !self.is_labelled || !is_filled && (self.immutable || self.holds_more || !known)
    }
}

impl Record {
    fn read(metadata: &ObjectMeta) -> Option<Self> {
        let annotation = |key| metadata.annotations.as_ref()?.get(key);
        let uid = annotation(labels::SYNCED_ACCOUNT_UID).filter(|uid| uid.len() <= UID_MAX_LENGTH);
        Some(Self {
            account: AccountKey {
                cluster: ClusterName::new(annotation(labels::SYNCED_CLUSTER)?.as_str()),
                account: AccountName::new(annotation(labels::SYNCED_ACCOUNT)?.as_str()),
            },
            uid: uid.cloned().unwrap_or_default(),
        })
    }
}

/// What a copy should be.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Whose token it holds.
    pub account: &'a AccountKey,
    /// The `metadata.uid` of the account.
    pub uid: &'a str,
    /// The `metadata.uid` of the profile that owns it.
    pub owner: &'a str,
    /// The version in which a copy that is written names that profile. One that is there keeps the version that it has.
    pub owner_version: ProfileVersion,
    /// What it holds.
    pub credential: &'a Credential,
}

impl Wanted<'_> {
    /// The copy as a new object.
    #[must_use]
    pub fn create(&self, key: &SecretKey) -> Secret {
        let metadata = ObjectMeta {
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            labels: Some(self.labels()),
            annotations: Some(self.annotations()),
            owner_references: Some(vec![self.owner_reference()]),
            ..ObjectMeta::default()
        };
        Secret::opaque(
            metadata,
            self.credential.entries().map(|(key, bytes)| (key.to_owned(), bytes.clone())),
        )
    }

    /// The merge patch that makes this of a copy. Labels and annotations of others stay.
    #[must_use]
    pub fn patch(&self, observed: &ObservedCopy) -> Patch {
        let mut data: BTreeMap<String, Option<SecretBytes>> =
            ENTRIES.iter().map(|key| ((*key).to_owned(), None)).collect();
        data.extend(self.credential.entries().map(|(key, bytes)| (key.to_owned(), Some(bytes.clone()))));
        Patch {
            metadata: PatchedMetadata {
                uid: observed.version.uid.clone(),
                resource_version: observed.version.resource_version.clone(),
                labels: Some(self.labels()),
                annotations: Some(self.annotations()),
                owner_references: Some(vec![self.owner_reference()]),
            },
            data: Some(data),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        [(labels::SYNCED_FROM.to_owned(), label_value(self.account))].into()
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        [
            (labels::SYNCED_CLUSTER, self.account.cluster.as_str()),
            (labels::SYNCED_ACCOUNT, self.account.account.as_str()),
            (labels::SYNCED_ACCOUNT_UID, self.uid),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    fn owner_reference(&self) -> OwnerReference {
        cluster_profile::owner_reference(self.owner_version, self.account.cluster.as_str(), self.owner)
    }
}

/// A merge patch of a Secret, for exactly one version of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Patch {
    metadata: PatchedMetadata,
    /// `None` takes an entry away; no map at all takes everything.
    data: Option<BTreeMap<String, Option<SecretBytes>>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchedMetadata {
    uid: String,
    resource_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_references: Option<Vec<OwnerReference>>,
}

impl Patch {
    /// Takes everything out of a Secret.
    #[must_use]
    pub fn empty(observed: &ObservedCopy) -> Self {
        Self {
            metadata: PatchedMetadata {
                uid: observed.version.uid.clone(),
                resource_version: observed.version.resource_version.clone(),
                labels: None,
                annotations: None,
                owner_references: None,
            },
            data: None,
        }
    }
}

/// The value of the label [`labels::SYNCED_FROM`]: the name of the copy, shortened with a hash where it is too long
/// for a label value.
#[must_use]
pub fn label_value(account: &AccountKey) -> String {
    let name = account.copy_name();
    if name.len() <= LABEL_VALUE_MAX_LENGTH {
        return name;
    }
    let hash = Sha256::digest(name.as_bytes()).into_iter().take(HASH_LENGTH / 2);
    let hash = hash.fold(0, |number, byte| number << 8 | u64::from(byte));
    let kept = name.floor_char_boundary(LABEL_VALUE_MAX_LENGTH - HASH_LENGTH - 1);
    format!("{}-{hash:0HASH_LENGTH$x}", &name[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(cluster: &str, account: &str) -> AccountKey {
        AccountKey { cluster: cluster.into(), account: account.into() }
    }

    #[test]
    fn a_label_is_the_name_or_its_beginning_with_a_hash() {
        assert_eq!(label_value(&account("berlin", "kueue")), "berlin-kueue");
        let (one, other) =
            (account("berlin", &"x".repeat(70)), account("berlin", &format!("{}y", "x".repeat(69))));
        let value = label_value(&one);
        assert!(
            value.starts_with("berlin-xxx") && value.len() == 63 && hub_api::names::is_label_value(&value),
            "{value}"
        );
        assert_ne!(value, label_value(&other));
        assert_eq!(
            label_value(&account("a", &"b".repeat(61))).len(),
            63,
            "as long as allowed is not shortened"
        );
    }
}
