//! What takes a copy away and what keeps it: everything that is clearly so takes, everything that is not known
//! keeps. Where both meet the clear "no" decides (`laws.rs`). The scene is a copy of `c1/kueue` in `team`.

use hub_api::labels::{
    CLUSTER_MANAGER, IS_MANAGED_SERVICE_ACCOUNT, SYNC_TO_CLUSTER_PROFILE, SYNC_TO_NAMESPACES,
};
use hub_core::credential::plan::{CopyAction, CopyPlan};
use hub_core::credential::source::Unusable;
use hub_core::credential::state::State;
use hub_core::fleet::Part;
use serde_json::{Value, json};

use crate::support::credential::{
    World, account, account_key, base64, profile, scene, scene_key, scene_without, token,
};
use crate::support::{
    NOON, binding, broken, by_labels, condition, exclusive, member, unreadable, with,
};

/// A change of the scene: objects that are added, and objects that are removed.
#[derive(Debug, Clone, Default)]
struct Change {
    come: Vec<Value>,
    go: Vec<Value>,
}

fn come(object: Value) -> Change {
    Change { come: vec![object], ..Change::default() }
}

fn go(object: Value) -> Change {
    Change { go: vec![object], ..Change::default() }
}

fn edit(object: Value, patch: &Value) -> Change {
    come(with(object, patch))
}

fn make(world: &mut World, change: &Change) {
    for object in &change.come {
        world.arrive(object);
    }
    for object in &change.go {
        world.leave(object);
    }
}

fn metadata(patch: &Value) -> Value {
    json!({ "metadata": patch })
}

/// Every known obstacle, and its state.
fn revocations() -> Vec<(&'static str, Change, State)> {
    let of_account = |patch: Value| edit(account("c1", "kueue"), &metadata(&patch));
    let asks = |label: Value| of_account(json!({ "labels": { SYNC_TO_CLUSTER_PROFILE: label } }));
    let of_token = |patch: Value| edit(token("c1", "kueue"), &metadata(&patch));
    let unlabelled = json!({ "labels": { IS_MANAGED_SERVICE_ACCOUNT: null } });
    let of_profile = |patch: Value| edit(profile("team", "c1"), &metadata(&patch));
    let of_cluster = |patch: Value| edit(member("c1", "prod"), &metadata(&patch));
    let deleting = || json!({ "deletionTimestamp": NOON });
    let scope = |namespaces: &str| json!({ "annotations": { SYNC_TO_NAMESPACES: namespaces } });
    let unbound = json!({ "status": { "conditions": [condition("Bound", "False", "NoSuchSet")] } });
    let other_set = json!({ "spec": { "clusterSet": "other" } });
    let other_labels = json!({ "matchLabels": { "env": "prod" } });
    let denied = json!({ "spec": { "hubAcceptsClient": false } });
    let elsewhere = json!({ "status": { "tokenSecretRef": { "name": "other" } } });
    let created_later = json!({ "creationTimestamp": NOON });
    let karmada = json!({ "spec": { "clusterManager": { "name": "karmada" } } });
    let labelled = json!({ "labels": { CLUSTER_MANAGER: "karmada" } });
    vec![
        ("label removed", asks(json!(null)), State::NotAsked),
        ("label false", asks(json!("false")), State::NotAsked),
        ("annotation narrowed", of_account(scope("ops")), State::OutOfScope),
        ("annotation emptied", of_account(scope("")), State::OutOfScope),
        ("account deleting", of_account(deleting()), State::NotAsked),
        ("account gone", go(account("c1", "kueue")), State::NotAsked),
        ("account made anew", of_account(json!({ "uid": "another" })), State::ForeignToken),
        ("token elsewhere", edit(account("c1", "kueue"), &elsewhere), State::TokenElsewhere),
        ("everything gone", Change { go: scene(), ..Change::default() }, State::NotAsked),
        ("token gone", go(token("c1", "kueue")), State::NoToken),
        ("token without label", of_token(unlabelled), State::ForeignToken),
        ("token of nobody", of_token(json!({ "ownerReferences": null })), State::ForeignToken),
        ("binding gone", go(binding("team", "prod")), State::NotGranted),
        ("binding of another set", edit(binding("team", "prod"), &other_set), State::NotGranted),
        ("binding not in force", edit(binding("team", "prod"), &unbound), State::NotGranted),
        ("set gone", go(exclusive("prod")), State::NotGranted),
        ("set selects others", come(by_labels("prod", &other_labels)), State::NotGranted),
        ("cluster in another set", come(member("c1", "dev")), State::NotGranted),
        ("cluster leaving", of_cluster(deleting()), State::NotGranted),
        ("cluster gone", go(member("c1", "prod")), State::NotGranted),
        ("cluster not accepted", edit(member("c1", "prod"), &denied), State::NotGranted),
        // After its token was reported.
        ("cluster created later", of_cluster(created_later), State::EarlierToken),
        ("profile gone", go(profile("team", "c1")), State::NoProfile),
        ("profile deleting", of_profile(deleting()), State::NoProfile),
        ("profile labelled by another manager", of_profile(labelled), State::ForeignProfile),
        (
            "profile of another manager",
            edit(profile("team", "c1"), &karmada),
            State::ForeignProfile,
        ),
    ]
}

/// Everything that can be unknown, and its state.
fn doubts() -> Vec<(&'static str, Change, State)> {
    let account_with = |patch: Value| edit(account("c1", "kueue"), &patch);
    let token_with = |data: Value| edit(token("c1", "kueue"), &json!({ "data": data }));
    let unusable = State::UnusableToken;
    let (odd_status, broken_token) =
        (json!({ "status": { "conditions": "text" } }), json!({ "token": base64("a b") }));
    vec![
        ("set broken", come(broken("prod")), State::GrantUnknown),
        ("set unreadable", come(unreadable(exclusive("prod"))), State::GrantUnknown),
        ("binding unreadable", come(unreadable(binding("team", "prod"))), State::GrantUnknown),
        ("account unreadable", account_with(odd_status), State::AccountUnknown),
        ("token unreadable", token_with(json!("text")), unusable(Unusable::Unreadable)),
        ("token empty", token_with(json!({ "token": "" })), unusable(Unusable::EmptyToken)),
        ("no token", token_with(json!(null)), unusable(Unusable::NoToken)),
        ("token broken", token_with(broken_token), unusable(Unusable::NotPrintable)),
    ]
}

fn kueue() -> hub_api::names::AccountKey {
    account_key("c1", "kueue")
}

fn assert_deleted(world: &World, state: State, what: &str) {
    let CopyPlan { action, states, findings, .. } = world.copy_plan();
    // By its uid alone, if it is known by that: not where its token or its account is not.
    let version = world.copy_version();
    let is_deleted = match &action {
        CopyAction::DeleteByUid(uid) => *uid == version.uid,
        CopyAction::Delete(exact) => *exact == version,
        _ => false,
    };
    assert!(is_deleted, "{what}: {action:?}");
    assert!(states.is_empty() || states == [(kueue(), state)], "{what}: {states:?}");
    assert_eq!(findings, [], "{what}");
}

/// Asserts that the scene has no copy after this change, and that the state is reported.
fn assert_absent(what: &str, change: &Change, state: State) {
    let mut world = World::of(scene());
    make(&mut world, change);
    assert_eq!(world.next(), CopyAction::Nothing, "{what}");
    assert_eq!(world.copy_state().unwrap_or(State::NotAsked), state, "{what}");
    if state.is_counted() {
        let report = world.report(&kueue()).unwrap();
        assert_eq!(report.reason, state.into_str(), "{what}");
        assert_eq!(report.message, format!("team: {state}"), "{what}");
    }
}

#[test]
fn what_is_missing_is_reported_and_nothing_is_created() {
    for (what, change, state) in revocations().into_iter().chain(doubts()) {
        assert_absent(what, &change, state);
    }
}

#[test]
fn every_way_of_revocation_deletes_the_copy_whatever_its_version_also_if_no_watch_was_open() {
    for (what, change, state) in revocations() {
        let mut world = World::settled_scene();
        let copy = world.copy().clone();
        make(&mut world, &change);
        assert_deleted(&world, state, what);
        world.settle();
        assert!(world.secrets.is_empty(), "{what}");
        let mut started = World::of(scene());
        make(&mut started, &change);
        started.put(copy);
        assert_deleted(&started, state, what);
    }
}

#[test]
fn what_is_not_known_keeps_the_copy() {
    for (what, change, state) in doubts() {
        let mut world = World::settled_scene();
        let before = world.copy().clone();
        make(&mut world, &change);
        let CopyPlan { action, states, findings, .. } = world.copy_plan();
        assert_eq!((action, states), (CopyAction::Nothing, vec![(kueue(), state)]), "{what}");
        assert_eq!(findings, [], "{what}");
        world.settle();
        assert_eq!(world.copy(), &before, "{what}");
    }
}

/// A kind, what makes it readable or not, and the state of a copy meanwhile.
type UnreadKind = (&'static str, fn(&mut World, bool), State);

/// The kinds that can become unreadable.
const UNREAD_KINDS: [UnreadKind; 8] = [
    ("clusters", |it, is_read| _ = it.fleet.set_read(Part::Clusters, is_read), State::GrantUnknown),
    ("sets", |it, is_read| _ = it.fleet.set_read(Part::Sets, is_read), State::GrantUnknown),
    ("bindings", |it, is_read| _ = it.fleet.set_read(Part::Bindings, is_read), State::GrantUnknown),
    ("accounts", |it, is_read| it.index.knows_accounts = is_read, State::AccountUnknown),
    ("tokens", |it, is_read| _ = it.index.listed_sources.set(None, is_read), State::TokenUnknown),
    ("profiles", |it, is_read| it.index.profiles_unread = !is_read, State::ProfileUnknown),
    ("permissions", |it, is_read| it.index.permissions_unread = !is_read, State::CopiesUnknown),
    ("copies", |it, is_read| _ = it.index.listed_copies.set(None, is_read), State::CopiesUnknown),
];
#[test]
fn while_a_kind_cannot_be_read_no_token_is_written_and_an_end_that_is_known_still_happens() {
    let set = exclusive("prod");
    for (kind, set_read, state) in UNREAD_KINDS {
        let mut world = World::settled_scene();
        let before = world.copy().clone();
        set_read(&mut world, false);
        // What was queued before is planned with what is known now.
        world.rotate();
        world.settle();
        assert_eq!(world.copy(), &before, "{kind}: the copy stays");
        assert_eq!(world.copy_state(), Some(state), "{kind}");
        world.arrive(&binding("elsewhere", "prod"));
        world.arrive(&profile("elsewhere", "c1"));
        world.settle();
        assert_eq!(world.secrets.len(), 1, "{kind}: nothing is created");
        let mut ended = World::settled_scene();
        set_read(&mut ended, false);
        let binding = binding("team", "prod");
        ended.leave(if kind == "bindings" { &set } else { &binding });
        ended.settle();
        assert!(ended.secrets.is_empty(), "{kind}: the end of the grant is known");
        set_read(&mut world, true);
        world.settle();
        assert_eq!(world.copy()["data"]["token"], base64("rotated"), "{kind}");
        assert_eq!(world.secrets.len(), 2, "{kind}: everything converges");
    }
}

#[test]
fn a_copy_whose_permission_has_ended_is_reported_as_after_a_restart() {
    let mut world = World::settled_scene();
    world.index.permitted = Some(["elsewhere".into()].into());
    assert_eq!(world.next(), CopyAction::Nothing);
    assert_eq!(world.copy_state(), Some(State::CopiesUnknown));
    world.index.permitted = Some([scene_key().namespace].into());
    assert_eq!(world.copy_state(), Some(State::Synced));

    world.arrive(&broken("prod"));
    world.index.permitted = Some([].into());
    assert_eq!(world.copy_state(), Some(State::GrantUnknown), "what was never read is not missed");
}

#[test]
fn a_copy_that_could_not_be_recreated_is_not_deleted_to_be_replaced() {
    let unlabelled = json!({ "metadata": { "labels": { CLUSTER_MANAGER: null } } });
    for change in [come(broken("prod")), edit(profile("team", "c1"), &unlabelled)] {
        let mut world = World::settled_scene();
        world.edit_copy(&json!({ "immutable": true }));
        world.rotate();
        make(&mut world, &change);
        assert_eq!(world.next(), CopyAction::Nothing, "{change:?}");
        assert_ne!(world.copy_state(), Some(State::Synced), "{change:?}");
        // Once it can be recreated, it is.
        make(&mut world, &Change { come: scene_without("Secret"), go: vec![] });
        world.settle();
        assert_eq!(world.copy()["data"]["token"], base64("rotated"));
    }
}
