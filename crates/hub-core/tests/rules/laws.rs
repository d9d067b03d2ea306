//! Laws for every fleet and every profile, whatever their history.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::cluster_profile::AccessProvider;
use hub_api::names::ProfileKey;
use hub_core::fleet::{BoundSource, Fleet, Touched};
use hub_core::grant::{Grant, decide, is_among, namespaces_of};
use hub_core::profile::{Desired, DesiredStatus, ProfileAction, ProfilePlan};
use hub_core::project::{self, ProjectionSettings};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::concerned::{Profiles, concerned_by};
use crate::support::api::{Settled, observe, projection_of, settle, settle_projection};
use crate::support::arbitrary::{Hub, Past, hub, hub_and_steps, keys, pasts};
use crate::support::limits::{emptiness, faults};
use crate::support::portions::{has_our_label, has_our_spec, is_terminating, of_others, of_ours};
use crate::support::{IN_SET, cases, fleet_where, with};

/// Every case is about all the profiles that a hub can have. Failures are not kept in files: those that
/// matter become examples.
/// A hub with its current profiles.
#[derive(Debug)]
struct Scene {
    settings: ProjectionSettings,
    fleet: Fleet,
    profiles: BTreeMap<ProfileKey, Option<Value>>,
}

impl Scene {
    fn new(hub: Hub, pasts: &BTreeMap<ProfileKey, Past>) -> Self {
        let fleet = hub.fleet();
        let profile =
            |(key, past): (&ProfileKey, &Past)| (key.clone(), past.profile(&hub, &fleet, key));
        Self { profiles: pasts.iter().map(profile).collect(), fleet, settings: hub.settings }
    }

    fn grant(&self, key: &ProfileKey) -> Grant {
        decide(&self.fleet, key)
    }

    fn desired(&self, key: &ProfileKey) -> Desired {
        project::desired(&self.fleet, key, &self.settings)
    }

    fn plan(&self, key: &ProfileKey) -> ProfilePlan {
        projection_of(&self.fleet, key, &self.settings, self.profiles[key].as_ref())
    }

    /// The result of these owners for the profile.
    fn settle(&self, key: &ProfileKey, object: Option<Value>, desired: &[Desired]) -> Settled {
        settle(key, &self.settings.manager, object, desired)
    }

    /// The result of the projector for the profile.
    fn project(&self, key: &ProfileKey) -> Settled {
        settle_projection(&self.fleet, key, &self.settings, self.profiles[key].clone())
    }

    /// The result of the projector without a profile.
    fn project_anew(&self, key: &ProfileKey) -> Settled {
        settle_projection(&self.fleet, key, &self.settings, None)
    }
}

fn scene() -> impl Strategy<Value = Scene> {
    (hub(1..=1), pasts()).prop_map(|(hub, pasts)| Scene::new(hub, &pasts))
}

/// What an owner of one access provider wants, in a process that does not project.
fn provisioner() -> impl Strategy<Value = Desired> {
    let provider = |server: &str| -> AccessProvider {
        serde_json::from_value(json!({ "name": "ours", "cluster": { "server": server } })).unwrap()
    };
    let wanted = prop_oneof![
        4 => Just(Some(provider("https://proxy/a"))), 1 => Just(Some(provider("https://new"))), 1 => Just(None),
    ];
    wanted.prop_map(|provider| {
        let access_providers = vec![("ours".to_owned(), provider)];
        Desired {
            status: DesiredStatus { access_providers, ..DesiredStatus::default() },
            ..Desired::default()
        }
    })
}

/// What every decision is at the moment.
fn decisions(
    fleet: &Fleet,
    settings: &ProjectionSettings,
) -> BTreeMap<ProfileKey, (Grant, Desired)> {
    let decision = |key: ProfileKey| {
        let decision = (decide(fleet, &key), project::desired(fleet, &key, settings));
        (key, decision)
    };
    keys().into_iter().map(decision).collect()
}

fn covers(touched: &Touched, key: &ProfileKey) -> bool {
    match touched {
        Touched::Nothing => false,
        Touched::Cluster(cluster) | Touched::Report(cluster) => *cluster == key.cluster,
        Touched::Namespaces(namespaces) => namespaces.contains(&key.namespace),
    }
}

/// A profile without the number of its writes.
fn content(object: Option<Value>) -> Option<Value> {
    object.map(|object| with(object, &json!({ "metadata": { "resourceVersion": null } })))
}

/// Whether a set selects a cluster, if that can be read, computed from the objects that [`hub`] generates.
fn selects(set: &Value, labels: &Value) -> Option<bool> {
    let (selector, env) = (&set["spec"]["clusterSelector"], &labels["env"]);
    match selector["selectorType"].as_str()? {
        "" | "ExclusiveClusterSetLabel" => return Some(labels[IN_SET] == set["metadata"]["name"]),
        "LabelSelector" => {}
        _ => return None,
    }
    let Some(selector) = selector["labelSelector"].as_object() else { return Some(false) };
    if let Some(labels) = selector.get("matchLabels") {
        return labels.get("env").map(|value| value == env);
    }
    let Some(expression) = selector.get("matchExpressions") else { return Some(true) };
    let values = expression[0]["values"].as_array()?;
    match expression[0]["operator"].as_str()? {
        "In" if !values.is_empty() => Some(values.contains(env)),
        "NotIn" => Some(!values.contains(env)),
        "DoesNotExist" => Some(env.is_null()),
        _ => None,
    }
}

/// The grant of a cluster to a namespace, computed from the hub's objects.
fn grant_by_objects(hub: &Hub, key: &ProfileKey) -> Grant {
    let objects = || hub.histories.iter().filter_map(|history| history.last()?.as_ref());
    let named = |kind: &str, name: &str| {
        objects().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    };
    let Some(cluster) = named("ManagedCluster", key.cluster.as_str()) else {
        return Grant::Refused;
    };
    if is_terminating(cluster) || cluster["spec"]["hubAcceptsClient"] == false {
        return Grant::Refused;
    }
    let says = |binding: &Value| {
        let (name, of) = (&binding["metadata"]["name"], &binding["spec"]["clusterSet"]);
        let bound = &binding["status"]["conditions"][0]["status"];
        let is_bound = hub.bound == BoundSource::Computed || bound == "True";
        let is_readable = of.is_string();
        let Some(set) = named("ManagedClusterSet", name.as_str().unwrap()) else {
            return Grant::Refused;
        };
        match selects(set, &cluster["metadata"]["labels"]) {
            _ if is_readable && !(is_bound && of == name) => Grant::Refused,
            Some(false) => Grant::Refused,
            Some(true) if is_readable => Grant::Granted,
            Some(true) | None => Grant::Unknown,
        }
    };
    let bindings = objects().filter(|object| {
        object["kind"] == "ManagedClusterSetBinding"
            && object["metadata"]["namespace"] == key.namespace.as_str()
    });
    bindings.map(says).max().unwrap_or(Grant::Refused)
}

proptest! {
    #![proptest_config(cases(128))]

    /// What cannot be read, or used, leaves a grant unknown only where nothing that can be read decides.
    #[test]
    fn a_grant_is_the_greatest_of_what_each_binding_says(hub in hub(1..=1)) {
        let fleet = hub.fleet();
        for key in keys() {
            prop_assert_eq!(decide(&fleet, &key), grant_by_objects(&hub, &key), "{}", key);
        }
    }

    /// One write for the object and one for its status. Settling asserts that each of them makes a difference, and that
    /// the plan after them is empty.
    #[test]
    fn no_profile_takes_more_than_two_writes(scene in scene()) {
        for key in keys() {
            let writes = scene.project(&key).writes;
            prop_assert!(writes.len() <= 2, "{key}: {writes:?}");
        }
    }

    #[test]
    fn our_portion_of_a_profile_is_the_same_whatever_stood_there(scene in scene()) {
        for (key, profile) in &scene.profiles {
            let out_of_reach =
                |profile: &Value| !has_our_spec(profile, &scene.settings) || is_terminating(profile);
            if profile.as_ref().is_some_and(out_of_reach) {
                continue;
            }
            if let Some(new) = scene.project_anew(key).object {
                let now = scene.project(key).object;
                prop_assert!(now.is_some());
                let now = of_ours(&now.unwrap_or_default(), &scene.settings);
                prop_assert_eq!(now, of_ours(&new, &scene.settings), "{}", key);
            }
        }
    }

    #[test]
    fn what_is_not_ours_keeps_every_byte(scene in scene()) {
        for (key, before) in &scene.profiles {
            let Some(before) = before else { continue };
            let Settled { object: Some(after), writes } = scene.project(key) else { continue };
            prop_assert_eq!(of_others(before, &scene.settings), of_others(&after, &scene.settings), "{}", key);
            if !has_our_spec(before, &scene.settings) || is_terminating(before) {
                prop_assert_eq!(writes, []);
                prop_assert_eq!(before, &after);
            }
        }
    }

    #[test]
    fn a_member_id_is_never_empty_and_changes_only_where_it_was_not_the_clusters(scene in scene()) {
        for (key, before) in &scene.profiles {
            let Settled { object: Some(after), .. } = scene.project(key) else { continue };
            if !has_our_spec(&after, &scene.settings) || is_terminating(&after) {
                continue;
            }
            if scene.grant(key) == Grant::Refused {
                continue;
            }
            let before = before.as_ref().map_or_else(|| observe(&json!({ "metadata": {} })), observe);
            let after = observe(&after);
            let member_id = project::identity(&key.cluster, scene.fleet.cluster(&key.cluster).unwrap(), &scene.settings)
                .member_id;
            let shown = before.member_id().filter(|id| !id.is_empty());
            let is_kept = member_id.keeps(before.member_id(), before.member_id_record);
            prop_assert_eq!(after.member_id(), if is_kept { shown } else { Some(member_id.value.as_str()) });
            prop_assert!(after.member_id().is_some_and(|id| !id.is_empty()), "{}", key);
        }
    }

    #[test]
    fn a_profile_is_deleted_only_if_label_and_spec_name_us(scene in scene()) {
        for (key, profile) in &scene.profiles {
            let ours = profile.as_ref().is_some_and(|profile| {
                has_our_label(profile, &scene.settings) && has_our_spec(profile, &scene.settings)
            });
            let deletes = matches!(scene.plan(key).action, ProfileAction::Delete(_));
            prop_assert!(ours || !deletes, "{key} is not ours");
        }
    }

    #[test]
    fn granted_is_never_deleted_refused_is_never_made_and_unknown_is_neither(scene in scene()) {
        for key in keys() {
            let (grant, action) = (scene.grant(&key), scene.plan(&key).action);
            let makes = matches!(action, ProfileAction::Create(_));
            let deletes = matches!(action, ProfileAction::Delete(_));
            prop_assert!(!makes || grant == Grant::Granted, "{key} is {grant:?} and made");
            prop_assert!(!deletes || grant == Grant::Refused, "{key} is {grant:?} and deleted");
        }
    }

    #[test]
    fn what_we_write_passes_both_crds_and_says_nothing_empty(scene in scene()) {
        for key in keys() {
            let Settled { object: Some(made), writes } = scene.project_anew(&key) else { continue };
            prop_assert_eq!(faults(&made), [""; 0], "{}", key);
            for write in writes {
                let written = match write {
                    ProfileAction::Create(profile) => serde_json::to_value(profile).unwrap(),
                    ProfileAction::PatchStatus(_, patch) => patch,
                    other => panic!("{other:?} for a new profile"),
                };
                prop_assert_eq!(emptiness(&written), [""; 0], "{}", written);
            }
        }
    }

    #[test]
    fn owners_may_be_asked_in_any_order(scene in scene(), provisioner in provisioner()) {
        for (key, profile) in &scene.profiles {
            let [one, other] = [[scene.desired(key), provisioner.clone()], [provisioner.clone(), scene.desired(key)]];
            prop_assert_eq!(
                scene.settle(key, profile.clone(), &one), scene.settle(key, profile.clone(), &other), "{}", key
            );
        }
    }

    #[test]
    fn two_owners_in_one_process_make_the_same_as_apart_and_save_a_write(
        scene in scene(), provisioner in provisioner(),
    ) {
        let statuses = |settled: &Settled| {
            settled.writes.iter().filter(|write| matches!(write, ProfileAction::PatchStatus(..))).count()
        };
        for (key, profile) in &scene.profiles {
            let together = scene.settle(key, profile.clone(), &[scene.desired(key), provisioner.clone()]);
            let first = scene.project(key);
            let second = scene.settle(key, first.object.clone(), std::slice::from_ref(&provisioner));
            let third = scene.settle(key, second.object.clone(), &[scene.desired(key)]);
            prop_assert_eq!(third.writes, [], "the projector has nothing to say to the provider of {}", key);

            let saved = statuses(&first).min(statuses(&second));
            prop_assert_eq!(together.writes.len() + saved, first.writes.len() + second.writes.len());
            prop_assert_eq!(content(together.object), content(second.object), "{}", key);
        }
    }

    /// Versions arrive late and repeatedly; the final state counts.
    #[test]
    fn grants_and_plans_do_not_depend_on_what_arrived_when(
        (hub, steps) in hub_and_steps(), pasts in pasts(),
    ) {
        let mut lived = Fleet::new(hub.bound);
        for step in &steps {
            step.take(&mut lived);
        }
        let last = hub.histories.iter().filter_map(|history| history.last().cloned().flatten());
        let reversed = fleet_where(hub.bound, last.rev());
        let straight = Scene::new(hub, &pasts);
        for other in [lived, reversed] {
            let decided = decisions(&other, &straight.settings);
            prop_assert_eq!(decided, decisions(&straight.fleet, &straight.settings));
            for (key, profile) in &straight.profiles {
                let plan = projection_of(&other, key, &straight.settings, profile.as_ref());
                prop_assert_eq!(plan, straight.plan(key), "{}", key);
            }
        }
    }

    /// The grants that are found through the sets are those that visiting every pair finds.
    #[test]
    fn grants_are_found_from_either_side((hub, steps) in hub_and_steps()) {
        let mut fleet = Fleet::new(hub.bound);
        for step in &steps {
            step.take(&mut fleet);
            for key in keys() {
                let is_possible = decide(&fleet, &key) != Grant::Refused;
                prop_assert_eq!(namespaces_of(&fleet, &key.cluster).any(|it| *it == key.namespace), is_possible, "{}", key);
                prop_assert_eq!(is_among(&fleet, &key.namespace, &key.cluster), is_possible, "{}", key);
            }
        }
    }

    /// Whoever looks only where a change touched sees every decision that changed.
    #[test]
    fn a_change_touches_every_decision_that_it_changes((hub, steps) in hub_and_steps()) {
        let mut fleet = Fleet::new(hub.bound);
        let mut before = decisions(&fleet, &hub.settings);
        for step in &steps {
            let touched = step.take(&mut fleet);
            let after = decisions(&fleet, &hub.settings);
            for (key, decision) in &after {
                prop_assert!(before[key] == *decision || covers(&touched, key), "{key} after {step:?}");
            }
            // Where a decision was anything but refused, the profile exists.
            let existing = before.iter().filter(|(_, (grant, _))| *grant != Grant::Refused);
            let profiles = Profiles { existing: existing.map(|(key, _)| key.clone()).collect(), ..Profiles::default() };
            let concerned = concerned_by(&fleet, &touched, &profiles);
            for (key, (grant, desired)) in &after {
                let is_refused = *grant == Grant::Refused && before[key].0 == Grant::Refused;
                let is_same = before[key].1 == *desired || is_refused;
                prop_assert!(is_same || concerned.get(key) == Some(grant), "{key} is not concerned by {step:?}");
            }
            prop_assert_eq!(step.take(&mut fleet), Touched::Nothing, "again: {:?}", step);
            before = after;
        }
    }
}

/// The laws are meaningful only if the generated scenes have these properties.
#[test]
fn generated_scenes_have_every_grant_every_action_and_every_finding() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let scene = scene().new_tree(&mut runner).unwrap().current();
        for key in keys() {
            let ProfilePlan { action, findings } = scene.plan(&key);
            let action = match action {
                ProfileAction::Nothing => "nothing",
                ProfileAction::Create(_) => "create",
                ProfileAction::Patch(..) => "patch object",
                ProfileAction::PatchStatus(..) => "patch status",
                ProfileAction::Delete(_) | ProfileAction::DeleteByUid(_) => "delete",
            };
            seen.insert(format!("{:?}: {action}", scene.grant(&key)));
            seen.extend(findings.iter().map(|note| note.reason.into_str().to_owned()));
        }
    }
    let expected = [
        "ForeignProfile",
        "Granted: create",
        "Granted: nothing",
        "Granted: patch object",
        "Granted: patch status",
        "MemberIdChanged",
        "ProfileTerminating",
        "Refused: delete",
        "Refused: nothing",
        "Unknown: nothing",
        "Unknown: patch object",
        "Unknown: patch status",
        "UnlabelledProfile",
    ];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
