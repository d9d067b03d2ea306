//! Changes of a Secret with the key of a copy: a copy is repaired, a foreign Secret is never changed, and a terminating
//! copy is emptied unless its token is granted. The scene is the copy of `c1/kueue` in `team`.

use hub_api::cluster_profile::ServedVersions;
use hub_api::labels::{
    CLUSTER_MANAGER, IS_MANAGED_SERVICE_ACCOUNT, SYNCED_ACCOUNT, SYNCED_ACCOUNT_UID,
    SYNCED_CLUSTER, SYNCED_FROM,
};
use hub_core::credential::copy::FIELD_MANAGER;
use hub_core::credential::index::SyncSettings;
use hub_core::credential::plan::{CopyAction, CopyPlan};
use hub_core::credential::state::State;
use hub_core::finding::Reason;
use serde_json::{Value, json};

use crate::support::credential::{
    World, account, account_key, base64, observe, scene, scene_key, scene_with, scene_without,
    stranger, token,
};
use crate::support::{NOON, binding, broken, with};

/// What the API server keeps of an object beside what we write.
fn content(secret: &Value) -> Value {
    let server =
        json!({ "metadata": { "uid": null, "resourceVersion": null, "managedFields": null } });
    with(secret.clone(), &server)
}

fn our_copy() -> Value {
    World::settled_scene().secret(&scene_key()).clone()
}

/// Merge patches of another writer, each for a different part of the copy.
fn edits() -> Vec<Value> {
    let annotation =
        |key: &str, value: Value| json!({ "metadata": { "annotations": { key: value } } });
    let owner = |patch: Value| {
        let ours = our_copy()["metadata"]["ownerReferences"][0].clone();
        json!({ "metadata": { "ownerReferences": [with(ours, &patch)] } })
    };
    let another = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" });
    let and_another = json!([our_copy()["metadata"]["ownerReferences"][0], another]);
    vec![
        json!({ "data": { "token": base64("mallory's") } }),
        json!({ "data": { "token": "" } }),
        json!({ "data": { "token": null } }),
        json!({ "data": { "token": 7 } }),
        json!({ "data": { "ca.crt": base64("mallory's") } }),
        json!({ "data": { "ca.crt": null } }),
        json!({ "data": null }),
        json!({ "metadata": { "labels": { SYNCED_FROM: "c2-kueue" } } }),
        json!({ "metadata": { "labels": { SYNCED_FROM: "" } } }),
        json!({ "metadata": { "labels": null } }),
        annotation(SYNCED_CLUSTER, json!("c2")),
        annotation(SYNCED_CLUSTER, json!("")),
        annotation(SYNCED_CLUSTER, json!(null)),
        annotation(SYNCED_ACCOUNT, json!("argocd")),
        annotation(SYNCED_ACCOUNT, json!(null)),
        annotation(SYNCED_ACCOUNT_UID, json!("another")),
        annotation(SYNCED_ACCOUNT_UID, json!(null)),
        json!({ "metadata": { "annotations": null } }),
        owner(json!({ "uid": "another" })),
        owner(json!({ "name": "c2" })),
        owner(json!({ "controller": false })),
        owner(json!({ "controller": null })),
        owner(json!({ "kind": "ConfigMap" })),
        owner(json!({ "apiVersion": "example.com/v1" })),
        json!({ "metadata": { "ownerReferences": and_another } }),
        json!({ "metadata": { "ownerReferences": [another] } }),
        json!({ "metadata": { "ownerReferences": [] } }),
        json!({ "metadata": { "ownerReferences": null } }),
        json!({ "metadata": { "labels": null, "annotations": null, "ownerReferences": null }, "data": null }),
    ]
}

#[test]
fn every_part_of_a_copy_that_somebody_edited_is_repaired_by_one_patch_or_without_its_label_replaced()
 {
    for edit in edits() {
        let mut world = World::settled_scene();
        world.edit_copy(&edit);
        assert_ne!(content(world.copy()), content(&our_copy()), "no edit: {edit}");
        let action = world.next();
        if world.copy()["metadata"]["labels"].is_object() {
            assert!(matches!(action, CopyAction::Patch(..)), "{edit}: {action:?}");
            world.write(&scene_key(), &action);
            assert_eq!(world.next(), CopyAction::Nothing, "{edit}");
        } else {
            assert_eq!(action, CopyAction::DeleteByUid(world.copy_version().uid), "{edit}");
            world.settle();
        }
        assert_eq!(content(world.copy()), content(&our_copy()), "{edit}");
    }
}

#[test]
fn what_others_added_beside_ours_is_kept_and_costs_no_write() {
    let beside = json!({
        "metadata": {
            "labels": { "example.com/team": "x" }, "annotations": { "example.com/note": "y" },
            "finalizers": ["example.com/hold"],
        },
        "immutable": true,
    });
    let mut world = World::settled_scene();
    world.edit_copy(&beside);
    assert_eq!(world.next(), CopyAction::Nothing);
    world.edit_copy(&json!({ "metadata": { "labels": { SYNCED_FROM: "x" } } }));
    world.settle();
    assert_eq!(content(world.copy()), content(&with(our_copy(), &beside)));
}

#[test]
fn a_later_version_of_the_profiles_api_in_the_owner_reference_costs_no_write() {
    let mut owner = our_copy()["metadata"]["ownerReferences"][0].clone();
    owner["apiVersion"] = json!("multicluster.x-k8s.io/v1beta1");
    let mut world = World::settled_scene();
    world.edit_copy(&json!({ "metadata": { "ownerReferences": [owner] } }));
    assert_eq!(world.next(), CopyAction::Nothing);
}

#[test]
fn a_version_that_the_hub_begins_to_serve_is_named_in_the_next_write_and_costs_none() {
    let mut world = World::settled_scene();
    world.index.served_versions = ServedVersions::read(&["v1alpha1", "v1alpha2"]).unwrap();
    assert_eq!(world.next(), CopyAction::Nothing);
    world.edit_copy(&json!({ "data": { "token": base64("by hand") } }));
    let action = world.next();
    world.write(&scene_key(), &action);
    let owner = &world.copy()["metadata"]["ownerReferences"][0];
    assert_eq!(owner["apiVersion"], "multicluster.x-k8s.io/v1alpha2");
    assert_eq!(world.next(), CopyAction::Nothing);
}

#[test]
fn a_version_that_the_hub_no_longer_serves_is_replaced_in_one_write() {
    let mut world = World::settled_scene();
    let before = world.copy().clone();
    world.index.served_versions = ServedVersions::read(&["v1alpha2"]).unwrap();
    let action = world.next();
    world.write(&scene_key(), &action);
    let after = world.copy().clone();
    let owner = |copy: &Value| copy["metadata"]["ownerReferences"][0].clone();
    assert_eq!(owner(&after)["apiVersion"], "multicluster.x-k8s.io/v1alpha2");
    assert_eq!((&owner(&after)["uid"], &after["data"]), (&owner(&before)["uid"], &before["data"]));
    assert_eq!(world.next(), CopyAction::Nothing);
    world.index.served_versions = ServedVersions::read(&["v1alpha1"]).unwrap();
    assert!(matches!(world.next(), CopyAction::Patch(..)));
}

/// Changes by a tenant that remove every mark of a copy's account.
fn stripped() -> Value {
    json!({ "metadata": { "labels": null, "annotations": null, "ownerReferences": null, "managedFields": [
        { "manager": "kubectl-edit", "operation": "Update" },
    ] } })
}

#[test]
fn a_secret_that_this_process_made_is_deleted_with_the_grant_whatever_was_stripped_from_it() {
    let more = json!({ "data": { "more": base64("x") } });
    let held = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    for edit in [stripped(), with(stripped(), &more), with(stripped(), &held)] {
        for is_seen in [true, false] {
            let mut world = World::settled_scene();
            world.edit_copy(&edit);
            if !is_seen {
                world.lose(&scene_key());
            }
            world.leave(&binding("team", "prod"));
            assert!(world.keys().contains(&scene_key()), "{edit}");
            assert!(world.copy_plan().is_removal, "{edit}");
            world.settle();
            let secret = world.copy();
            assert!(secret.is_null() || secret["data"].is_null(), "{secret}");
        }
    }
}

#[test]
fn a_secret_that_this_process_made_is_restored_whatever_was_stripped_from_it() {
    for is_seen in [true, false] {
        let mut world = World::settled_scene();
        world.edit_copy(&with(stripped(), &json!({ "data": { "token": base64("mallory's") } })));
        if !is_seen {
            world.lose(&scene_key());
        }
        world.settle();
        assert_eq!(content(world.copy()), content(&our_copy()));
    }
}

#[test]
fn a_copy_that_a_watch_shows_only_after_its_grant_has_ended_is_deleted_whatever_is_stripped_from_it()
 {
    let adorned = json!({ "metadata": { "annotations": { "replicator/replicate-to": ".*" } } });
    let other_token = json!({ "data": { "token": base64("mallory's") } });
    let held = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    for (edit, is_ours) in
        [(json!({}), true), (adorned, false), (other_token, false), (held, false)]
    {
        let mut world = World::settled_scene();
        world.edit_copy(&edit);
        world.leave(&binding("team", "prod"));
        // As if the response to its creation had been lost.
        world.restart();
        let plan = world.copy_plan();
        assert!(plan.is_removal, "{edit}: {plan:?}");
        assert_eq!(world.index.created(&scene_key()).is_some(), is_ours, "{edit}");
        world.edit_copy(&stripped());
        world.lose(&scene_key());
        world.settle();
        assert_eq!(world.copy().is_null(), is_ours, "{edit}");
    }
}

#[test]
fn a_secret_that_was_deleted_by_hand_is_not_mistaken_for_the_next_of_its_name() {
    let mut world = World::settled_scene();
    world.remove(&scene_key());
    world.leave(&binding("team", "prod"));
    assert_eq!(world.next(), CopyAction::DeleteByUid("uid-1".into()));
    world.secrets.insert(scene_key(), stranger("team", "c1-kueue"));
    world.settle();
    assert_eq!(world.copy(), &stranger("team", "c1-kueue"));
}

/// A Secret that a tenant prepared where a copy belongs, with all that can be seen on a copy, and to carry it away.
fn bait() -> Value {
    let carries = json!({
        "metadata": { "uid": "uid-of-bait", "annotations": { "replicator/replicate-to": ".*" } },
        "data": { "token": base64("a guess"), "ca.crt": null },
    });
    with(our_copy(), &carries)
}

#[test]
fn a_secret_prepared_with_every_mark_of_a_copy_is_replaced_and_never_gets_a_token() {
    let mut world = World::of(scene());
    world.put(bait());
    let action = world.next();
    assert_eq!(action, CopyAction::Delete(world.copy_version()), "as a whole");
    world.settle();
    assert_eq!(content(world.copy()), content(&our_copy()));
    assert_ne!(world.copy_version().uid, "uid-of-bait".into());
}

/// The copy of an earlier token, exactly as OCM's syncer creates it.
fn of_ocm() -> Value {
    let data = json!({ "token": base64("an earlier one"), "ca.crt": base64("ca-of-c1") });
    let metadata = json!({ "uid": "uid-of-ocm", "annotations": null, "managedFields": null });
    with(our_copy(), &json!({ "metadata": metadata, "data": data }))
}

#[test]
fn a_copy_of_ocms_syncer_is_replaced_where_its_token_was_rotated_and_ends_with_its_account() {
    let unlabelled = json!({ "metadata": { "labels": null } });
    for (objects, is_kept) in [
        (scene(), true),
        (scene_without("ManagedServiceAccount"), false),
        (scene_with("ManagedServiceAccount", &unlabelled), false),
        (scene_without("ManagedClusterSetBinding"), false),
        (scene_without("Secret"), false),
    ] {
        let mut world = World::of(objects);
        world.put(of_ocm());
        let plan = world.copy_plan();
        assert_eq!(plan.action, CopyAction::Delete(world.copy_version()));
        assert_eq!(plan.is_removal, !is_kept);
        world.settle();
        let expected = if is_kept { content(&our_copy()) } else { content(&Value::Null) };
        assert_eq!(content(world.copy()), expected);
        assert_ne!(world.copy()["metadata"]["uid"], "uid-of-ocm", "no token is written into it");
    }
}

#[test]
fn a_secret_that_differs_from_a_copy_of_ocms_syncer_in_anything_is_foreign() {
    let owner = |patch: &Value| {
        let owner = with(of_ocm()["metadata"]["ownerReferences"][0].clone(), patch);
        json!({ "metadata": { "ownerReferences": [owner] } })
    };
    let owners = of_ocm()["metadata"]["ownerReferences"][0].clone();
    for patch in [
        json!({ "metadata": { "labels": { SYNCED_FROM: "c1-other" } } }),
        json!({ "metadata": { "labels": { "team": "x" } } }),
        json!({ "metadata": { "annotations": { "note": "x" } } }),
        json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
        json!({ "metadata": { "ownerReferences": null } }),
        json!({ "metadata": { "ownerReferences": [owners.clone(), with(owners, &json!({ "uid": "other" }))] } }),
        owner(&json!({ "uid": "uid-of-an-earlier-profile" })),
        owner(&json!({ "controller": null })),
        owner(&json!({ "kind": "ConfigMap" })),
        owner(&json!({ "apiVersion": "v1" })),
        owner(&json!({ "name": "c2" })),
        json!({ "type": "kubernetes.io/tls" }),
        json!({ "immutable": true }),
        json!({ "data": { "more": base64("x") } }),
        json!({ "data": { "ca.crt": null } }),
        json!({ "data": { "token": null } }),
        json!({ "data": { "token": 7 } }),
    ] {
        for objects in [scene(), scene_without("ManagedServiceAccount")] {
            let mut world = World::of(objects);
            let secret = with(of_ocm(), &patch);
            world.put(secret.clone());
            world.settle();
            assert_eq!(world.copy(), &secret, "{patch}");
        }
    }
    for profile in [
        json!({ "metadata": { "labels": { CLUSTER_MANAGER: "karmada" } } }),
        json!({ "spec": { "clusterManager": { "name": "karmada" } } }),
    ] {
        let mut world = World::of(scene_with("ClusterProfile", &profile));
        world.put(of_ocm());
        world.settle();
        assert_eq!(world.copy(), &of_ocm(), "of a profile that is not ours: {profile}");
    }
}

#[test]
fn a_copy_whose_account_opted_out_while_no_syncer_ran_ends_in_any_order_of_the_first_lists() {
    let unlabelled = with(account("c1", "kueue"), &json!({ "metadata": { "labels": null } }));
    let no_annotations = json!({ "metadata": { "annotations": null } });
    // OCM's syncer made it, or a tenant has removed more than its annotations.
    for patch in [
        no_annotations.clone(),
        with(no_annotations, &json!({ "metadata": { "ownerReferences": null } })),
    ] {
        for is_copy_first in [true, false] {
            let mut world = World::of(scene_without("ManagedServiceAccount"));
            let copy = with(our_copy(), &patch);
            if is_copy_first {
                world.put(copy.clone());
            }
            world.arrive_at_syncer(&unlabelled);
            if !is_copy_first {
                world.put(copy);
            }
            assert!(world.copy_plan().is_removal, "the copy is first: {is_copy_first}, {patch}");
            world.settle();
            assert!(world.copy().is_null());
        }
    }
    // Where tokens are watched by the names of accounts that opt in, the token is not known.
    let mut world = World::unlisted(SyncSettings::default(), scene_without("Secret"));
    world.index.knows_accounts = true;
    world.index.listed_copies.set(None, true);
    world.arrive_at_syncer(&unlabelled);
    world.put(of_ocm());
    assert!(world.copy_plan().is_removal);
}

#[test]
fn a_secret_without_marks_and_token_of_a_copy_is_foreign() {
    let without = |patch: Value| with(bait(), &patch);
    for secret in [
        without(json!({ "metadata": { "labels": null } })),
        without(json!({ "metadata": { "labels": { SYNCED_FROM: "c1-other" } } })),
        without(json!({ "metadata": { "annotations": null } })),
        without(json!({ "metadata": { "annotations": { SYNCED_CLUSTER: "c2" } } })),
        without(json!({ "metadata": { "annotations": { SYNCED_ACCOUNT: null } } })),
        without(json!({ "type": "kubernetes.io/tls" })),
        without(json!({ "metadata": { "labels": { IS_MANAGED_SERVICE_ACCOUNT: "true" } } })),
    ] {
        let mut world = World::of(scene());
        world.put(secret.clone());
        assert_eq!(world.copy_state(), Some(State::ForeignSecret));
        assert_eq!(world.copy_plan().holder, None);
        world.leave(&binding("team", "prod"));
        world.settle();
        assert_eq!(world.copy(), &secret);
    }
}

#[test]
fn after_a_restart_a_copy_that_is_exactly_as_it_was_made_costs_no_write_and_a_rotation_one() {
    let mut world = World::settled_scene();
    world.restart();
    assert_eq!(world.next(), CopyAction::Nothing);
    world.rotate();
    let action = world.next();
    assert!(matches!(action, CopyAction::Patch(..)), "{action:?}");
}

#[test]
fn after_a_restart_a_copy_that_carries_more_stays_until_a_token_would_go_into_it_and_is_replaced_then()
 {
    for more in [
        json!({ "metadata": { "annotations": { "replicator/replicate-to": ".*" } } }),
        json!({ "metadata": { "labels": { "example.com/team": "x" } } }),
        json!({ "immutable": true }),
    ] {
        let mut world = World::settled_scene();
        world.edit_copy(&more);
        world.restart();
        assert_eq!(world.next(), CopyAction::Nothing, "{more}");
        world.rotate();
        assert_eq!(world.next(), CopyAction::Delete(world.copy_version()), "{more}");
        world.settle();
        let rotated = json!({ "data": { "token": base64("rotated") } });
        assert_eq!(content(world.copy()), content(&with(our_copy(), &rotated)), "{more}");
    }
}

#[test]
fn after_a_restart_a_copy_is_known_by_its_token_whatever_was_stripped_from_it() {
    for edit in [
        stripped(),
        json!({ "metadata": { "labels": null } }),
        json!({ "metadata": { "labels": { SYNCED_FROM: "another" } } }),
        json!({ "metadata": { "annotations": null } }),
        json!({ "metadata": { "ownerReferences": null } }),
    ] {
        let mut world = World::settled_scene();
        world.edit_copy(&edit);
        world.restart();
        let mut revoked = World::settled_scene();
        revoked.edit_copy(&edit);
        revoked.restart();
        world.settle();
        assert_eq!(content(world.copy()), content(&our_copy()), "{edit}");
        revoked.leave(&binding("team", "prod"));
        revoked.settle();
        assert!(revoked.secrets.is_empty(), "{edit}");
    }
}

#[test]
fn a_token_that_was_rotated_while_no_syncer_ran_goes_into_a_new_secret() {
    let mut world = World::settled_scene();
    world.rotate();
    world.restart();
    world.settle();
    assert_eq!(world.copy()["data"]["token"], base64("rotated"));
    assert_ne!(world.copy_version().uid, "uid-1".into());
}

#[test]
fn a_secret_that_claims_to_be_a_copy_is_read_in_bounded_memory() {
    let long = "x".repeat(200_000);
    let claims = json!({
        "metadata": {
            "annotations": { SYNCED_ACCOUNT_UID: long, "example.com/note": long },
            "ownerReferences": [{
                "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "controller": true,
                "name": "c1", "uid": long,
            }],
        },
        "data": { long.clone(): base64(&long) },
    });
    let shown = format!("{:?}", observe(&with(our_copy(), &claims)));
    assert!(shown.len() < 2_000, "{} bytes", shown.len());
}

#[test]
fn a_copy_of_a_copy_under_another_name_is_left_alone() {
    let mut world = World::settled_scene();
    let copied = json!({ "metadata": { "name": "c1-mine", "managedFields": null } });
    world.put(with(our_copy(), &copied));
    let before = world.secrets.clone();
    world.settle();
    assert_eq!(world.secrets, before);
}

#[test]
fn the_note_on_a_stranger_names_the_account_whose_token_belongs_there() {
    let mut world = World::of(scene());
    world.put(stranger("team", "c1-kueue"));
    let findings = world.copy_plan().findings;
    assert!(findings[0].message.contains("ManagedServiceAccount c1/kueue"), "{findings:?}");
    world.remove(&scene_key());
    world.settle();
    assert_eq!(world.copy()["data"]["token"], base64("token-of-c1/kueue"), "once it is gone");
}

/// The scene with its copy on its way out, held by a finalizer.
fn terminating() -> World {
    let mut world = World::settled_scene();
    let deleting =
        json!({ "metadata": { "deletionTimestamp": NOON, "finalizers": ["example.com/hold"] } });
    world.edit_copy(&deleting);
    world
}

fn assert_terminating(world: &World) {
    let CopyPlan { states, findings, .. } = world.copy_plan();
    assert_eq!(states, [(account_key("c1", "kueue"), State::Terminating)]);
    let reasons: Vec<_> = findings.iter().map(|note| note.reason).collect();
    assert_eq!(reasons, [Reason::CopyTerminating]);
}

#[test]
fn a_copy_that_is_being_deleted_is_left_alone_where_it_may_be() {
    let mut world = terminating();
    assert_terminating(&world);
    assert_eq!(world.next(), CopyAction::Nothing);
    // It is deleted, not repaired.
    world.rotate();
    assert_terminating(&world);
    assert_eq!(world.next(), CopyAction::Nothing);
    // And recreated once it is gone.
    world.remove(&scene_key());
    world.settle();
    assert_eq!(world.copy()["data"]["token"], base64("rotated"));
}

#[test]
fn a_copy_that_is_being_deleted_is_emptied_where_it_may_not_be() {
    let mut world = terminating();
    world.leave(&binding("team", "prod"));
    let action = world.next();
    assert!(matches!(action, CopyAction::Patch(..)), "{action:?}");
    world.write(&scene_key(), &action);
    assert_eq!(world.copy()["data"], Value::Null);
    assert_eq!(world.next(), CopyAction::Nothing, "once");
    // Even if it may be there again, it is not filled again, and nothing is created over it.
    world.arrive(&binding("team", "prod"));
    assert_terminating(&world);
    assert_eq!(world.next(), CopyAction::Nothing);
}

#[test]
fn a_copy_that_is_known_before_the_token_of_its_account_is_ours_once_that_is_known() {
    let mut world = World::settled_scene();
    world.leave(&token("c1", "kueue"));
    world.restart();
    assert_eq!(world.index.created(&scene_key()), None);
    world.arrive(&token("c1", "kueue"));
    assert!(world.index.created(&scene_key()).is_some());
}

#[test]
fn the_finding_on_a_copy_that_is_being_deleted_says_what_becomes_of_its_token() {
    let finding = |world: &World| world.copy_plan().findings.remove(0).message;
    let mut world = terminating();
    assert!(finding(&world).ends_with("and keeps its token, which is granted"));
    world.leave(&binding("team", "prod"));
    assert!(finding(&world).ends_with("and is emptied"), "before");
    world.settle();
    assert!(finding(&world).ends_with("and is emptied"), "and after it");
    world.arrive(&binding("team", "prod"));
    assert!(finding(&world).ends_with("and is emptied"), "even if it is granted again");
    let mut world = terminating();
    world.edit_copy(&json!({ "immutable": true }));
    world.leave(&binding("team", "prod"));
    assert!(finding(&world).ends_with("and cannot be emptied: it is immutable"));
    assert_eq!(world.next(), CopyAction::Nothing);
}

#[test]
fn a_copy_that_is_being_deleted_stays_full_while_it_is_not_known_whether_it_may_be_there() {
    let mut world = terminating();
    world.arrive(&broken("prod"));
    assert_eq!(world.next(), CopyAction::Nothing);
    world.arrive(&with(token("c1", "kueue"), &json!({ "data": "text" })));
    assert_eq!(world.next(), CopyAction::Nothing);
}

#[test]
fn the_field_manager_is_a_contract_with_what_is_already_written() {
    assert_eq!(FIELD_MANAGER, "hub-addons-credential-syncer");
}
