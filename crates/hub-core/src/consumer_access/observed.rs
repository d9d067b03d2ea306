//! The objects of the access of a consumer on a cluster, as they are on the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hub_api::labels::{self, MANAGED_BY};
use hub_api::names::{AccountKey, Namespace};
use hub_api::text::Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::applied::{self, Applied};
use super::consumers::{Consumer, duration};
use super::desired::{AccessSettings, COMPONENT, DEFAULT_ACCOUNT_NAMESPACE, Desired, INSTALLATION};
use super::kind::AccessKind;
use crate::credential::account::CONDITION_SYNCED;
use crate::known::Known;
use crate::version::{Uid, Version};

/// A ManagedServiceAccount, ManifestWork or ClusterPermission with a name of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedObject {
    pub version: Version,
    pub is_deleting: bool,
    pub(super) content: Arc<Content>,
    /// The hash of `metadata.ownerReferences`, if there are any: each contains a uid, so they cannot be shared.
    owners: Option<Box<[u8; 32]>>,
    /// What its status reports.
    pub(super) applied: Applied,
    /// Of an account: whether its token is reported, and whether the syncer reports that it is copied, or why not.
    pub(super) has_token: bool,
    pub(super) copied: Option<Result<(), Text>>,
}

/// What the objects of an account have in common on most clusters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// The spec, or the data of a Secret; `None` if it cannot be read.
    pub(super) spec: Option<Map<String, Value>>,
}

impl ObservedObject {
    /// Reads an object from its metadata and its JSON, which is `None` if it cannot be read.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, data: Option<&Value>) -> Self {
        let name = metadata.name.as_deref().unwrap_or_default();
        let read = |data| Applied::read(name, metadata.generation, data);
        let owners = metadata.owner_references.as_ref().filter(|owners| !owners.is_empty());
        let owners = owners.and_then(|owners| serde_json::to_value(owners).ok());
        let content = Content {
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
            spec: data.map(|data| data["spec"].as_object().cloned().unwrap_or_default()),
        };
        Self {
            version: Version::of(metadata),
            is_deleting: metadata.deletion_timestamp.is_some(),
            content: Arc::new(content),
            owners: hash(&owners.unwrap_or_default()),
            applied: data.map(read).unwrap_or_default(),
            has_token: data
                .is_some_and(|data| data["status"]["tokenSecretRef"]["name"].is_string()),
            copied: data.and_then(|data| applied::reported(data, CONDITION_SYNCED)),
        }
    }

    /// Holds its content once with another object of the account, if they have the same; without the labels and
    /// annotations that no plan reads, since the agent of the cluster may write any.
    pub fn share_content(&mut self, last: &mut Arc<Content>) {
        let content = Arc::make_mut(&mut self.content);
        let read = [MANAGED_BY.0, COMPONENT.0, INSTALLATION, labels::SYNC_TO_CLUSTER_PROFILE];
        content.labels.retain(|key, _| read.contains(&key.as_str()));
        content.annotations.retain(|key, _| key == labels::SYNC_TO_NAMESPACES);
        if *last == self.content {
            self.content = Arc::clone(last);
        } else {
            *last = Arc::clone(&self.content);
        }
    }

    /// Whether it is the same as another one but for its version.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        *self == Self { version: self.version.clone(), ..other.clone() }
    }

    /// Drops everything but the version: nothing else of another owner's object matters.
    pub fn forget_content(&mut self) {
        let version = self.version.clone();
        *self = Self::read(&ObjectMeta::default(), None);
        self.version = version;
    }

    /// Whether it has the marks of this installation.
    #[must_use]
    pub fn is_marked(&self, settings: &AccessSettings) -> bool {
        settings
            .marks()
            .iter()
            .all(|(key, value)| self.content.labels.get(*key).is_some_and(|it| it == value))
    }

    pub(super) fn has(&self, desired: &Desired) -> bool {
        self.has_metadata(desired)
            && self.content.spec.as_ref().is_some_and(|spec| has_spec(spec, &desired.spec))
    }

    pub(super) fn has_metadata(&self, desired: &Desired) -> bool {
        let contains = |all: &BTreeMap<String, String>, wanted: &BTreeMap<String, Value>| {
            wanted.iter().all(|(key, value)| all.get(key).map(String::as_str) == value.as_str())
        };
        contains(&self.content.labels, &desired.labels)
            && contains(&self.content.annotations, &desired.annotations)
            && self.owners == hash(&desired.owners)
    }
}

/// The hash of owner references; `None` if there are none.
fn hash(owners: &Value) -> Option<Box<[u8; 32]>> {
    (!owners.is_null()).then(|| Box::new(Sha256::digest(owners.to_string()).into()))
}

/// Whether a spec is as desired. A validity is compared as a duration, since a client in Go writes `24h` as `24h0m0s`.
fn has_spec(spec: &Map<String, Value>, desired: &Map<String, Value>) -> bool {
    if spec == desired {
        return true;
    }
    let validity =
        |spec: &Map<String, Value>| duration(spec.get("rotation")?.get("validity")?.as_str()?);
    let Some(wanted) = validity(desired).filter(|wanted| validity(spec) == Some(*wanted)) else {
        return false;
    };
    let without = |spec: &Map<String, Value>| {
        let mut spec = spec.clone();
        let rotation = spec.get_mut("rotation").and_then(Value::as_object_mut);
        rotation.map(|rotation| rotation.insert("validity".to_owned(), wanted.as_secs().into()));
        spec
    };
    without(spec) == without(desired)
}

/// An object with a name of ours, and whether it is ours.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundObject {
    pub object: ObservedObject,
    /// Whether this process created it, or it had our marks when this process first saw it. Marks that are set or
    /// removed later do not change this.
    pub is_ours: bool,
}

impl FoundObject {
    /// An object that was read; `before` is what was last read of this name.
    #[must_use]
    pub fn seen(settings: &AccessSettings, before: Option<&Self>, object: ObservedObject) -> Self {
        let before = before.filter(|before| before.object.version.uid == object.version.uid);
        let is_ours = before.map_or_else(|| object.is_marked(settings), |before| before.is_ours);
        Self { object, is_ours }
    }
}

/// The access to a cluster on the API server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedAccess {
    /// The object of each kind.
    pub objects: BTreeMap<AccessKind, FoundObject>,
    /// The uids of objects that this process has created and no watch has shown yet.
    pub created: BTreeMap<AccessKind, Uid>,
    /// The kinds that are not listed: an object of such a kind may exist although `objects` does not contain it.
    pub unlisted: BTreeSet<AccessKind>,
    /// The namespace of the addon managed-serviceaccount on the cluster; absent if its ManagedClusterAddOn shows none.
    pub agent_namespace: Known<Namespace>,
    /// The writes, by kind and verb, that the next one does not wait for, since they were sent or are blocked: an object
    /// that cannot be written must not keep permissions alive that have ended.
    pub passed: BTreeSet<(AccessKind, &'static str)>,
}

impl ObservedAccess {
    /// The object of a kind.
    #[must_use]
    pub fn object(&self, kind: AccessKind) -> Option<&ObservedObject> {
        self.objects.get(&kind).map(|found| &found.object)
    }

    /// The namespace of the account on the cluster: the configured one, else that of the addon or its default, or,
    /// while the addon cannot be read, the one in the existing ManifestWork.
    pub(super) fn account_namespace<'a>(&'a self, settings: &'a AccessSettings) -> Option<&'a str> {
        if let Some(namespace) = &settings.account_namespace {
            return Some(namespace.as_str());
        }
        match &self.agent_namespace {
            Known::Present(namespace) => Some(namespace.as_str()),
            Known::Absent => Some(DEFAULT_ACCOUNT_NAMESPACE),
            Known::Unknown => {
                let work = self.object(AccessKind::ManifestWork)?.content.spec.as_ref()?;
                let manifests = work.get("workload")?["manifests"].as_array()?;
                manifests.iter().find_map(|manifest| manifest["subjects"][0]["namespace"].as_str())
            }
        }
    }

    /// The object of a kind, if it exists, and whether it is ours or another owner's.
    pub(super) fn ours(
        &self,
        settings: &AccessSettings,
        key: &AccountKey,
        kind: AccessKind,
    ) -> Owned<'_> {
        settings.owned(key, kind, self.objects.get(&kind))
    }
}

impl AccessSettings {
    /// An object, and whether it is ours or another owner's.
    pub(super) fn owned<'a>(
        &self,
        key: &AccountKey,
        kind: AccessKind,
        found: Option<&'a FoundObject>,
    ) -> Owned<'a> {
        match found {
            None => Owned::Absent,
            Some(FoundObject { object, is_ours: true }) if self.may_change(key, kind, object) => {
                Owned::Ours(object)
            }
            Some(_) => Owned::Foreign,
        }
    }

    /// Whether the current content of an object identifies it as ours. The admission policies of the chart, which know
    /// no history, allow changes and deletes by the same rule: it is marked; or, so that lost labels are restored, it
    /// is an account that is limited to the namespace of its consumer, the account of the user server, or the
    /// permissions of a declared account, whose names they reserve.
    fn may_change(&self, key: &AccountKey, kind: AccessKind, object: &ObservedObject) -> bool {
        let is_recognized = |consumer: &Consumer| match kind {
            AccessKind::Account if !consumer.is_own() => object
                .content
                .annotations
                .get(labels::SYNC_TO_NAMESPACES)
                .is_some_and(|namespaces| namespaces == consumer.namespace().as_str()),
            AccessKind::Account | AccessKind::ManifestWork | AccessKind::ClusterPermission => true,
        };
        object.is_marked(self) || self.consumers.of(&key.account).any(is_recognized)
    }
}

/// The owner of an object.
pub(super) enum Owned<'a> {
    Absent,
    Ours(&'a ObservedObject),
    /// Another owner's.
    Foreign,
}
