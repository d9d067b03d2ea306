//! An object that cannot be written, listed or read delays nothing that can: above all no end of a permission.

use hub_core::consumer_access::{AccessKind, AccessSettings, FoundObject, ObservedObject};
use hub_core::finding::Reason;
use serde_json::json;

use crate::permission_kinds::{PERMISSION, WORK, both_kinds, kinds, other, with_fewer_roles};
use crate::support::consumer_access::{
    World, declared, doubtful, foreign, granted, key, object_of, reasons, refused, settings_by,
    settings_of, settled_by,
};
use crate::support::{deleting, with};

const ACCOUNT: AccessKind = AccessKind::Account;

/// An access whose permissions are of the other kind than the one that is declared now.
fn before(kind: AccessKind) -> World {
    settled_by(&settings_by(&format!("{:?}", other(kind))))
}

fn refusing(writes: &[String], mut world: World) -> World {
    world.refuses = writes.iter().cloned().collect();
    world
}

fn has_edit(world: &World, kind: AccessKind) -> bool {
    world.objects[&kind]["spec"].to_string().contains("edit")
}

#[test]
fn what_is_revoked_ends_although_another_object_cannot_be_written() {
    for (kind, settings) in kinds() {
        let former = other(kind);
        let mut world = refusing(&[format!("create {kind:?}")], before(kind));
        world.settle(&with_fewer_roles(kind), &granted());
        assert!(!has_edit(&world, former), "{kind:?}");
        let mut world = refusing(&["patch Account".to_owned()], settled_by(&settings));
        world.edit(ACCOUNT, &json!({ "spec": { "rotation": { "validity": "1h" } } }));
        world.settle(&with_fewer_roles(kind), &granted());
        assert_eq!(world.writes(), ["patch Account, refused", &format!("patch {kind:?}")]);
        let mut world = refusing(&[format!("delete {former:?}")], both_kinds());
        world.settle(&with_fewer_roles(kind), &granted());
        assert!(!has_edit(&world, kind), "{kind:?}");
    }
}

#[test]
fn an_object_that_cannot_be_deleted_keeps_no_other_one() {
    for kept in AccessKind::ALL {
        let mut world = refusing(&[format!("delete {kept:?}")], both_kinds());
        world.settle(&settings_by("ClusterPermission"), &refused());
        assert_eq!(world.objects.keys().copied().collect::<Vec<_>>(), [kept]);
        let expected = AccessKind::ALL
            .map(|kind| format!("delete {kind:?}{}", if kind == kept { ", refused" } else { "" }));
        assert_eq!(world.writes(), expected);
    }
}

/// The settings and a hub that does not list ClusterPermissions.
fn unlisted(kind: AccessKind, mut world: World) -> (AccessSettings, World) {
    world.unlisted = [PERMISSION].into();
    (settings_by(&format!("{kind:?}")), world)
}

#[test]
fn while_cluster_permissions_are_not_listed_only_they_and_accounts_for_them_are_not_created() {
    let (settings, mut world) = unlisted(PERMISSION, World::default());
    world.settle(&settings, &granted());
    assert!(world.writes().is_empty(), "an account without permissions is of no use");
    let (by_work, mut world) = unlisted(WORK, World::default());
    world.settle(&by_work, &granted());
    assert_eq!(world.writes(), ["create Account", "create ManifestWork"], "of another kind");

    let (_, mut world) = unlisted(PERMISSION, before(PERMISSION));
    world.settle(&with_fewer_roles(PERMISSION), &granted());
    assert_eq!(world.writes(), ["patch ManifestWork"]);
    world.settle(&with_fewer_roles(PERMISSION), &doubtful());
    world.edit(
        ACCOUNT,
        &json!({ "metadata": { "labels": null }, "spec": { "rotation": { "validity": "1h" } } }),
    );
    world.settle(&with_fewer_roles(PERMISSION), &granted());
    assert_eq!(world.writes(), ["patch Account"]);
    world.settle(&settings, &refused());
    assert_eq!(world.writes(), ["delete Account", "delete ManifestWork"]);

    let (settings, mut world) = unlisted(PERMISSION, before(PERMISSION));
    world.objects.insert(ACCOUNT, foreign(ACCOUNT));
    world.settle(&settings, &granted());
    assert_eq!(world.writes(), ["delete ManifestWork"], "beside an account of another owner");
    let (_, mut world) = unlisted(PERMISSION, before(PERMISSION));
    let none = with(declared()[0].clone(), &json!({ "permissions": [] }));
    let permissions = settings.permissions;
    world.settle(&AccessSettings { permissions, ..settings_of(&json!([none])) }, &granted());
    assert_eq!(world.writes(), ["delete ManifestWork"]);
}

#[test]
fn an_account_that_cannot_be_read_stays_while_another_one_cannot_be_created() {
    let (settings, mut world) = unlisted(PERMISSION, before(PERMISSION));
    let metadata = serde_json::from_value(world.objects[&ACCOUNT]["metadata"].clone()).unwrap();
    let mut observed = world.observed(&settings);
    observed.objects.insert(
        ACCOUNT,
        FoundObject { object: ObservedObject::read(&metadata, None), is_ours: true },
    );
    let plan = settings.plan(&granted(), &key(), &observed);
    assert_eq!((&plan.write, reasons(&plan)), (&None, vec![Reason::Unreadable]));
}

#[test]
fn permissions_that_cannot_be_listed_are_not_reported_as_deleted() {
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    for (lists, words) in
        [(true, "its permissions are deleted"), (false, "a ClusterPermission may exist")]
    {
        let held = deleting(with(object_of(ACCOUNT), &finalizer));
        let (settings, mut world) = unlisted(PERMISSION, World::with(ACCOUNT, held));
        if lists {
            world.unlisted.clear();
        }
        let plan = world.settle(&settings, &refused());
        let message = &plan.findings[&ACCOUNT][0].message;
        assert!(message.contains(words), "{message}");
    }
}
