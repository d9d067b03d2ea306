//! What decisions read of a Secret that may be a copy, and how a copy is created.

use std::collections::BTreeMap;

use hub_api::cluster_profile::{ProfileVersion, ServedVersions};
use hub_api::names::{AccountKey, LABEL_VALUE_MAX_LENGTH, SecretKey};
use hub_api::secret::{Secret, SecretBytes, TYPE_OPAQUE};
use hub_api::text::Text;
use hub_api::{Unreadable, cluster_profile, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::credential::source::{Credential, ENTRIES, Fingerprint, UID_MAX_LENGTH};
use crate::version::{Uid, Version};

/// The field manager of the syncer's writes. It is for people who read managedFields and proves nothing, since any
/// writer of a Secret can use any field manager.
pub const FIELD_MANAGER: &str = "hub-addons-credential-syncer";

/// The annotations of a copy.
const ANNOTATIONS: [&str; 3] =
    [labels::SYNCED_CLUSTER, labels::SYNCED_ACCOUNT, labels::SYNCED_ACCOUNT_UID];

/// How many hexadecimal digits of its hash a shortened label value has: an even number, up to 16.
const HASH_LENGTH: usize = 10;

/// A Secret with the key of a copy, reduced to what plans need, without its data. Its size does not depend on the
/// Secret's content, since a tenant may label any Secret in its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and none excludes another"
)]
pub struct ObservedCopy {
    pub version: Version,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// Whether it carries the label [`labels::SYNCED_FROM`], by which copies are watched.
    pub is_labelled: bool,
    /// The account that it is for, if label, annotations, name and type agree.
    pub record: Option<Record>,
    /// Whether its data is immutable.
    immutable: bool,
    /// Whether it has the type of a copy, which is immutable.
    is_opaque: bool,
    /// The profile that controls it, if it is the only owner.
    owner: Option<OwnerRecord>,
    /// The fingerprint of its data, or `None` if the data cannot be read.
    fingerprint: Option<Fingerprint>,
    /// Whether it has any data, as far as is known.
    pub(crate) holds_data: bool,
    /// Whether it has a key that no copy has.
    holds_more: bool,
    /// Whether it has labels, annotations or finalizers that we do not write.
    is_adorned: bool,
    /// Whether it is in exactly the form in which OCM's syncer creates a copy, whoever owns it: one label, no annotation,
    /// and the two keys.
    is_ocm_form: bool,
}

/// A profile that controls a copy. The garbage collector finds it by name, and compares the uid.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnerRecord {
    name: Text,
    uid: Uid,
    /// The version of the API by which it is named; `None` for one that is not supported.
    version: Option<ProfileVersion>,
}

/// The account recorded on a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub account: AccountKey,
    /// The `metadata.uid` of the account.
    pub uid: Uid,
}

impl ObservedCopy {
    /// Reads the Secret with the key of a copy; of one that cannot be decoded, the metadata.
    #[must_use]
    pub fn read(key: &SecretKey, secret: Result<&Secret, &Unreadable>) -> Self {
        let secret = match secret {
            Ok(secret) => secret,
            Err(unreadable) => return Self::of_metadata(key, &unreadable.metadata),
        };
        let observed = Self::of_metadata(key, &secret.metadata);
        let is_opaque = secret.type_.as_deref().is_none_or(|type_| type_ == TYPE_OPAQUE);
        Self {
            immutable: secret.immutable == Some(true),
            is_opaque,
            record: observed.record.filter(|_| is_opaque),
            fingerprint: Some(Fingerprint::of(secret.entries())),
            holds_data: secret.entries().next().is_some(),
            holds_more: secret.entries().any(|(key, _)| !ENTRIES.contains(&key)),
            is_ocm_form: is_ocm_metadata(key, &secret.metadata)
                && secret.type_.as_deref() == Some(TYPE_OPAQUE)
                && secret.immutable != Some(true)
                && secret.entries().map(|(key, _)| key).eq(ENTRIES),
            ..observed
        }
    }

    /// What the metadata alone shows: the data counts as unknown.
    fn of_metadata(key: &SecretKey, metadata: &ObjectMeta) -> Self {
        let (labels, annotations) = (metadata.labels.as_ref(), metadata.annotations.as_ref());
        let label = labels::get(metadata, labels::SYNCED_FROM);
        // An agent's Secret is a source, whatever other labels it has.
        let is_source = labels::get(metadata, labels::IS_MANAGED_SERVICE_ACCOUNT).is_some();
        let record = Record::read(metadata).filter(|record| {
            record.account.copy_name() == *key.name
                && label.is_some_and(|label| label == label_value(&record.account))
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
                Some([owner])
                    if cluster_profile::controls(owner) && key.name.starts_with(&owner.name) =>
                {
                    let uid = Some(&owner.uid).filter(|uid| uid.len() <= UID_MAX_LENGTH);
                    let version = cluster_profile::version_of(owner);
                    uid.map(|uid| OwnerRecord {
                        name: owner.name.as_str().into(),
                        uid: uid.as_str().into(),
                        version,
                    })
                }
                _ => None,
            },
            fingerprint: None,
            holds_data: true,
            holds_more: false,
            is_adorned: labels.is_some_and(|all| all.keys().any(|key| key != labels::SYNCED_FROM))
                || annotations
                    .is_some_and(|all| all.keys().any(|key| !ANNOTATIONS.contains(&key.as_str())))
                || metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()),
            is_ocm_form: false,
        }
    }

    /// The profile, by name and uid, for which OCM's syncer has created it, if it is in exactly that form.
    pub(super) fn ocm_owner(&self) -> Option<(&str, &Uid)> {
        let owner = self.owner.as_ref().filter(|_| self.is_ocm_form)?;
        Some((&owner.name, &owner.uid))
    }

    /// Whether its data can be removed.
    pub(crate) fn can_be_emptied(&self) -> bool {
        !self.immutable && self.holds_data
    }

    /// Whether its data is exactly this credential. Only a writer that knows the token can create that.
    #[must_use]
    pub fn holds(&self, credential: &Credential) -> bool {
        self.is_opaque && self.fingerprint == Some(credential.digest)
    }

    /// Whether the profile that owns it is the one of its credential.
    pub(crate) fn is_owned_by(&self, wanted: &Wanted<'_>) -> bool {
        self.owner.as_ref().is_some_and(|owner| {
            owner.uid == *wanted.owner && owner.name == wanted.account.cluster.as_str()
        })
    }

    /// Whether the hub serves the version in its owner reference. The garbage collector cannot look up an owner in any
    /// other version, so the copy may outlive its profile.
    fn names_a_served_version(&self, wanted: &Wanted<'_>) -> bool {
        let version = self.owner.as_ref().and_then(|owner| owner.version);
        version.is_none_or(|version| wanted.owner_versions.has(version))
    }

    /// Whether it is the copy of this credential. Additional metadata of others is ignored.
    #[must_use]
    pub fn is(&self, wanted: &Wanted<'_>) -> bool {
        self.holds(wanted.credential)
            && self
                .record
                .as_ref()
                .is_some_and(|it| it.account == *wanted.account && it.uid == *wanted.uid)
            && self.is_owned_by(wanted)
            && self.names_a_served_version(wanted)
    }

    /// Whether it is exactly as we write a copy of this credential, whatever owns it: a profile may have been replaced
    /// or deleted since.
    pub(crate) fn is_exactly(&self, account: &AccountKey, credential: &Credential) -> bool {
        let is_recorded = self.record.as_ref().is_some_and(|record| record.account == *account);
        is_recorded && self.holds(credential) && !self.is_adorned && !self.immutable
    }

    /// Whether it must be replaced by a new object. A token is written only into a Secret that is `known`, by its uid,
    /// to have been created for it: labels and annotations of any other Secret may exist to capture the token. A Secret
    /// without the label is replaced as well, since by that label the chart's policies identify what the syncer may
    /// change.
    pub(crate) fn must_be_replaced(&self, wanted: &Wanted<'_>, known: bool) -> bool {
        let is_filled = self.holds(wanted.credential);
        !self.is_opaque
            || !self.is_labelled
            || !is_filled && (self.immutable || self.holds_more || !known)
    }
}

impl Record {
    fn read(metadata: &ObjectMeta) -> Option<Self> {
        let annotation = |key| labels::annotation(metadata, key);
        let uid = annotation(labels::SYNCED_ACCOUNT_UID).filter(|uid| uid.len() <= UID_MAX_LENGTH);
        let cluster = annotation(labels::SYNCED_CLUSTER)?.into();
        let account = annotation(labels::SYNCED_ACCOUNT)?.into();
        Some(Self { account: AccountKey { cluster, account }, uid: uid.unwrap_or_default().into() })
    }
}

/// The desired copy.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The account of its token.
    pub account: &'a AccountKey,
    /// The `metadata.uid` of the account.
    pub uid: &'a Uid,
    /// The `metadata.uid` of the profile that owns it.
    pub owner: &'a Uid,
    /// The served versions of ClusterProfile. A copy is written with the latest in its owner reference; an existing
    /// copy keeps its version as long as that is served.
    pub owner_versions: ServedVersions,
    pub credential: &'a Credential,
}

impl Wanted<'_> {
    /// The copy as a new object.
    #[must_use]
    pub fn create(&self, key: &SecretKey) -> Secret {
        let metadata = ObjectMeta {
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            ..self.metadata()
        };
        Secret::opaque(
            metadata,
            self.credential.entries().map(|(key, bytes)| (key.to_owned(), bytes.clone())),
        )
    }

    /// The merge patch that changes a Secret to this copy. Labels and annotations of others are preserved.
    #[must_use]
    pub fn patch(&self) -> Patch {
        let mut data: BTreeMap<String, Option<SecretBytes>> =
            ENTRIES.iter().map(|key| ((*key).to_owned(), None)).collect();
        data.extend(
            self.credential.entries().map(|(key, bytes)| (key.to_owned(), Some(bytes.clone()))),
        );
        Patch { metadata: self.metadata(), data: Some(data) }
    }

    /// What the metadata of a copy contains beside its name.
    fn metadata(&self) -> ObjectMeta {
        let annotations = [
            (labels::SYNCED_CLUSTER, self.account.cluster.as_str()),
            (labels::SYNCED_ACCOUNT, self.account.account.as_str()),
            (labels::SYNCED_ACCOUNT_UID, &self.uid.to_string()),
        ];
        let owner = cluster_profile::owner_reference(
            self.owner_versions.latest(),
            self.account.cluster.as_str(),
            &self.owner.to_string(),
        );
        ObjectMeta {
            labels: Some([(labels::SYNCED_FROM.to_owned(), label_value(self.account))].into()),
            annotations: Some(
                annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        }
    }
}

/// A merge patch of a Secret. The default removes all data.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Patch {
    metadata: ObjectMeta,
    /// A value of `None` removes a key; `None` for the map removes all data.
    data: Option<BTreeMap<String, Option<SecretBytes>>>,
}

impl From<Box<Patch>> for Value {
    fn from(patch: Box<Patch>) -> Self {
        json!(patch)
    }
}

/// Whether OCM's syncer creates copies with such metadata.
fn is_ocm_metadata(key: &SecretKey, metadata: &ObjectMeta) -> bool {
    labels::get(metadata, labels::SYNCED_FROM) == Some(&*key.name)
        && metadata.labels.as_ref().is_some_and(|all| all.len() == 1)
        && metadata.annotations.as_ref().is_none_or(BTreeMap::is_empty)
        && metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
        && metadata.deletion_timestamp.is_none()
}

/// The value of the label [`labels::SYNCED_FROM`]: the name of the copy, shortened with a hash if it exceeds the length
/// of a label value.
pub(crate) fn label_value(account: &AccountKey) -> String {
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
        let (one, other) = (
            account("berlin", &"x".repeat(70)),
            account("berlin", &format!("{}y", "x".repeat(69))),
        );
        let value = label_value(&one);
        assert!(
            value.starts_with("berlin-xxx")
                && value.len() == 63
                && hub_api::names::is_label_value(&value),
            "{value}"
        );
        assert_ne!(value, label_value(&other));
        assert_eq!(&value[52..], "-71e61e5fd7", "a contract with copies that are already written");
        assert_eq!(
            label_value(&account("a", &"b".repeat(61))).len(),
            63,
            "as long as allowed is not shortened"
        );
    }
}
