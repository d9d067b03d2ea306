//! What is said of an account whose token is not everywhere it should be, and how it becomes a condition.

use std::collections::BTreeSet;

use hub_api::labels::{SYNC_TO_CLUSTER_PROFILE, SYNC_TO_NAMESPACES};
use hub_core::credential::account::CONDITION_SYNCED;
use hub_core::credential::index::{CredentialIndex, Refused, SyncSettings};
use hub_core::credential::report::{Report, conditions};
use hub_core::credential::source::Unusable;
use hub_core::credential::state::State;
use hub_core::token_names::MAX_OF_A_CLUSTER;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::credential::{
    World, account, account_key, annotated, profile, scene, scene_key, scene_with, scene_without,
    stranger,
};
use crate::support::{NOON, binding, condition, with};

fn told(world: &World) -> Option<Report> {
    world.report(&account_key("c1", "kueue"))
}

/// Reason and message.
fn said(objects: Vec<Value>) -> Option<(&'static str, String)> {
    told(&World::of(objects)).map(|report| (report.reason, report.message))
}

#[test]
fn where_every_copy_exists_nothing_is_reported() {
    let mut world = World::of(scene());
    assert_eq!(told(&world), None, "before the copy is made");
    world.settle();
    assert_eq!(told(&world), None);
    assert_eq!(said(annotated("team")), None);
}

#[test]
fn an_account_that_does_not_opt_in_has_no_report() {
    assert_eq!(said(scene_without("ManagedServiceAccount")), None);
    let label = json!({ "metadata": { "labels": { SYNC_TO_CLUSTER_PROFILE: "yes" } } });
    assert_eq!(said(scene_with("ManagedServiceAccount", &label)), None);
    let deleting = json!({ "metadata": { "deletionTimestamp": NOON } });
    assert_eq!(said(scene_with("ManagedServiceAccount", &deleting)), None);
}

#[test]
fn an_account_without_copies_reports_the_reason() {
    let no_binding = "no ManagedClusterSetBinding grants";
    for (objects, reason, text) in [
        (scene_without("ManagedClusterSetBinding"), "NotGranted", no_binding),
        (scene_without("ManagedCluster"), "NotGranted", no_binding),
        (annotated(""), "OutOfScope", "the annotation contains no namespace"),
        (annotated("*"), "OutOfScope", r#"not valid namespace names: "*""#),
        (annotated("ops"), "NotGranted", "ops: no ManagedClusterSetBinding grants the cluster"),
    ] {
        let (said, message) = said(objects).unwrap();
        assert_eq!(said, reason);
        assert!(message.contains(text), "{message}");
    }
    let settings = SyncSettings { require_namespaces: true, ..SyncSettings::default() };
    let told = told(&World::set_up(settings, scene())).unwrap();
    assert_eq!(told.reason, "OutOfScope");
    assert!(told.message.contains(SYNC_TO_NAMESPACES), "{told:?}");
}

#[test]
fn an_account_that_names_a_namespace_expects_a_copy_there_and_one_that_names_none_expects_one_anywhere()
 {
    let mut world = World::of(annotated("team,ops,nobody"));
    world.arrive(&binding("ops", "other"));
    let message = told(&world).unwrap().message;
    assert_eq!(message, "nobody, ops: no ManagedClusterSetBinding grants the cluster");
    let mut world = World::of(scene());
    world.arrive(&binding("ops", "other"));
    assert_eq!(told(&world), None);
}

#[test]
fn a_namespace_whose_secrets_cannot_be_read_is_reported_and_affects_no_other() {
    let mut world = World::unlisted(SyncSettings::default(), scene());
    world.arrive(&binding("ops", "prod"));
    world.index.knows_accounts = true;
    world.index.listed_sources.set(None, true);
    world.index.listed_copies.set(Some(&"ops".into()), true);
    let message = format!("team: {}. ops: {}", State::CopiesUnknown, State::NoProfile);
    assert_eq!(told(&world).unwrap().message, message);
}

#[test]
fn invalid_namespaces_are_reported_beside_valid_ones() {
    let (reason, message) = said(annotated("team,TEAM,../x")).unwrap();
    assert_eq!(reason, "InvalidNamespace");
    assert_eq!(
        message,
        r#"the annotation contains entries that are not valid namespace names: "../x", "TEAM""#
    );
}

#[test]
fn of_a_long_entry_that_is_not_a_namespace_the_beginning_is_quoted() {
    let beginning = "X".repeat(63);
    for (entry, quoted) in [
        (beginning.clone(), format!("{beginning:?}")),
        (format!("{beginning}Y"), format!("{beginning:?}…")),
    ] {
        let message = said(annotated(&format!("team,{entry}"))).unwrap().1;
        assert!(message.ends_with(&format!(": {quoted}")), "{message}");
    }
}

#[test]
fn a_report_of_what_may_be_about_to_arrive_differs_from_one_of_a_problem() {
    let is_missing = |objects| told(&World::of(objects)).unwrap().is_missing;
    assert!(is_missing(scene_without("ClusterProfile")));
    assert!(!is_missing(scene_without("Secret")), "no agent has reported a token");
    assert!(!is_missing(scene_without("ManagedClusterSetBinding")), "no namespace has a problem");
    let both = scene_without("ClusterProfile").into_iter().chain(annotated("team,ops")).collect();
    assert!(!is_missing(both), "one of two");
}

#[test]
fn several_problems_are_reported_in_a_fixed_order_and_the_first_is_the_reason() {
    let mut world = World::of(annotated("team,lab,ops,Nowhere"));
    world.arrive(&binding("lab", "prod"));
    world.leave(&profile("team", "c1"));
    world.put(stranger("lab", "c1-kueue"));
    world.arrive(&profile("lab", "c1"));
    let Report { reason, message, .. } = told(&world).unwrap();
    assert_eq!(reason, "NotGranted");
    let invalid =
        r#"the annotation contains entries that are not valid namespace names: "Nowhere""#;
    let (ops, team, lab) = (State::NotGranted, State::NoProfile, State::ForeignSecret);
    assert_eq!(message, format!("ops: {ops}. team: {team}. lab: {lab}. {invalid}"));
}

#[test]
fn of_many_namespaces_ten_are_named_and_the_others_counted() {
    for (count, end) in [(10, "n19: "), (11, "n19 and 1 more: "), (40, "n19 and 30 more: ")] {
        let mut world = World::of(scene_without("ManagedClusterSetBinding"));
        for number in 10..10 + count {
            world.arrive(&binding(&format!("n{number}"), "prod"));
        }
        let message = told(&world).unwrap().message;
        assert!(message.contains(end), "{message}");
    }
}

#[test]
fn whatever_an_annotation_says_the_message_is_one_that_a_condition_can_have() {
    let long = "\u{1F980}\u{7}".repeat(10_000);
    let many = (0..10_000).map(|number| format!("N{number}")).collect::<Vec<_>>().join(",");
    let namespaces = (0..10_000).map(|number| format!("n{number}")).collect::<Vec<_>>().join(",");
    for annotation in [long, many, namespaces] {
        let (reason, message) = said(annotated(&annotation)).unwrap();
        assert!(message.chars().count() <= 32_768, "{} characters", message.chars().count());
        assert!(!message.is_empty() && reason.chars().all(|c| c.is_ascii_alphabetic()));
    }
}

#[test]
fn every_state_that_is_counted_is_in_the_list_of_metrics_once() {
    let counted: BTreeSet<_> = State::counted().map(State::as_str).collect();
    assert_eq!(counted.len(), State::counted().count());
    for state in [State::NotAsked, State::OutOfScope, State::NotGranted] {
        assert!(!state.is_counted() && !counted.contains(state.as_str()), "{state:?}");
    }
    for why in [Unusable::EmptyToken, Unusable::TooLong, Unusable::Unreadable] {
        assert!(counted.contains(State::UnusableToken(why).as_str()));
    }
}

fn trouble(reason: &'static str, message: &str) -> Report {
    Report { reason, message: message.to_owned(), is_missing: false }
}

fn now() -> Timestamp {
    "2026-06-01T08:00:00.75Z".parse().unwrap()
}

/// Conditions of others, in shapes that a rewrite could lose something of.
fn others() -> Vec<Value> {
    vec![
        condition("TokenReported", "True", "TokenReported"),
        json!({ "type": "SecretCreated", "status": "Unknown", "stranger": { "b": [1.5, null], "a": "" } }),
        condition("TokenReported", "False", "Twice"),
        json!({ "status": "True" }),
        json!("no entry"),
    ]
}

fn ours(conditions: &[Value]) -> Vec<&Value> {
    conditions.iter().filter(|entry| entry["type"] == CONDITION_SYNCED).collect()
}

#[test]
fn a_problem_becomes_one_condition_after_those_of_others() {
    let report = trouble("NoToken", "team: none");
    let list = conditions(&others(), Some(&report), true, now()).unwrap();
    assert_eq!(list[..others().len()], others());
    assert_eq!(
        list[others().len()..],
        [json!({
            "type": "SyncedToClusterProfiles", "status": "False", "reason": "NoToken", "message": "team: none",
            "lastTransitionTime": "2026-06-01T08:00:00Z",
        })]
    );
}

#[test]
fn the_conditions_of_others_stay_byte_for_byte_and_a_second_write_never_follows() {
    let entry = |reason: &str, message: &str| {
        json!({
            "type": CONDITION_SYNCED, "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": NOON,
        })
    };
    let earlier = |patch: Value| with(entry("NoToken", "team: none"), &patch);
    let ours_before = [
        vec![],
        vec![earlier(json!({}))],
        vec![earlier(json!({})), earlier(json!({ "reason": "NoProfile" }))],
        vec![earlier(json!({ "reason": "NoProfile" }))],
        vec![earlier(json!({ "status": "True" }))],
        vec![earlier(json!({ "status": null, "reason": 7, "lastTransitionTime": null }))],
        vec![earlier(json!({ "message": null }))],
    ];
    let reports = [
        None,
        Some(trouble("NoToken", "team: none")),
        Some(trouble("NoProfile", "")),
        Some(trouble("X", "y")),
    ];
    for before in &ours_before {
        for at in 0..=others().len() {
            let mut shown = others();
            shown.splice(at..at, before.iter().cloned());
            for (report, is_copied) in reports.iter().flat_map(|it| [(it, false), (it, true)]) {
                let Some(list) = conditions(&shown, report.as_ref(), is_copied, now()) else {
                    assert!(report.is_some() || !is_copied, "{shown:?}");
                    let right = report.as_ref().map(|it| entry(it.reason, &it.message));
                    assert_eq!(ours(&shown), right.iter().collect::<Vec<_>>(), "{shown:?}");
                    continue;
                };
                let not_ours = list.iter().filter(|entry| entry["type"] != CONDITION_SYNCED);
                assert!(not_ours.eq(&others()), "{list:?}");
                let status: Vec<_> = ours(&list).iter().map(|it| it["status"].clone()).collect();
                let right = if report.is_some() { "False" } else { "True" };
                assert_eq!(status, vec![right; usize::from(report.is_some() || is_copied)]);
                let again = conditions(&list, report.as_ref(), is_copied, now());
                assert_eq!(again, None, "{list:?}");
            }
        }
    }
}

#[test]
fn a_new_reason_is_no_transition_and_a_new_status_is() {
    let entry = |status: &str| json!({ "type": CONDITION_SYNCED, "status": status, "reason": "NoToken", "message": "x", "lastTransitionTime": NOON });
    let time = |status: &str| {
        let report = trouble("NoProfile", "y");
        let list = conditions(&[entry(status)], Some(&report), false, now()).unwrap();
        assert_eq!(list[0]["reason"], "NoProfile");
        list[0]["lastTransitionTime"].clone()
    };
    assert_eq!(time("False"), NOON);
    assert_eq!(time("True"), "2026-06-01T08:00:00Z");
    assert_eq!(time("Unknown"), "2026-06-01T08:00:00Z");
}

#[test]
fn a_copy_that_cannot_be_deleted_is_reported_even_if_the_account_no_longer_opts_in() {
    for label in [json!("true"), json!(null)] {
        let mut world = World::settled_scene();
        world.arrive(&binding("ops", "prod"));
        world.leave(&binding("team", "prod"));
        world.index.set_refused(&scene_key(), Some(Refused::Delete));
        let labels = json!({ "metadata": { "labels": { SYNC_TO_CLUSTER_PROFILE: label } } });
        world.arrive(&with(account("c1", "kueue"), &labels));
        let report = told(&world).unwrap();
        assert_eq!(report.reason, "DeleteRefused");
        let others =
            if label.is_null() { String::new() } else { format!(". ops: {}", State::NoProfile) };
        assert_eq!(report.message, format!("team: {}{others}", State::DeleteRefused));
    }
}

#[test]
fn a_delete_that_was_refused_is_not_reported_once_the_copy_is_gone() {
    let mut world = World::settled_scene();
    world.leave(&binding("team", "prod"));
    world.index.set_refused(&scene_key(), Some(Refused::Delete));
    assert_eq!(told(&world).unwrap().reason, "DeleteRefused");
    world.index.delete_copy(&scene_key());
    world.index.set_created(&scene_key(), None);
    // The refusal is recorded until the next plan.
    assert_ne!(told(&world).unwrap().reason, "DeleteRefused");
}

#[test]
fn a_problem_counts_while_its_copy_waits_for_another_plan_unless_something_was_missing() {
    let (key, mine, other) = (scene_key(), account_key("c1", "kueue"), account_key("c", "1-kueue"));
    for (mine_is, other_is, lasts) in [
        (State::NoProfile, State::NotGranted, false),
        (State::NoToken, State::NotGranted, false),
        (State::AccountUnknown, State::NotGranted, false),
        (State::WriteRefused, State::NotGranted, true),
        (State::NotGranted, State::WriteRefused, true),
        (State::Synced, State::NameTaken, false),
    ] {
        let mut index = CredentialIndex::default();
        index.set_planned(&key, &[(mine.clone(), mine_is), (other.clone(), other_is)]);
        assert_eq!(index.is_in_trouble(&key, &mine), lasts, "{mine_is:?}, {other_is:?}");
    }
}

#[test]
fn an_annotation_that_is_too_long_opts_in_to_no_namespace_and_is_reported() {
    let mut world = World::of(annotated(&"team,".repeat(4000)));
    assert_eq!(told(&world).unwrap().reason, "AnnotationTooLong");
    world.settle();
    assert!(!world.secrets.contains_key(&scene_key()), "fails closed");
}

#[test]
fn an_account_whose_name_exceeds_the_limit_reports_it_and_keeps_its_copy() {
    let others = (0..MAX_OF_A_CLUSTER).map(|number| account("c1", &format!("a-{number:02}")));
    let objects: Vec<_> = scene_without("Secret").into_iter().chain(others).collect();
    let mut world = World::unlisted(SyncSettings::default(), objects);
    world.index.knows_accounts = true;
    world.index.listed_copies.set(None, true);
    let (names, _) = world.index.reach.changed_names().unwrap();
    assert_eq!((names.len(), names.contains("kueue")), (MAX_OF_A_CLUSTER, false));
    let report = told(&world).unwrap();
    assert_eq!(report.reason, "TooManyNames");
    assert!(report.message.contains(&MAX_OF_A_CLUSTER.to_string()), "{report:?}");
    let copy = World::settled_scene().secret(&scene_key()).clone();
    world.put(copy.clone());
    world.settle();
    assert_eq!(*world.copy(), copy);
}

#[test]
fn a_protected_namespace_is_reported_to_who_names_it_or_has_no_other() {
    let protected = "open-cluster-management-addon";
    let mut world = World::of(scene());
    world.arrive(&binding(protected, "prod"));
    assert_eq!(told(&world), None, "the token is elsewhere");
    world.leave(&binding("team", "prod"));
    assert_eq!(told(&world).unwrap().reason, "ProtectedNamespace");
    let mut world = World::of(annotated("team,open-cluster-management-addon"));
    world.arrive(&binding(protected, "prod"));
    assert!(told(&world).unwrap().message.starts_with(protected));
}
