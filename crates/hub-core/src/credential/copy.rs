//! What decisions read of a Secret that may be a copy of ours, and how a copy is made.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::cluster_profile::ProfileVersion;
use hub_api::names::{AccountKey, AccountName, ClusterName, LABEL_VALUE_MAX_LENGTH, SecretKey};
use hub_api::secret::{Secret, SecretBytes, TYPE_OPAQUE};
use hub_api::{cluster_profile, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::credential::source::{Credential, Fingerprint};
use crate::version::Version;

/// The field manager of what the syncer writes: the API server's own record of who made a Secret.
pub const FIELD_MANAGER: &str = "hub-addons-credential-syncer";

/// How many hexadecimal digits of its hash a label value gets that had to be shortened: an even number, up to 16.
const HASH_LENGTH: usize = 10;

/// A Secret where a copy belongs, as the API server has it: what plans read, and no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedCopy {
    /// This very object.
    pub version: Version,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// Whose token it holds, where that is recorded and goes with its name.
    pub record: Option<Record>,
    /// Whether the syncer made it.
    pub is_ours: bool,
    /// Whether its data can no longer change.
    immutable: bool,
    /// Its type, where that is not a copy's. A type never changes.
    other_type: Option<String>,
    label: Option<String>,
    /// The profile that controls it, if nothing else owns it.
    owner: Option<Owner>,
    /// What it holds, or nothing where that cannot be read.
    fingerprint: Option<Fingerprint>,
    keys: BTreeSet<String>,
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
        Self {
            immutable: secret.immutable == Some(true),
            other_type: secret.type_.clone().filter(|type_| type_ != TYPE_OPAQUE),
            fingerprint: Some(Fingerprint::of(secret.entries())),
            keys: secret.entries().map(|(key, _)| key.to_owned()).collect(),
            ..observed
        }
    }

    /// Stands for a Secret of which only the metadata could be read.
    #[must_use]
    pub fn unreadable(key: &SecretKey, metadata: &ObjectMeta) -> Self {
        Self::from_metadata(key, metadata)
    }

    fn from_metadata(key: &SecretKey, metadata: &ObjectMeta) -> Self {
        let label = metadata.labels.as_ref().and_then(|all| all.get(labels::SYNCED_FROM)).cloned();
        let record = Record::read(metadata).filter(|record| record.account.copy_name() == *key.name);
        // Annotations and labels can be written and stripped by hand; who wrote which field is the API server's
        // own record. Where it was lost, as in a restored backup, label and annotations together do.
        let managers = metadata.managed_fields.iter().flatten();
        let made_by_us = managers.filter_map(|entry| entry.manager.as_deref()).any(|by| by == FIELD_MANAGER);
        let labelled = record.as_ref().is_some_and(|record| label == Some(label_value(&record.account)));
        Self {
            version: Version::of(metadata),
            terminating: metadata.deletion_timestamp.is_some(),
            is_ours: made_by_us || labelled,
            record,
            immutable: false,
            other_type: None,
            label,
            owner: match metadata.owner_references.as_deref() {
                Some([owner]) if cluster_profile::controls(owner) => {
                    Some(Owner { name: owner.name.clone(), uid: owner.uid.clone() })
                }
                _ => None,
            },
            fingerprint: None,
            keys: BTreeSet::new(),
        }
    }

    /// Whether it holds anything, as far as is known.
    #[must_use]
    pub fn holds_data(&self) -> bool {
        !self.keys.is_empty() || self.fingerprint.is_none()
    }

    /// Whether what it holds can be taken out.
    #[must_use]
    pub fn can_be_emptied(&self) -> bool {
        !self.immutable && self.holds_data()
    }

    /// Whose copy it is: what is recorded says so. Where that was stripped, the profile that it hangs on does.
    #[must_use]
    pub fn account(&self, key: &SecretKey) -> Option<AccountKey> {
        let by_owner = || {
            let cluster = self.owner.as_ref()?.name.as_str();
            let account = key.name.strip_prefix(cluster)?.strip_prefix('-')?;
            Some(AccountKey { cluster: cluster.into(), account: account.into() })
        };
        self.record.as_ref().map(|record| record.account.clone()).or_else(by_owner)
    }

    /// Whether it hangs on the profile that its credential belongs to.
    #[must_use]
    pub fn hangs_on(&self, wanted: &Wanted<'_>) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| owner.uid == wanted.owner && owner.name == wanted.account.cluster.as_str())
    }

    /// Whether it is what the copy of this credential should be.
    #[must_use]
    pub fn is(&self, wanted: &Wanted<'_>) -> bool {
        self.fingerprint == Some(wanted.credential.digest)
            && self.other_type.is_none()
            && self.record.as_ref().is_some_and(|it| it.account == *wanted.account && it.uid == wanted.uid)
            && self.hangs_on(wanted)
            && self.label == Some(label_value(wanted.account))
    }

    /// Whether only a new object can become what it should be.
    #[must_use]
    pub fn must_be_replaced(&self, wanted: &Wanted<'_>) -> bool {
        self.other_type.is_some() || self.immutable && self.fingerprint != Some(wanted.credential.digest)
    }
}

impl Record {
    fn read(metadata: &ObjectMeta) -> Option<Self> {
        let annotation = |key| metadata.annotations.as_ref()?.get(key).cloned();
        Some(Self {
            account: AccountKey {
                cluster: ClusterName::new(annotation(labels::SYNCED_CLUSTER)?),
                account: AccountName::new(annotation(labels::SYNCED_ACCOUNT)?),
            },
            uid: annotation(labels::SYNCED_ACCOUNT_UID).unwrap_or_default(),
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
    /// The `metadata.uid` of the profile that it hangs on.
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
            observed.keys.iter().map(|key| (key.clone(), None)).collect();
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
