//! The permissions of a consumer are in an object of the kind that is configured. What exists of the other kind ends.

use hub_api::labels::SYNC_TO_NAMESPACES;
use hub_core::consumer_access::{
    AccessAction, AccessKind, AccessSettings, FoundObject, ObservedAccess,
};
use hub_core::finding::Reason;
use hub_core::grant::Grant;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::consumer_access::{
    World, declared, doubtful, foreign, granted, is_foreign, key, observe, past, reasons, refused,
    settings, settings_by, settings_of, settled_by,
};
use crate::support::{cases, with};

pub const WORK: AccessKind = AccessKind::ManifestWork;
pub const PERMISSION: AccessKind = AccessKind::ClusterPermission;

/// The kinds that a consumer can declare, and its settings.
pub fn kinds() -> [(AccessKind, AccessSettings); 2] {
    [(WORK, settings_by("ManifestWork")), (PERMISSION, settings_by("ClusterPermission"))]
}

pub fn other(kind: AccessKind) -> AccessKind {
    if kind == WORK { PERMISSION } else { WORK }
}

/// An access with permissions of both kinds.
pub fn both_kinds() -> World {
    let mut world = settled_by(&settings_by("ClusterPermission"));
    let work = settled_by(&settings_by("ManifestWork"));
    world.objects.insert(WORK, work.objects[&WORK].clone());
    world.found.insert(WORK, work.found[&WORK].clone());
    world
}

/// The settings of a consumer that no longer declares the ClusterRole edit.
pub fn with_fewer_roles(kind: AccessKind) -> AccessSettings {
    let fewer = json!({ "permissions": [{ "clusterRole": "view" }] });
    let permissions = Some(format!("{kind:?}").parse().unwrap());
    AccessSettings { permissions, ..settings_of(&json!([with(declared()[0].clone(), &fewer)])) }
}

/// What the status of an object of a kind reports about the declared bindings.
pub fn reports(kind: AccessKind, status: &str) -> Value {
    let of = |condition: &str| {
        json!([{
            "type": condition, "status": status, "reason": "FromTheAgent", "message": "of the agent",
        }])
    };
    if kind == WORK {
        return json!({ "status": { "conditions": of("Applied") } });
    }
    let name = "hub-addons-permission:app:edit";
    let edits = ["a", "b"].map(
        |namespace| json!({ "name": name, "namespace": namespace, "condition": of("Applied") }),
    );
    json!({ "status": {
        "conditions": of("AppliedRBACManifestWork"),
        "resourceStatus": {
            "clusterRoleBindings": [{ "name": "hub-addons-permission:app:view", "condition": of("Applied") }],
            "roleBindings": edits,
        },
    } })
}

#[test]
fn a_cluster_permission_binds_the_declared_cluster_roles_to_the_account() {
    let mut world = World::default();
    world.settle(&settings_by("ClusterPermission"), &granted());
    assert_eq!(world.writes(), ["create Account", "create ClusterPermission"]);
    let permission = &world.objects[&PERMISSION];
    assert_eq!(permission["apiVersion"], "rbac.open-cluster-management.io/v1alpha1");
    assert_eq!(permission["metadata"]["name"], "hub-addons-consumer-app");
    let owner = &permission["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], world.objects[&AccessKind::Account]["metadata"]["uid"]);
    let subject = json!({
        "apiGroup": "authentication.open-cluster-management.io", "kind": "ManagedServiceAccount", "name": "app",
    });
    let bound = |role: &str, namespace: Option<&str>| {
        let mut binding = json!({
            "name": format!("hub-addons-permission:app:{role}"), "subject": subject,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        });
        if let Some(namespace) = namespace {
            binding["namespace"] = json!(namespace);
        }
        binding
    };
    let expected = json!({
        "clusterRoleBindings": [bound("view", None)],
        "roleBindings": [bound("edit", Some("a")), bound("edit", Some("b"))],
    });
    assert_eq!(permission["spec"], expected);
    // As after a restart: nothing is known.
    world.found.clear();
    world.settle(&settings_by("ClusterPermission"), &granted());
    assert!(world.writes().is_empty());
}

#[test]
fn the_permissions_of_one_kind_end_when_the_other_is_configured() {
    for (kind, settings) in kinds() {
        let before = other(kind);
        let mut world = settled_by(&settings_by(&format!("{before:?}")));
        // In doubt, nothing is created, and what exists stays and follows the declaration.
        world.settle(&settings, &doubtful());
        assert!(world.writes().is_empty(), "{kind:?}");
        let mut in_doubt = world.clone();
        in_doubt.settle(&with_fewer_roles(kind), &doubtful());
        assert_eq!(in_doubt.writes(), [format!("patch {before:?}")]);
        world.settle(&settings, &granted());
        assert_eq!(world.writes(), [format!("create {kind:?}"), format!("delete {before:?}")]);
        world.edit(kind, &reports(kind, "False"));
        let plan = world.settle(&settings, &granted());
        assert_eq!(reasons(&plan), [Reason::PermissionsNotApplied], "{kind:?}");
        // Without any ClusterRole, no permissions of either kind.
        let none = with(declared()[0].clone(), &json!({ "permissions": [] }));
        let permissions = Some(format!("{kind:?}").parse().unwrap());
        world.settle(&AccessSettings { permissions, ..settings_of(&json!([none])) }, &granted());
        assert_eq!(world.writes(), [format!("delete {kind:?}")]);
    }
}

#[test]
fn with_the_grant_what_is_created_and_not_shown_yet_ends_by_its_uid_and_the_account_first() {
    let mut observed = ObservedAccess::default();
    observed.created.insert(AccessKind::Account, "account".into());
    observed.created.insert(AccessKind::ManifestWork, "work".into());
    let settings = settings_by("ManifestWork");
    for (kind, uid) in [(AccessKind::Account, "account"), (AccessKind::ManifestWork, "work")] {
        let plan = settings.plan(&refused(), &key(), &observed);
        assert_eq!(plan.write, Some((kind, AccessAction::DeleteByUid(uid.into()))));
        observed.created.remove(&kind);
    }
    assert_eq!(settings.plan(&refused(), &key(), &observed).write, None);
}

#[test]
fn permissions_of_another_owner_are_reported_and_left_alone() {
    for (kind, settings) in kinds() {
        let before = other(kind);
        let mut world = settled_by(&settings);
        world.objects.insert(kind, foreign(kind));
        let plan = world.settle(&settings, &granted());
        assert!(world.writes().is_empty());
        let reason = match kind {
            PERMISSION => Reason::ForeignClusterPermission,
            _ => Reason::ForeignManifestWork,
        };
        assert_eq!(reasons(&plan), [reason]);
        // Of the other kind, an object of another owner is none of our business.
        let mut world = settled_by(&settings);
        world.objects.insert(before, foreign(before));
        world.edit(kind, &reports(kind, "True"));
        let plan = world.settle(&settings, &granted());
        assert!(world.writes().is_empty() && reasons(&plan).is_empty(), "{plan:?}");
        world.settle(&settings, &refused());
        assert_eq!(world.objects.into_iter().collect::<Vec<_>>(), [(before, foreign(before))]);
    }
}

#[test]
fn what_cluster_permission_reports_is_a_finding_except_that_it_waits() {
    let settings = settings_by("ClusterPermission");
    for (condition, reason, is_finding) in [
        ("AppliedRBACManifestWork", "FailedBuildManifestWork", true),
        ("AppliedRBACManifestWork", "AppliedManifestWorkFailed", true),
        ("AppliedRBACManifestWork", "ApplyRBACManifestWorkNotComplete", false),
        ("Validation", "FailedValidationNoBindingsDefined", true),
        ("ValidateClusterRolesExist", "ClusterRolesNotFound", false),
    ] {
        let mut world = settled_by(&settings);
        let condition = json!({ "type": condition, "status": "False", "reason": reason, "message": "no\nroles" });
        world.edit(PERMISSION, &json!({ "status": { "conditions": [condition] } }));
        let plan = world.settle(&settings, &granted());
        let expected: &[Reason] = if is_finding { &[Reason::PermissionsNotApplied] } else { &[] };
        assert_eq!(reasons(&plan), expected, "{condition}");
        let message =
            plan.findings.values().flatten().map(|note| note.message.as_str()).collect::<String>();
        assert!(!is_finding || message.contains("no roles"), "{message}");
    }
}

#[test]
fn a_cluster_permission_is_applied_when_its_status_lists_each_binding_as_applied() {
    let settings = settings_by("ClusterPermission");
    let applied = || reports(PERMISSION, "True");
    let listing = |patch: Value| with(applied(), &json!({ "status": { "resourceStatus": patch } }));
    let view = |conditions: &str, status: &str| {
        let condition = json!([{ "type": "Applied", "status": status }]);
        listing(json!({ "clusterRoleBindings": [{
            "name": "hub-addons-permission:app:view", (conditions): condition,
        }] }))
    };
    // As most versions report a ManifestWork that they have created on the hub.
    let created = json!({ "status": { "conditions": [{
        "type": "AppliedRBACManifestWork", "status": "True", "reason": "AppliedRBACManifestWork",
    }] } });
    let edit = |namespace: &str| {
        json!({
            "name": "hub-addons-permission:app:edit", "namespace": namespace,
            "condition": [{ "type": "Applied", "status": "True" }],
        })
    };
    for (status, is_applied) in [
        (created, false),
        (applied(), true),
        (view("condition", "True"), true),
        (view("conditions", "True"), true),
        (view("condition", "False"), false),
        (view("condition", "Unknown"), false),
        (listing(json!({ "clusterRoleBindings": null })), false),
        (listing(json!({ "roleBindings": [edit("a")] })), false),
        (listing(json!({ "roleBindings": [edit("a"), edit("c")] })), false),
        (listing(json!({ "roleBindings": [edit("b"), edit("a"), edit("c")] })), true),
    ] {
        let mut world = settled_by(&settings);
        let token = json!({ "status": { "tokenSecretRef": { "name": "app" } } });
        world.edit(AccessKind::Account, &token);
        world.edit(PERMISSION, &status);
        let (reason, _) = world.lacking(&settings, &granted(), "team").unwrap();
        let expected = if is_applied { "CopyMissing" } else { "PermissionsNotApplied" };
        assert_eq!(reason, expected, "{status}");
    }
}

#[test]
fn a_rejection_by_cluster_permission_that_is_over_is_not_a_finding() {
    let settings = settings_by("ClusterPermission");
    let condition = |kind: &str, status: &str, hour: u8| {
        json!({
            "type": kind, "status": status, "reason": "R", "message": "namespace value is not a managed cluster",
            "lastTransitionTime": format!("2026-05-01T{hour:02}:00:00Z"),
        })
    };
    for (applied, hour, lists, is_finding) in [
        ("True", 13, false, false),
        ("True", 12, false, false),
        ("True", 11, false, true),
        ("True", 11, true, false),
        ("False", 13, false, true),
        ("Unknown", 13, false, true),
    ] {
        let mut world = settled_by(&settings);
        if lists {
            world.edit(PERMISSION, &reports(PERMISSION, "True"));
        }
        let conditions = [
            condition("Validation", "False", 12),
            condition("AppliedRBACManifestWork", applied, hour),
        ];
        world.edit(PERMISSION, &json!({ "status": { "conditions": conditions } }));
        let plan = world.settle(&settings, &granted());
        let expected: &[Reason] = if is_finding { &[Reason::PermissionsNotApplied] } else { &[] };
        assert_eq!(reasons(&plan), expected, "{applied} at {hour}");
    }
}

#[test]
fn cluster_permissions_are_watched_where_the_kind_is_configured() {
    for (settings, wanted, all) in [
        (settings(), WORK, &[WORK][..]),
        (settings_by("ManifestWork"), WORK, &[WORK, PERMISSION]),
        (settings_by("ClusterPermission"), PERMISSION, &[WORK, PERMISSION]),
    ] {
        assert_eq!((settings.permission_kind(), settings.permission_kinds()), (wanted, all));
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn whatever_was_there_ends_as_the_grant_and_the_kind_say_and_what_is_not_ours_keeps_every_byte(
        account in past(AccessKind::Account),
        work in past(WORK),
        permission in past(PERMISSION),
        declared in 0_usize..2,
        grant in 0_usize..3,
    ) {
        let (kind, settings) = kinds().into_iter().nth(declared).unwrap();
        let mut world = World::default();
        for (kind, (object, is_known)) in
            [(AccessKind::Account, account), (WORK, work), (PERMISSION, permission)]
        {
            let Some(object) = object else { continue };
            if is_known && !is_foreign(&object) {
                world.found.insert(kind, FoundObject { object: observe(&object), is_ours: true });
            }
            world.objects.insert(kind, object);
        }
        world.observed(&settings);
        let before = world.clone();
        let (fleet, grant) = [
            (granted(), Grant::Granted), (refused(), Grant::Refused), (doubtful(), Grant::Unknown),
        ].into_iter().nth(grant).unwrap();
        // The policies, which know no history, recognize an account by its labels or by its limit.
        let may_change = |kind, object: &Value| kind != AccessKind::Account
            || observe(object).is_marked(&settings)
            || object["metadata"]["annotations"][SYNC_TO_NAMESPACES] == "team";
        let is_ours = |world: &World, kind: AccessKind| world.objects.get(&kind).is_some_and(|object| {
            let found = world.found.get(&kind).filter(|it| it.object.version.uid == observe(object).version.uid);
            found.is_some_and(|it| it.is_ours) && may_change(kind, object)
        });
        world.settle(&settings, &fleet);
        let writes = world.writes().join(",");
        prop_assert!(writes.split(',').count() <= 4, "{}", writes);
        for kind in AccessKind::ALL {
            if !is_ours(&before, kind) && let Some(object) = before.objects.get(&kind) {
                prop_assert_eq!(world.objects.get(&kind), Some(object), "not ours");
            }
        }
        let stays = |kind| is_ours(&world, kind)
            && world.objects[&kind]["metadata"]["deletionTimestamp"].is_null();
        match grant {
            Grant::Refused => {
                prop_assert!(!AccessKind::ALL.into_iter().any(stays), "{}", writes);
                prop_assert!(!writes.contains(",delete Account"), "the account is first: {}", writes);
            }
            Grant::Granted if stays(AccessKind::Account) => {
                prop_assert!(world.objects.contains_key(&kind), "{}", writes);
                prop_assert!(!stays(kind) || !stays(other(kind)), "{}", writes);
            }
            Grant::Granted => {}
            Grant::Unknown => prop_assert!(!writes.contains("create"), "{}", writes),
        }
        // Permissions of ours serve no account of another owner.
        if world.objects.contains_key(&AccessKind::Account) && !is_ours(&world, AccessKind::Account) {
            prop_assert!(!stays(WORK) && !stays(PERMISSION), "{}", writes);
        }
    }
}
