//! One ClusterProfile: from what its owners desire to the next write.
//!
//! Several controllers own parts of a profile: the projector its metadata, spec, version, properties and two
//! conditions; the provisioner one access provider. Each returns what it desires ([`Desired`]); [`plan`] joins these,
//! compares them with the [`ObservedProfile`] and returns the next write, if anything differs: consumers drop their
//! caches and reconnect on every write.
//!
//! Lists in the status are written whole, with a resourceVersion precondition, and entries of others are preserved:
//! this is correct with both CRD flavours, while server-side apply of one entry is safe only with map lists
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy>). Unknown fields of other
//! owners' entries are preserved, because entries are compared and kept as JSON.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use hub_api::cluster_profile::{
    AccessProvider, ClusterManager, ClusterProfile, ClusterProfileSpec, ClusterVersion, Property,
    StoredProfile,
};
use hub_api::labels;
use hub_api::names::{ManagerName, ProfileKey};
use hub_api::text::Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::action::Action;
use crate::effort;
use crate::finding::{Finding, Reason};
use crate::label_allow_list::LabelAllowList;
use crate::label_set::LabelSet;
use crate::member_id::{MemberId, MemberIdRecord};
use crate::status_text::StatusText;
use crate::version::Version;

/// The maximum number of `status.accessProviders` in v1alpha2. It applies to every version, so that our entry stays
/// valid when the hub begins to serve v1alpha2.
const MAX_ACCESS_PROVIDERS: usize = 64;

/// The desired state of one owner's part of a profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// Whether the profile should exist.
    pub presence: Presence,
    /// The desired status.
    pub status: DesiredStatus,
}

/// Whether a profile should exist. At most one owner of a profile decides this.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Presence {
    /// Decided by another owner, possibly in another process.
    #[default]
    Undecided,
    /// It should exist, with this metadata and spec.
    Wanted(Identity),
    /// It should not exist.
    Unwanted,
    /// Unknown: update it if it exists; neither create nor delete it.
    Kept(Identity),
}

impl Presence {
    /// The desired identity, if the profile is wanted or kept.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Wanted(identity) | Self::Kept(identity) => Some(identity),
            Self::Undecided | Self::Unwanted => None,
        }
    }
}

/// The metadata and spec that the projector gives a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The labels that the project owns.
    pub labels: BTreeMap<String, String>,
    /// The member ID among them; a profile with another ID may keep it.
    pub member_id: MemberId,
    /// Labels with these keys are owned as well: those that are not in `labels` are removed.
    pub propagated: LabelAllowList,
    /// `spec.displayName`.
    pub display_name: String,
}

/// The desired status of one owner. `None` leaves a field to the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredStatus {
    /// `version`, as a whole.
    pub version: Option<ClusterVersion>,
    /// `properties`, as a whole.
    pub properties: Option<Vec<Property>>,
    /// Conditions by type; conditions of other types are kept.
    pub conditions: Vec<Condition>,
    /// Access providers by name; `None` withdraws one. Providers with other names are preserved. Entries with these
    /// names are removed from the deprecated `status.credentialProviders`.
    pub access_providers: Vec<(String, Option<AccessProvider>)>,
}

impl DesiredStatus {
    /// Joins what two owners desire. Owners have disjoint parts; if both claim one, the first takes precedence.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.version = self.version.or(other.version);
        self.properties = self.properties.or(other.properties);
        let Self { conditions, access_providers, .. } = &mut self;
        for more in other.conditions {
            if conditions.iter().all(|ours| ours.type_ != more.type_) {
                conditions.push(more);
            }
        }
        for more in other.access_providers {
            if access_providers.iter().all(|ours| ours.0 != more.0) {
                access_providers.push(more);
            }
        }
        self
    }
}

/// A profile on the API server, reduced to what plans need, because a hub has thousands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedProfile {
    pub version: Version,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    pub finalizers: Vec<String>,
    pub labels: LabelSet,
    /// Whether another field manager owns the member ID, and when the profile was created.
    pub member_id_record: MemberIdRecord,
    /// `spec.clusterManager.name`.
    pub manager: Text,
    /// `spec.displayName`.
    pub display_name: Option<Text>,
    /// `status`, if there is one.
    status: Option<StatusText>,
    /// Why the status cannot be read, if so.
    unreadable: Option<Box<str>>,
}

impl ObservedProfile {
    /// Reads a ClusterProfile from its metadata and the rest of the object.
    ///
    /// Any decoded object is readable: a part that does not match its schema differs from the desired state, and is
    /// rewritten if it is ours.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, object: &Value) -> Self {
        let status = Some(&object["status"]).filter(|status| !status.is_null());
        Self::from_parts(
            metadata,
            &object["spec"],
            status.map(|status| status.to_string().as_str().into()),
        )
    }

    /// Reads a stored ClusterProfile, as [`Self::read`] does.
    #[must_use]
    pub fn of(profile: &StoredProfile) -> Self {
        let status = profile.status.as_ref().map(|status| status.get().into());
        Self::from_parts(&profile.metadata, &profile.spec, status)
    }

    fn from_parts(metadata: &ObjectMeta, spec: &Value, status: Option<StatusText>) -> Self {
        Self {
            version: Version::of(metadata),
            terminating: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            labels: metadata.labels.as_ref().map(LabelSet::from).unwrap_or_default(),
            member_id_record: MemberIdRecord::read(metadata),
            manager: spec["clusterManager"]["name"].as_str().unwrap_or_default().into(),
            display_name: spec["displayName"].as_str().map(Text::from),
            status,
            unreadable: None,
        }
    }

    /// Reads a ClusterProfile whose status cannot be decoded, for example because it nests too deep. It is deleted like
    /// any other, but its status is not written: the entries of other owners would be lost.
    #[must_use]
    pub fn unreadable(metadata: &ObjectMeta, spec: &Value, error: impl Into<Box<str>>) -> Self {
        let observed = Self::from_parts(metadata, spec, None);
        Self { unreadable: Some(error.into()), ..observed }
    }

    /// Whether the label names this manager. Any writer can set the label, so the spec must be compared, too.
    #[must_use]
    pub fn is_labelled(&self, manager: &ManagerName) -> bool {
        self.labels.get(labels::CLUSTER_MANAGER) == Some(manager.as_str())
    }

    /// The member ID label, possibly empty.
    #[must_use]
    pub fn member_id(&self) -> Option<&str> {
        self.labels.get(labels::MEMBER_ID)
    }

    #[must_use]
    pub fn has_status(&self) -> bool {
        self.status.is_some() || self.unreadable.is_some()
    }

    /// The entry of that name in `status.accessProviders`, if valid.
    #[must_use]
    pub fn access_provider(&self, name: &str) -> Option<AccessProvider> {
        let status = self.status_text();
        let mut entries = access_providers(&status).into_iter();
        entries
            .find(|entry| is_named(entry, name))
            .and_then(|entry| serde_json::from_str(entry.get()).ok())
    }

    /// Whether `status.accessProviders` has an entry of another name.
    pub(crate) fn has_other_access_provider(&self, name: &str) -> bool {
        access_providers(&self.status_text()).into_iter().any(|entry| !is_named(entry, name))
    }

    /// The entry of that name, if `status.accessProviders` has exactly one, which can be read.
    pub(crate) fn lone_access_provider(&self, name: &str) -> Option<AccessProvider> {
        let status = self.status_text();
        let mut of_the_name =
            access_providers(&status).into_iter().filter(|entry| is_named(entry, name));
        let entry = of_the_name.next().filter(|_| of_the_name.next().is_none())?;
        serde_json::from_str(entry.get()).ok()
    }

    /// Whether `status.accessProviders` has an entry of that name, or room for one.
    #[must_use]
    pub fn has_room_for(&self, name: &str) -> bool {
        // Names may be cut out of the outline, so it can only be counted.
        let outline = self.status.as_ref().map(StatusText::outline).unwrap_or_default();
        if access_providers(outline).len() < MAX_ACCESS_PROVIDERS {
            return true;
        }
        let status = self.status_text();
        let others = access_providers(&status).into_iter().filter(|entry| !is_named(entry, name));
        others.count() < MAX_ACCESS_PROVIDERS
    }

    /// The status, which profiles with the same one share.
    pub(crate) fn shared_status(&self) -> Option<&StatusText> {
        self.status.as_ref()
    }

    fn status(&self) -> Map<String, Value> {
        serde_json::from_str(&self.status_text()).unwrap_or_default()
    }

    fn status_text(&self) -> String {
        self.status.as_ref().map(StatusText::whole).unwrap_or_default()
    }
}

/// The entries of `accessProviders` in the text of a status. Parsing the rest as well would cost ten times as much.
fn access_providers(status: &str) -> Vec<&RawValue> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Status<'a> {
        #[serde(borrow)]
        access_providers: Option<&'a RawValue>,
    }
    let status = serde_json::from_str::<Status<'_>>(status).unwrap_or_default();
    status
        .access_providers
        .and_then(|list| serde_json::from_str(list.get()).ok())
        .unwrap_or_default()
}

fn is_named(entry: &RawValue, name: &str) -> bool {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    serde_json::from_str::<Named<'_>>(entry.get()).is_ok_and(|entry| entry.name == name)
}

/// The next write to one profile, and its findings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfilePlan {
    pub action: ProfileAction,
    pub findings: Vec<Finding>,
}

/// The next write: metadata and spec first, then the status.
pub type ProfileAction = Action<Box<ClusterProfile>, Value>;

/// Plans the next write that moves the profile at `key` towards what its owners desire.
#[must_use]
pub fn plan(
    key: &ProfileKey,
    manager: &ManagerName,
    observed: Option<&ObservedProfile>,
    desired: impl IntoIterator<Item = Desired>,
) -> ProfilePlan {
    effort::count(|spent| spent.plans += 1);
    let desired = desired.into_iter().reduce(join).unwrap_or_default();
    let Some(observed) = observed else {
        let action = match desired.presence {
            Presence::Wanted(identity) => {
                ProfileAction::Create(Box::new(new_object(key, manager, identity)))
            }
            _ => ProfileAction::Nothing,
        };
        return ProfilePlan { action, findings: Vec::new() };
    };
    if let Err(finding) = guard(manager, observed, &desired.presence) {
        return ProfilePlan {
            action: ProfileAction::Nothing,
            findings: finding.into_iter().collect(),
        };
    }
    let unreadable = observed.unreadable.as_ref().map(|error| {
        let message = format!("its status cannot be read and is not changed: {error}");
        Finding::new(Reason::Unreadable, message)
    });
    let member_id = desired.presence.identity().and_then(|identity| {
        identity.member_id.finding(observed.member_id(), observed.member_id_record)
    });
    let status = observed.status();
    let ours = desired.status.access_providers.iter();
    let ours: Vec<_> = ours.map(|(name, entry)| of_name(name, entry.as_ref())).collect();
    let providers = Providers::of(&status, &ours);
    let findings = unreadable.into_iter().chain(member_id).chain(providers.finding()).collect();
    ProfilePlan { action: difference(observed, &status, &desired, &providers), findings }
}

/// The names of the properties that a write changes in a profile that has a status already.
#[must_use]
pub fn changed_properties(
    observed: Option<&ObservedProfile>,
    action: &ProfileAction,
) -> BTreeSet<String> {
    let ProfileAction::PatchStatus(_, patch) = action else { return BTreeSet::new() };
    let Some(wanted) = patch["status"].get("properties") else { return BTreeSet::new() };
    let wanted = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
    let observed = observed.filter(|observed| observed.has_status());
    let Some(status) = observed.map(ObservedProfile::status) else { return BTreeSet::new() };
    let shown = entries(&status, "properties");
    let added = wanted.iter().filter(|property| !shown.contains(property));
    let removed = shown.iter().filter(|property| !wanted.contains(property));
    let names = added.chain(removed).filter_map(|property| property["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Takes the properties out of a write.
pub fn without_properties(action: &mut ProfileAction) {
    let ProfileAction::PatchStatus(_, patch) = action else { return };
    let Some(status) = patch["status"].as_object_mut() else { return };
    status.remove("properties");
    if status.is_empty() {
        *action = ProfileAction::Nothing;
    }
}

fn difference(
    observed: &ObservedProfile,
    status: &Map<String, Value>,
    desired: &Desired,
    providers: &Providers<'_>,
) -> ProfileAction {
    let version = observed.version.clone();
    if desired.presence == Presence::Unwanted {
        return ProfileAction::Delete(version);
    }
    if let Some(patch) =
        desired.presence.identity().and_then(|identity| object_patch(observed, identity))
    {
        return ProfileAction::Patch(version, patch);
    }
    let patch = status_patch(status, &desired.status, providers);
    match patch.filter(|_| observed.unreadable.is_none()) {
        Some(patch) => ProfileAction::PatchStatus(version, patch),
        None => ProfileAction::Nothing,
    }
}

fn join(first: Desired, second: Desired) -> Desired {
    let presence = match first.presence {
        Presence::Undecided => second.presence,
        decided => decided,
    };
    Desired { presence, status: first.status.join(second.status) }
}

/// Returns whether the profile may be written, and if not, the finding on that.
///
/// The manager in its spec is immutable and decides. To delete the profile, or to add to one that another process
/// projects, the label must agree.
fn guard(
    manager: &ManagerName,
    observed: &ObservedProfile,
    presence: &Presence,
) -> Result<(), Option<Finding>> {
    let wanted = matches!(presence, Presence::Wanted(_));
    if observed.manager.is_empty()
        && observed.is_labelled(manager)
        && *presence != Presence::Undecided
    {
        let message = format!(
            "has the label {}={manager} and no spec.clusterManager.name, which cannot be changed, so it is no \
             manager's and is not changed: delete it",
            labels::CLUSTER_MANAGER
        );
        return Err(Some(Finding::new(Reason::ForeignProfile, message)));
    }
    if observed.manager != manager.as_str() {
        return Err(wanted.then(|| {
            let message = format!(
                "belongs to cluster manager {:?} and is not changed; because it exists, {manager:?} cannot \
                 create its own profile of a cluster that is granted to this namespace",
                observed.manager,
                manager = manager.as_str(),
            );
            Finding::new(Reason::ForeignProfile, message)
        }));
    }
    if observed.terminating {
        let held = !observed.finalizers.is_empty() && *presence != Presence::Undecided;
        return Err(held.then(|| {
            let finalizers = observed.finalizers.join(", ");
            let message = if wanted {
                format!(
                    "is being deleted although its cluster is granted to this namespace; it is recreated after \
                     these finalizers have been removed: {finalizers}"
                )
            } else {
                format!("is being deleted and waits for these finalizers to be removed: {finalizers}")
            };
            Finding::new(Reason::ProfileTerminating, message)
        }));
    }
    if presence.identity().is_some() || observed.is_labelled(manager) {
        return Ok(());
    }
    Err((*presence == Presence::Unwanted).then(|| {
        let message = format!(
            "is not deleted although its cluster is not granted to this namespace, because it lacks the \
             label {}={manager}: delete it or restore the label",
            labels::CLUSTER_MANAGER
        );
        Finding::new(Reason::UnlabelledProfile, message)
    }))
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
    let keeps_member_id = identity.member_id.keeps(observed.member_id(), observed.member_id_record);
    let mut labels: Map<String, Value> = identity
        .labels
        .iter()
        .filter(|(key, value)| observed.labels.get(key) != Some(value))
        .filter(|(key, _)| !(keeps_member_id && *key == labels::MEMBER_ID))
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect();
    // OCM's own projector gives the profile of a cluster without an exclusive set this label with an empty value, and
    // restores it whenever it is removed. Empty means the same as absent, so it is left.
    let stale = observed.labels.iter().filter(|(key, value)| {
        !identity.labels.contains_key(*key)
            && ((*key == labels::CLUSTER_SET && !value.is_empty())
                || identity.propagated.allows(key))
    });
    labels.extend(stale.map(|(key, _)| (key.to_owned(), Value::Null)));

    let mut patch = Map::new();
    if !labels.is_empty() {
        patch.insert("metadata".to_owned(), json!({ "labels": labels }));
    }
    if observed.display_name.as_deref() != Some(&identity.display_name) {
        patch.insert("spec".to_owned(), json!({"displayName": identity.display_name}));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The merge patch that changes a status to the desired one, if it differs.
fn status_patch(
    observed: &Map<String, Value>,
    desired: &DesiredStatus,
    providers: &Providers<'_>,
) -> Option<Value> {
    let mut patch = Map::new();
    if let Some(ClusterVersion { kubernetes }) = &desired.version {
        let shown = observed.get("version").and_then(|version| version["kubernetes"].as_str());
        if shown != kubernetes.as_deref() {
            patch.insert("version".to_owned(), json!({ "kubernetes": kubernetes }));
        }
    }
    let mut set_list = |field: &str, wanted: &[&Value]| {
        let is_list = observed.get(field).is_none_or(|there| there.is_array() || there.is_null());
        if !is_list || !wanted.iter().copied().eq(entries(observed, field)) {
            let list = wanted.iter().copied().cloned().collect();
            patch.insert(field.to_owned(), if wanted.is_empty() { Value::Null } else { list });
        }
    };
    if let Some(properties) = &desired.properties {
        let shown = entries(observed, "properties");
        let wanted: Vec<Value> = properties.iter().map(to_json).collect();
        let is_reordered = shown != wanted && same_entries(shown, &wanted);
        let wanted = if is_reordered { shown } else { &wanted };
        set_list("properties", &wanted.iter().collect::<Vec<_>>());
    }
    let conditions = desired.conditions.iter();
    let conditions: Vec<_> =
        conditions.map(|wanted| of_name(&wanted.type_, Some(wanted))).collect();
    if !conditions.is_empty() {
        set_list("conditions", &with_entries(entries(observed, "conditions"), "type", &conditions));
    }

    if !desired.access_providers.is_empty() {
        set_list("accessProviders", &providers.wanted);
        // Upstream's library falls back to the deprecated field for a name that accessProviders lacks, so that field
        // must never contain one of ours.
        let names = desired.access_providers.iter().map(|(name, _)| (name.as_str(), None));
        let shown = entries(observed, "credentialProviders");
        set_list("credentialProviders", &with_entries(shown, "name", &names.collect::<Vec<_>>()));
    }

    (!patch.is_empty()).then(|| json!({ "status": patch }))
}

/// The desired `status.accessProviders`, within the limit of the API.
struct Providers<'a> {
    wanted: Vec<&'a Value>,
    /// The number of existing entries.
    shown: usize,
    /// Our entries that are not as desired, because the list has no room.
    left: Vec<&'a str>,
}

impl<'a> Providers<'a> {
    /// Adds no entry of ours to a full list, and changes nothing in a list beyond the limit, since the API server
    /// refuses every change of it. Entries of others are never removed.
    fn of(status: &'a Map<String, Value>, ours: &'a [Named<'a>]) -> Self {
        let shown = entries(status, "accessProviders");
        let there = |name: &str| shown.iter().find(|entry| entry["name"] == name);
        let (mut new, others): (Vec<_>, Vec<_>) =
            ours.iter().partition(|(name, entry)| entry.is_some() && there(name).is_none());
        let (mut wanted, mut left) = (with_entries(shown, "name", ours), Vec::new());
        // Gives up our last new entry, which is the last of the list; if none is new, every change.
        while wanted.len() > MAX_ACCESS_PROVIDERS {
            let Some((name, _)) = new.pop() else {
                let differ = others.iter().filter(|(name, entry)| there(name) != entry.as_ref());
                left.extend(differ.map(|(name, _)| *name));
                wanted = shown.iter().collect();
                break;
            };
            wanted.pop();
            left.push(*name);
        }
        Self { wanted, shown: shown.len(), left }
    }

    fn finding(&self) -> Option<Finding> {
        let names = self.left.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        let message = format!(
            "status.accessProviders has {} entries and the API takes at most {MAX_ACCESS_PROVIDERS}: the entry {names} is \
             not written until another entry is removed",
            self.shown
        );
        (!self.left.is_empty()).then(|| Finding::new(Reason::TooManyAccessProviders, message))
    }
}

/// The entries of a list in a status; none if it is not a list.
fn entries<'a>(status: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    status.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// An entry of ours by its name; `None` removes it.
type Named<'a> = (&'a str, Option<Value>);

fn of_name<'a>(name: &'a str, entry: Option<&impl serde::Serialize>) -> Named<'a> {
    (name, entry.map(to_json))
}

/// The list with our entries set or removed and the others' preserved, in the existing order; new ones come last. A
/// duplicate entry of ours (an atomic list allows it) is removed.
fn with_entries<'a>(shown: &'a [Value], key: &str, ours: &'a [Named<'_>]) -> Vec<&'a Value> {
    let mut left: Vec<_> = ours.iter().map(|(_, entry)| entry.as_ref()).collect();
    let position = |entry: &Value| ours.iter().position(|(name, _)| entry[key] == *name);
    let mut list: Vec<_> = shown
        .iter()
        .filter_map(|entry| position(entry).map_or(Some(entry), |ours| left[ours].take()))
        .collect();
    list.extend(left.into_iter().flatten());
    list
}

/// Whether two lists have the same entries in any order: order alone is no reason for a write.
fn same_entries(one: &[Value], other: &[Value]) -> bool {
    let sorted = |list: &[Value]| {
        let mut list: Vec<String> = list.iter().map(Value::to_string).collect();
        list.sort_unstable();
        list
    };
    one.len() == other.len() && sorted(one) == sorted(other)
}

/// The JSON of an API type. These types have string keys and finite numbers, so serialization cannot fail.
fn to_json(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
