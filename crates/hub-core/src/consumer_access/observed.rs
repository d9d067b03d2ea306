//! The objects of the access of a consumer on a cluster, as they are on the API server.

use std::collections::BTreeMap;

use hub_api::names::AccountKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::desired::{AccessSettings, Desired, work_name};
use crate::version::Version;

/// The two objects of the access to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKind {
    /// The ManagedServiceAccount.
    Account,
    /// The ManifestWork with its permissions.
    Permissions,
}

impl AccessKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Account, Self::Permissions];

    /// The name of the object of an account.
    #[must_use]
    pub fn name(self, key: &AccountKey) -> String {
        match self {
            Self::Account => key.account.to_string(),
            Self::Permissions => work_name(&key.account),
        }
    }

    pub(super) fn head(self, key: &AccountKey) -> Value {
        let (version, kind) = match self {
            Self::Account => ("authentication.open-cluster-management.io/v1beta1", "ManagedServiceAccount"),
            Self::Permissions => ("work.open-cluster-management.io/v1", "ManifestWork"),
        };
        let metadata = json!({ "name": self.name(key), "namespace": key.cluster.as_str() });
        json!({ "apiVersion": version, "kind": kind, "metadata": metadata })
    }
}

/// A ManagedServiceAccount or ManifestWork with a name of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedObject {
    /// Its version.
    pub version: Version,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owners: Value,
    /// `None` if it cannot be read.
    pub(super) spec: Option<Map<String, Value>>,
    /// The message of a condition `Applied` that is False.
    pub(super) not_applied: Option<String>,
}

/// A message of the agent in one line. Its content is that of the managed cluster, which must not fill logs and Events.
fn shortened(message: &str) -> String {
    const MOST: usize = 256;
    message.chars().take(MOST).map(|char| if char.is_control() { ' ' } else { char }).collect()
}

impl ObservedObject {
    /// Reads an object from its metadata and the rest; `None` if the rest cannot be read.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, data: Option<&Value>) -> Self {
        let conditions = data.and_then(|data| data["status"]["conditions"].as_array());
        let not_applied = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Applied" && condition["status"] == "False");
        let owners = metadata.owner_references.as_ref().filter(|owners| !owners.is_empty());
        Self {
            version: Version::of(metadata),
            is_deleting: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
            owners: owners.and_then(|owners| serde_json::to_value(owners).ok()).unwrap_or_default(),
            spec: data.map(|data| data["spec"].as_object().cloned().unwrap_or_default()),
            not_applied: not_applied
                .map(|condition| shortened(condition["message"].as_str().unwrap_or_default())),
        }
    }

    /// Whether it has the marks of this installation.
    #[must_use]
    pub fn is_marked(&self, settings: &AccessSettings) -> bool {
        settings.marks().iter().all(|(key, value)| self.labels.get(*key).is_some_and(|it| it == value))
    }

    pub(super) fn has(&self, desired: &Desired) -> bool {
        let contains = |all: &BTreeMap<String, String>, wanted: &BTreeMap<String, Value>| {
            wanted.iter().all(|(key, value)| all.get(key).is_some_and(|it| it.as_str() == *value))
        };
        contains(&self.labels, &desired.labels)
            && contains(&self.annotations, &desired.annotations)
            && self.owners == desired.owners
            && self.spec.as_ref().is_none_or(|spec| *spec == desired.spec)
    }
}

/// The access to a cluster on the API server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedAccess {
    /// The account.
    pub account: Option<ObservedObject>,
    /// The uid of the last account of this name that had our marks.
    pub account_uid: Option<String>,
    /// The permissions.
    pub permissions: Option<ObservedObject>,
    /// The uid of the last ManifestWork of this name that had our marks.
    pub permissions_uid: Option<String>,
}

impl ObservedAccess {
    /// Whether nothing exists.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.account.is_none() && self.permissions.is_none()
    }

    /// The object of a kind.
    #[must_use]
    pub fn object(&self, kind: AccessKind) -> Option<&ObservedObject> {
        match kind {
            AccessKind::Account => self.account.as_ref(),
            AccessKind::Permissions => self.permissions.as_ref(),
        }
    }

    /// The object of a kind, if it is ours, or whether it is another owner's.
    pub(super) fn ours(&self, settings: &AccessSettings, kind: AccessKind) -> Owned<'_> {
        let uid = match kind {
            AccessKind::Account => &self.account_uid,
            AccessKind::Permissions => &self.permissions_uid,
        };
        match self.object(kind) {
            None => Owned::Absent,
            Some(object) if uid.as_ref() == Some(&object.version.uid) || object.is_marked(settings) => {
                Owned::Ours(object)
            }
            Some(_) => Owned::Foreign,
        }
    }
}

/// Whose an object is.
pub(super) enum Owned<'a> {
    /// There is none.
    Absent,
    /// Ours.
    Ours(&'a ObservedObject),
    /// Another owner's.
    Foreign,
}
