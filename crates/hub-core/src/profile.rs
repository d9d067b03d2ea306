//! One ClusterProfile, from the shares of its owners to the one difference to write.
//!
//! Several controllers own parts of a profile: the projector its metadata, spec, version, properties and two
//! conditions; the provisioner one access provider. Each says what it wants ([`Share`]); [`plan`] joins the
//! shares, compares them with what is there ([`ObservedProfile`]) and answers the writes that are left to do, which
//! are none when nothing differs: consumers drop their caches and reconnect on every write.
//!
//! Status lists are written whole, under a resourceVersion precondition, with everybody else's entries kept
//! as they are: that is right on both CRD flavours, while a server-side apply of one entry is safe only
//! where the lists are maps. Unknown fields of other people's entries survive, because entries are compared
//! and kept as JSON.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::cluster_profile::{
    AccessProvider, ClusterManager, ClusterProfile, ClusterProfileSpec, Property,
};
use hub_api::labels;
use hub_api::names::{ManagerName, ProfileKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::label_allow_list::LabelAllowList;
use crate::member_id::{MemberId, MemberIdDecision, MemberIdRecord};
use crate::note::{Note, Reason};
use crate::version::Version;

/// What an owner wants of one profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Share {
    /// Whether the profile should be there.
    pub presence: Presence,
    /// What its status should say.
    pub status: StatusShare,
}

/// Whether a profile should exist. At most one owner of a profile decides that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Presence {
    /// Another owner's business, perhaps in another process.
    #[default]
    Undecided,
    /// It should exist, with this metadata and spec.
    Wanted(Identity),
    /// It should not exist.
    Unwanted,
    /// Not to be decided now: keep it true where it exists; neither create nor delete it.
    Kept(Identity),
}

impl Presence {
    /// Whether this owner shows a cluster here.
    #[must_use]
    pub fn is_wanted_or_kept(&self) -> bool {
        self.identity().is_some()
    }

    /// What the profile should be, where it should be or is kept.
    fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Wanted(identity) | Self::Kept(identity) => Some(identity),
            Self::Undecided | Self::Unwanted => None,
        }
    }
}

/// The metadata and spec that the projector gives a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The labels that are ours.
    pub labels: BTreeMap<String, String>,
    /// The member ID among them, which a profile that has another may keep.
    pub member_id: MemberId,
    /// Labels with these keys are ours too: what is not in `labels` has to go.
    pub propagated: LabelAllowList,
    /// `spec.displayName`.
    pub display_name: String,
}

/// A field of the status that one owner sets as a whole, or leaves to the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Field<T> {
    /// Not this owner's.
    #[default]
    Others,
    /// This owner's, with its value.
    Mine(T),
}

/// What one owner wants of the status.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatusShare {
    /// `version.kubernetes`; `None` for no version.
    pub version: Field<Option<String>>,
    /// `properties`, as a whole.
    pub properties: Field<Vec<Property>>,
    /// Conditions by type; conditions of other types are kept.
    pub conditions: Vec<Condition>,
    /// Access providers by name; `None` withdraws one. Providers of other names are kept.
    pub access_providers: BTreeMap<String, Option<AccessProvider>>,
}

impl StatusShare {
    /// Joins what two owners want. Owners want different things; where both claim one, whoever was asked
    /// first has it.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        if self.version == Field::Others {
            self.version = other.version;
        }
        if self.properties == Field::Others {
            self.properties = other.properties;
        }
        let ours: BTreeSet<String> = self.conditions.iter().map(|ours| ours.type_.clone()).collect();
        self.conditions.extend(other.conditions.into_iter().filter(|more| !ours.contains(&more.type_)));
        for (name, provider) in other.access_providers {
            self.access_providers.entry(name).or_insert(provider);
        }
        self
    }
}

/// A profile as the API server has it: what plans read, and no more, because a hub has thousands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedProfile {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// Who set the member ID among them, and when at the latest.
    pub member_id_record: MemberIdRecord,
    /// `spec.clusterManager.name`.
    pub manager: String,
    /// `spec.displayName`.
    pub display_name: Option<String>,
    /// `status` as JSON text, empty where there is none: a tenth of the memory that the parsed tree takes.
    status: Box<str>,
    /// Why the status cannot be read, where that is so.
    unreadable: Option<Box<str>>,
}

impl ObservedProfile {
    /// Reads a ClusterProfile from its metadata and the rest of the object.
    ///
    /// Nothing that was decoded can make it unreadable: a part that does not have its shape differs from what we
    /// want, and is written anew where it is ours.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, object: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            terminating: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            member_id_record: MemberIdRecord::read(metadata),
            manager: text(&object["spec"]["clusterManager"]["name"]).unwrap_or_default(),
            display_name: text(&object["spec"]["displayName"]),
            status: match &object["status"] {
                Value::Null => Box::default(),
                status => status.to_string().into(),
            },
            unreadable: None,
        }
    }

    /// Reads a ClusterProfile whose status cannot be decoded, for example because it nests too deep. It is deleted like
    /// any other when its time comes, but its status is left as it is: the entries of other owners would be lost.
    #[must_use]
    pub fn unreadable(metadata: &ObjectMeta, spec: &Value, error: impl Into<Box<str>>) -> Self {
        let observed = Self::read(metadata, &json!({ "spec": spec }));
        Self { unreadable: Some(error.into()), ..observed }
    }

    /// Whether the label says that the profile is this manager's. Anybody can set it: the spec has to agree.
    #[must_use]
    pub fn is_labelled(&self, manager: &ManagerName) -> bool {
        self.labels.get(labels::CLUSTER_MANAGER).is_some_and(|label| label == manager.as_str())
    }

    /// The member ID that it carries, empty or not.
    #[must_use]
    pub fn member_id(&self) -> Option<&str> {
        self.labels.get(labels::MEMBER_ID).map(String::as_str)
    }

    /// Whether anybody has written a status yet.
    #[must_use]
    pub fn has_status(&self) -> bool {
        !self.status.is_empty() || self.unreadable.is_some()
    }

    /// The entry of that name in `status.accessProviders`, if it has the shape of one.
    #[must_use]
    pub fn access_provider(&self, name: &str) -> Option<AccessProvider> {
        let status = self.status();
        let entry = status.get("accessProviders")?.as_array()?.iter().find(|entry| entry["name"] == name)?;
        AccessProvider::deserialize(entry).ok()
    }

    fn version(&self) -> Version {
        Version { uid: self.uid.clone(), resource_version: self.resource_version.clone() }
    }

    fn status(&self) -> Map<String, Value> {
        serde_json::from_str(&self.status).unwrap_or_default()
    }
}

/// What is left to do for one profile, and what to tell a person.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfilePlan {
    /// The next write.
    pub action: ProfileAction,
    /// The findings on the profile.
    pub notes: Vec<Note>,
}

/// The next write. After it, the plan is made anew from what the API server answered, so that a profile is
/// brought to its end one write at a time: object, then status.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ProfileAction {
    /// Nothing differs, or nothing may be done.
    #[default]
    Nothing,
    /// Create this object. Its status comes with the next write: the status subresource takes none here.
    Create(Box<ClusterProfile>),
    /// Merge a patch into metadata and spec of exactly this version.
    PatchObject(Version, Value),
    /// Merge a patch into the status subresource of exactly this version.
    PatchStatus(Version, Value),
    /// Delete the object of exactly this version.
    Delete(Version),
}

/// Plans what has to be written so that the profile at `key` is what its owners want.
#[must_use]
pub fn plan(
    key: &ProfileKey,
    manager: &ManagerName,
    observed: Option<&ObservedProfile>,
    shares: impl IntoIterator<Item = Share>,
) -> ProfilePlan {
    let share = shares.into_iter().reduce(join).unwrap_or_default();
    let Some(observed) = observed else {
        let action = match share.presence {
            Presence::Wanted(identity) => ProfileAction::Create(Box::new(new_object(key, manager, identity))),
            _ => ProfileAction::Nothing,
        };
        return ProfilePlan { action, notes: Vec::new() };
    };
    match guard(manager, observed, &share.presence) {
        Guard::Ours => {
            let unreadable = observed.unreadable.as_ref().map(|error| {
                let message = format!("its status cannot be read and is left as it is: {error}");
                Note::new(Reason::Unreadable, message)
            });
            let member_id = share.presence.identity().and_then(|identity| {
                identity.member_id.note(observed.member_id(), observed.member_id_record)
            });
            let notes = unreadable.into_iter().chain(member_id).collect();
            ProfilePlan { action: difference(observed, &share), notes }
        }
        Guard::HandsOff(notes) => ProfilePlan { action: ProfileAction::Nothing, notes },
    }
}

fn difference(observed: &ObservedProfile, share: &Share) -> ProfileAction {
    let object = match &share.presence {
        Presence::Unwanted => return ProfileAction::Delete(observed.version()),
        Presence::Wanted(identity) | Presence::Kept(identity) => object_patch(observed, identity),
        Presence::Undecided => None,
    };
    if let Some(patch) = object {
        return ProfileAction::PatchObject(observed.version(), patch);
    }
    if observed.unreadable.is_some() {
        return ProfileAction::Nothing;
    }
    match status_patch(&observed.status(), &share.status) {
        Some(patch) => ProfileAction::PatchStatus(observed.version(), patch),
        None => ProfileAction::Nothing,
    }
}

fn join(first: Share, second: Share) -> Share {
    let presence = match first.presence {
        Presence::Undecided => second.presence,
        decided => decided,
    };
    Share { presence, status: first.status.join(second.status) }
}

enum Guard {
    Ours,
    HandsOff(Vec<Note>),
}

/// Whether the profile is ours to write. The manager in its spec is immutable and decides; to delete it, or
/// to add to a profile that another process projects, the label has to agree.
fn guard(manager: &ManagerName, observed: &ObservedProfile, presence: &Presence) -> Guard {
    let hands_off = |note: Option<(Reason, String)>| {
        Guard::HandsOff(note.map(|(reason, message)| Note::new(reason, message)).into_iter().collect())
    };
    let wanted = matches!(presence, Presence::Wanted(_));
    if observed.manager != manager.as_str() {
        return hands_off(wanted.then(|| {
            (
                Reason::ForeignProfile,
                format!(
                    "belongs to cluster manager {:?} and is left alone; it stands where {manager:?} would show \
                     a cluster that is granted to this namespace",
                    observed.manager,
                    manager = manager.as_str(),
                ),
            )
        }));
    }
    if observed.terminating {
        let held = !observed.finalizers.is_empty() && *presence != Presence::Undecided;
        return hands_off(held.then(|| {
            let finalizers = observed.finalizers.join(", ");
            let message = if wanted {
                format!(
                    "is being deleted although its cluster is granted to this namespace; it is made anew once \
                     these finalizers let it go: {finalizers}"
                )
            } else {
                format!("is being deleted and held by these finalizers: {finalizers}")
            };
            (Reason::ProfileTerminating, message)
        }));
    }
    let labelled = observed.is_labelled(manager);
    match presence {
        Presence::Wanted(_) | Presence::Kept(_) => Guard::Ours,
        Presence::Unwanted | Presence::Undecided if labelled => Guard::Ours,
        Presence::Undecided => hands_off(None),
        Presence::Unwanted => hands_off(Some((
            Reason::UnlabelledProfile,
            format!(
                "its cluster is not granted to this namespace, but without the label {}={manager} it is not \
                 taken for ours: delete it by hand or put the label back",
                labels::CLUSTER_MANAGER
            ),
        ))),
    }
}

fn new_object(key: &ProfileKey, manager: &ManagerName, identity: Identity) -> ClusterProfile {
    let spec = ClusterProfileSpec {
        display_name: Some(identity.display_name),
        cluster_manager: ClusterManager { name: manager.to_string() },
    };
    let mut profile = ClusterProfile::new(key.cluster.as_str(), spec);
    profile.metadata.namespace = Some(key.namespace.to_string());
    profile.metadata.labels = Some(identity.labels);
    profile
}

/// The merge patch that repairs labels and display name, if they differ.
fn object_patch(observed: &ObservedProfile, identity: &Identity) -> Option<Value> {
    let keeps_member_id =
        identity.member_id.decide(observed.member_id(), observed.member_id_record) == MemberIdDecision::Keep;
    let mut labels: Map<String, Value> = identity
        .labels
        .iter()
        .filter(|(key, value)| observed.labels.get(*key) != Some(*value))
        .filter(|(key, _)| !(keeps_member_id && *key == labels::MEMBER_ID))
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect();
    let stale = observed.labels.keys().filter(|key| {
        !identity.labels.contains_key(*key)
            && (*key == labels::CLUSTER_SET || identity.propagated.allows(key))
    });
    labels.extend(stale.map(|key| (key.clone(), Value::Null)));

    let mut patch = Map::new();
    if !labels.is_empty() {
        patch.insert("metadata".to_owned(), json!({ "labels": labels }));
    }
    if observed.display_name.as_ref() != Some(&identity.display_name) {
        patch.insert("spec".to_owned(), json!({"displayName": identity.display_name}));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The merge patch that brings a status to what the share wants of it, if it differs.
fn status_patch(observed: &Map<String, Value>, share: &StatusShare) -> Option<Value> {
    let mut patch = Map::new();
    if let Field::Mine(version) = &share.version {
        let shown = observed.get("version").and_then(|version| version["kubernetes"].as_str());
        if shown != version.as_deref() {
            patch.insert("version".to_owned(), json!({ "kubernetes": version }));
        }
    }
    let mut list = |field: &str, wanted: &dyn Fn(&[Value]) -> Vec<Value>| {
        let there = observed.get(field).unwrap_or(&Value::Null);
        let shown = there.as_array().map(Vec::as_slice).unwrap_or_default();
        let wanted = wanted(shown);
        if wanted != shown || !(there.is_array() || there.is_null()) {
            let value = if wanted.is_empty() { Value::Null } else { Value::Array(wanted) };
            patch.insert(field.to_owned(), value);
        }
    };
    if let Field::Mine(properties) = &share.properties {
        let properties: Vec<Value> = properties.iter().map(to_json).collect();
        list("properties", &|shown| {
            if same_entries(shown, &properties) { shown.to_vec() } else { properties.clone() }
        });
    }
    let conditions = share.conditions.iter().map(|condition| (&condition.type_, Some(to_json(condition))));
    let conditions: BTreeMap<_, _> = conditions.collect();
    if !conditions.is_empty() {
        list("conditions", &|shown| with_entries(shown, "type", &conditions));
    }

    let providers = share.access_providers.iter();
    let providers: BTreeMap<_, _> =
        providers.map(|(name, provider)| (name, provider.as_ref().map(to_json))).collect();
    if !providers.is_empty() {
        list("accessProviders", &|shown| with_entries(shown, "name", &providers));
    }

    (!patch.is_empty()).then(|| json!({ "status": patch }))
}

/// A list with our entries set or taken out and the others' kept, in the order that is there. An entry of
/// ours that is there twice (an atomic list allows that) is there once afterwards.
fn with_entries(shown: &[Value], key: &str, ours: &BTreeMap<&String, Option<Value>>) -> Vec<Value> {
    let mut left = ours.clone();
    let name_of = |entry: &Value| entry[key].as_str().map(str::to_owned);
    let mut list: Vec<Value> = shown
        .iter()
        .filter_map(|entry| match name_of(entry) {
            Some(name) if ours.contains_key(&name) => left.remove(&name).flatten(),
            _ => Some(entry.clone()),
        })
        .collect();
    list.extend(left.into_values().flatten());
    list
}

/// Whether two lists hold the same entries, in whatever order: order is no difference worth a write.
fn same_entries(one: &[Value], other: &[Value]) -> bool {
    let sorted = |list: &[Value]| {
        let mut list: Vec<String> = list.iter().map(Value::to_string).collect();
        list.sort_unstable();
        list
    };
    one.len() == other.len() && sorted(one) == sorted(other)
}

/// The JSON of an API type. These types have text keys and finite numbers, so they always have one.
fn to_json(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
