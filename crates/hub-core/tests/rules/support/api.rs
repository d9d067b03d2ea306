//! The API server as far as a ClusterProfile sees it: what each write does to the object, and which writes
//! it would turn away. A write that it would turn away, or that changes nothing, panics.

use hub_api::names::{ManagerName, ProfileKey};
use hub_core::fleet::Fleet;
use hub_core::profile::{Desired, ObservedProfile, ProfileAction, ProfilePlan, plan};
use hub_core::project::{self, ProjectionSettings};
use hub_core::version::Version;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::NOON;

/// More writes than any profile needs: exceeding it means an endless loop.
const TOO_MANY_WRITES: usize = 8;

/// Reads a ClusterProfile as a watch does.
pub fn observe(object: &Value) -> ObservedProfile {
    let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
    let mut rest = object.clone();
    rest.as_object_mut().unwrap().remove("metadata");
    ObservedProfile::read(&metadata, &rest)
}

/// What these owners plan for a profile.
pub fn plan_of(
    key: &ProfileKey,
    manager: &ManagerName,
    object: Option<&Value>,
    desired: impl IntoIterator<Item = Desired>,
) -> ProfilePlan {
    plan(key, manager, object.map(observe).as_ref(), desired)
}

/// What the projector alone plans for a profile.
pub fn projection_of(
    fleet: &Fleet,
    key: &ProfileKey,
    settings: &ProjectionSettings,
    object: Option<&Value>,
) -> ProfilePlan {
    plan_of(key, &settings.manager, object, [project::desired(fleet, key, settings)])
}

/// A profile for which nothing is left to do, and what was written until then.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The object, where there is one.
    pub object: Option<Value>,
    /// The writes, in their order.
    pub writes: Vec<ProfileAction>,
}

/// Plans and writes until nothing is left to do.
pub fn settle(
    key: &ProfileKey,
    manager: &ManagerName,
    mut object: Option<Value>,
    desired: &[Desired],
) -> Settled {
    let mut writes = Vec::new();
    while writes.len() < TOO_MANY_WRITES {
        let plan = plan_of(key, manager, object.as_ref(), desired.iter().cloned());
        if plan.action == ProfileAction::Nothing {
            return Settled { object, writes };
        }
        object = write(object, &plan.action);
        writes.push(plan.action);
    }
    panic!("{key} is written for ever: {writes:?}");
}

/// The projector alone plans and writes until nothing is left to do.
pub fn settle_projection(
    fleet: &Fleet,
    key: &ProfileKey,
    settings: &ProjectionSettings,
    object: Option<Value>,
) -> Settled {
    settle(key, &settings.manager, object, &[project::desired(fleet, key, settings)])
}

/// The object after a write.
pub fn write(object: Option<Value>, action: &ProfileAction) -> Option<Value> {
    match action {
        ProfileAction::Nothing => object,
        ProfileAction::DeleteByUid(_) => panic!("whatever its labels say"),
        ProfileAction::Create(profile) => {
            assert_eq!(object, None, "AlreadyExists");
            let mut created = serde_json::to_value(profile).unwrap();
            created.as_object_mut().unwrap().remove("status");
            created["metadata"]["uid"] = json!("uid-of-new-profile");
            created["metadata"]["creationTimestamp"] = json!(NOON);
            created["metadata"]["resourceVersion"] = json!("1");
            Some(created)
        }
        ProfileAction::Patch(version, patch) => {
            assert_keys(patch, &["metadata", "spec"]);
            assert_keys(&patch["metadata"], &["labels"]);
            assert_keys(&patch["spec"], &["displayName"]);
            Some(patched(object, version, patch))
        }
        ProfileAction::PatchStatus(version, patch) => {
            assert_keys(patch, &["status"]);
            Some(patched(object, version, patch))
        }
        ProfileAction::Delete(version) => {
            let mut left = under(object, version);
            let held =
                left["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
            left["metadata"]["deletionTimestamp"] = json!(NOON);
            raise_version(&mut left);
            held.then_some(left)
        }
    }
}

/// A merge patch may say nothing about fields that are not its own.
fn assert_keys(patch: &Value, allowed: &[&str]) {
    for key in patch.as_object().into_iter().flat_map(|patch| patch.keys()) {
        assert!(allowed.contains(&key.as_str()), "{key} in {patch}");
    }
}

fn patched(object: Option<Value>, version: &Version, patch: &Value) -> Value {
    let before = under(object, version);
    let mut after = before.clone();
    json_patch::merge(&mut after, patch);
    assert_ne!(before, after, "a write without a difference: {patch}");
    raise_version(&mut after);
    after
}

/// The object, if it is of this very version.
fn under(object: Option<Value>, version: &Version) -> Value {
    let object = object.expect("NotFound");
    let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    let current = Version {
        uid: text("uid").as_str().into(),
        resource_version: text("resourceVersion").into(),
    };
    assert_eq!(&current, version, "Conflict");
    object
}

pub fn raise_version(object: &mut Value) {
    let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
}
