//! A consumer's account and its permissions exist exactly where its namespace is granted the cluster, and nothing of
//! another owner is touched.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::AccountKey;
use hub_core::consumer_access::{
    AccessAction, AccessKind, AccessSettings, FoundObject, ObservedObject,
};
use hub_core::finding::Reason;
use hub_core::fleet::{Fleet, ObservedCluster, Touched};
use hub_core::known::Known;
use serde_json::{Value, json};

use crate::support::consumer_access::{
    World, declared, doubtful, foreign, granted, key, object_of, reasons, refused, settings,
    settings_by, settings_of, settled, settled_by,
};
use crate::support::{deleting, granting_all, member, with};

const NOON: &str = "2026-05-01T12:00:00Z";
const SYNC: &str = "authentication.open-cluster-management.io/sync-to-clusterprofile";
const NAMESPACES: &str = "authentication.open-cluster-management.io/sync-to-namespaces";

#[test]
fn a_granted_cluster_takes_two_writes_the_account_first_and_none_after_that() {
    let mut world = World::default();
    let plan = world.settle(&settings(), &granted());
    assert_eq!(world.writes(), ["create Account", "create ManifestWork"]);
    assert!(plan.findings.is_empty(), "{plan:?}");
    let account = &world.objects[&AccessKind::Account];
    assert_eq!(account["metadata"]["name"], "app");
    assert_eq!(account["metadata"]["namespace"], "c1");
    assert_eq!(account["metadata"]["labels"][SYNC], "true");
    assert_eq!(account["metadata"]["annotations"][NAMESPACES], "team");
    assert_eq!(account["spec"], json!({ "rotation": { "enabled": true, "validity": "720h" } }));
    let work = &world.objects[&AccessKind::ManifestWork];
    assert_eq!(work["metadata"]["name"], "hub-addons-consumer-app");
    assert_eq!(work["metadata"]["ownerReferences"][0]["uid"], account["metadata"]["uid"]);
    let manifests = work["spec"]["workload"]["manifests"].as_array().unwrap();
    let bound = manifests.iter().map(|it| {
        let namespace = it["metadata"]["namespace"].as_str();
        (it["kind"].as_str().unwrap(), namespace, it["roleRef"]["name"].as_str().unwrap())
    });
    let expected = [
        ("ClusterRoleBinding", None, "view"),
        ("RoleBinding", Some("a"), "edit"),
        ("RoleBinding", Some("b"), "edit"),
    ];
    assert_eq!(bound.collect::<Vec<_>>(), expected);
    let subject = json!([{
        "kind": "ServiceAccount", "name": "app", "namespace": "open-cluster-management-agent-addon",
    }]);
    assert!(manifests.iter().all(|it| it["subjects"] == subject), "{manifests:?}");
    // As after a restart: nothing is known.
    world.found.clear();
    world.settle(&settings(), &granted());
    assert!(world.writes().is_empty());
}

#[test]
fn an_account_that_cannot_be_deleted_loses_its_permissions_and_is_tried_again() {
    let mut world = World { refuses: ["delete Account".to_owned()].into(), ..settled() };
    world.settle(&settings(), &refused());
    assert_eq!(world.writes(), ["delete Account, refused", "delete ManifestWork"]);
    world.settle(&settings(), &refused());
    assert_eq!(world.writes(), ["delete Account, refused"]);
    // With the grant, its permissions return.
    world.settle(&settings(), &granted());
    assert_eq!(world.writes(), ["create ManifestWork"]);
    world.refuses.clear();
    world.settle(&settings(), &refused());
    assert_eq!(world.writes(), ["delete Account", "delete ManifestWork"]);
}

#[test]
fn an_object_whose_spec_cannot_be_read_is_recreated_where_it_is_granted_and_kept_in_doubt() {
    for (kind, settings) in [
        (AccessKind::Account, settings()),
        (AccessKind::ManifestWork, settings()),
        (AccessKind::ClusterPermission, settings_by("ClusterPermission")),
    ] {
        let mut settled = settled_by(&settings);
        let metadata = serde_json::from_value(settled.objects[&kind]["metadata"].clone()).unwrap();
        let mut observed = settled.observed(&settings);
        let object = ObservedObject::read(&metadata, None);
        observed.objects.insert(kind, FoundObject { object, is_ours: true });
        let plan = |fleet: &Fleet| settings.plan(fleet, &key(), &observed);
        let write = plan(&granted()).write;
        assert!(matches!(write, Some((it, AccessAction::Delete(_))) if it == kind), "{write:?}");
        let write = plan(&refused()).write;
        assert!(matches!(write, Some((AccessKind::Account, AccessAction::DeleteByUid(_)))));
        let doubt = plan(&doubtful());
        assert_eq!(doubt.write, None, "{kind:?}");
        assert_eq!(reasons(&doubt), [Reason::Unreadable], "{kind:?}");
    }
}

#[test]
fn a_validity_is_compared_as_a_duration_and_not_as_a_text() {
    for (shown, is_same) in [
        ("720h", true),
        ("720h0m0s", true),
        ("719h60m", true),
        ("43200m", true),
        ("2592000s", true),
        ("720h0m0.5s", false),
        ("-720h", false),
        ("720 hours", false),
        ("PT720H", false),
        ("30d", false),
        ("99999999999999999999h", false),
        ("720", false),
        ("", false),
    ] {
        let mut world = settled();
        world.edit(AccessKind::Account, &json!({ "spec": { "rotation": { "validity": shown } } }));
        world.settle(&settings(), &granted());
        let expected: &[&str] = if is_same { &[] } else { &["patch Account"] };
        assert_eq!(world.writes(), expected, "{shown:?}");
    }
    // The rest counts as well.
    let disabled = json!({ "spec": { "rotation": { "validity": "720h0m0s", "enabled": false } } });
    let mut world = settled();
    world.edit(AccessKind::Account, &disabled);
    world.settle(&settings(), &granted());
    assert_eq!(world.writes(), ["patch Account"]);
}

#[test]
fn the_hub_itself_is_excluded() {
    let of = |name: &str, label: Option<&str>| {
        let labels = json!({ "metadata": { "labels": { "local-cluster": label } } });
        let fleet = granting_all([with(member(name, "prod"), &labels)]);
        (fleet, AccountKey { cluster: name.into(), account: "app".into() })
    };
    for (name, label, is_hub) in [
        ("local-cluster", None, true),
        ("local-cluster", Some("false"), true),
        ("renamed", Some("true"), true),
        ("renamed", Some("false"), false),
        ("c1", None, false),
    ] {
        let (fleet, key) = of(name, label);
        let plan = World::default().plan_of(&settings(), &fleet, &key);
        assert_eq!(plan.write.is_none(), is_hub, "{name} {label:?}");
    }
    // Whatever its name and its labels are, it has the ID of the hub.
    let (mut fleet, key) = of("renamed", None);
    let claims = json!([{ "name": "id.k8s.io", "value": "the-hub" }]);
    let claim = json!({ "status": { "clusterClaims": claims } });
    let claiming = serde_json::from_value(with(member("renamed", "prod"), &claim)).unwrap();
    fleet.apply_cluster("renamed".into(), ObservedCluster::read(Ok(claiming)));
    for (id, is_hub) in [(None, false), (Some("another"), false), (Some("the-hub"), true)] {
        let touched = fleet.set_hub_id(id.map(str::to_owned));
        assert_eq!(touched == Touched::Nothing, id.is_none(), "a new ID concerns every decision");
        let plan = World::default().plan_of(&settings(), &fleet, &key);
        assert_eq!(plan.write.is_none(), is_hub, "{id:?}");
    }
    // What it has, it loses.
    let (granted, key) = of("renamed", Some("true"));
    let mut world = settled();
    let write = world.plan_of(&settings(), &granted, &key).write;
    assert!(matches!(write, Some((AccessKind::Account, AccessAction::DeleteByUid(_)))));
}

#[test]
fn permissions_are_for_the_account_where_the_addon_on_the_cluster_shows_it() {
    let settings = AccessSettings { account_namespace: None, ..settings() };
    let subject = |world: &World| {
        let work = &world.objects[&AccessKind::ManifestWork];
        let manifests = work["spec"]["workload"]["manifests"].as_array().unwrap().iter();
        let namespaces: BTreeSet<_> =
            manifests.map(|it| it["subjects"][0]["namespace"].to_string()).collect();
        namespaces.into_iter().collect::<Vec<_>>().join(" ")
    };
    let mut world = World::default();
    // While it is unknown, the account is created, and nothing is permitted to it.
    world.settle(&settings, &granted());
    assert_eq!(world.writes(), ["create Account"]);
    for (shown, namespace) in [
        (Known::Absent, "open-cluster-management-agent-addon"),
        (Known::Present("agents".into()), "agents"),
        // What is known of it stays.
        (Known::Unknown, "agents"),
    ] {
        world.agent_namespace = shown;
        world.settle(&settings, &granted());
        assert_eq!(subject(&world), format!("{namespace:?}"));
    }
    assert_eq!(world.writes(), ["create ManifestWork", "patch ManifestWork"]);
    // What is no longer declared ends all the same.
    let view_alone = json!({ "permissions": [{ "clusterRole": "view" }] });
    let fewer = settings_of(&json!([with(declared()[0].clone(), &view_alone)]));
    let fewer = AccessSettings { account_namespace: None, ..fewer };
    world.settle(&fewer, &granted());
    assert_eq!(world.writes(), ["patch ManifestWork"]);
    assert_eq!(subject(&world), "\"agents\"");
}

#[test]
fn a_finalizer_that_holds_the_account_does_not_hold_its_permissions() {
    let mut world = settled();
    let account = world.objects.get_mut(&AccessKind::Account).unwrap();
    account["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let plan = world.settle(&settings(), &refused());
    assert_eq!(world.writes(), ["delete Account", "delete ManifestWork"]);
    assert_eq!(reasons(&plan), [Reason::AccountTerminating]);
    // Granted again meanwhile, the account that is going is waited for, and reported.
    let plan = world.settle(&settings(), &granted());
    assert!(world.writes().is_empty());
    assert_eq!(reasons(&plan), [Reason::AccountTerminating]);
    world.objects.remove(&AccessKind::Account);
    world.settle(&settings(), &granted());
    assert_eq!(world.writes(), ["create Account", "create ManifestWork"]);
}

#[test]
fn of_an_account_that_a_finalizer_holds_what_remains_of_its_permissions_is_reported() {
    let held = |kind| {
        with(object_of(kind), &json!({ "metadata": { "finalizers": ["example.com/hold"] } }))
    };
    let said = |settings: &AccessSettings, fleet: &Fleet, permissions: Value| {
        let mut world = World::with(AccessKind::Account, deleting(held(AccessKind::Account)));
        world.objects.insert(AccessKind::ManifestWork, permissions);
        let plan = world.settle(settings, fleet);
        assert_eq!(reasons(&plan), [Reason::AccountTerminating]);
        plan.findings[&AccessKind::Account][0].message.clone()
    };
    let work = AccessKind::ManifestWork;
    let ours = || object_of(work);
    for (settings, fleet, permissions, words) in [
        (settings(), refused(), ours(), "its permissions are deleted"),
        (settings(), refused(), held(work), "its permissions are being deleted"),
        (settings(), refused(), foreign(work), "its permissions are deleted"),
        (settings(), granted(), ours(), "a new account is created"),
        (settings_of(&json!([])), granted(), ours(), "its permissions are deleted"),
    ] {
        let said = said(&settings, &fleet, permissions);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn an_edit_is_undone_and_labels_of_others_are_kept() {
    let executor = json!({ "executor": { "subject": { "type": "ServiceAccount" } } });
    let more = json!({ "workload": { "manifests": [], "more": 1 } });
    let wider = json!({ NAMESPACES: "team,other" });
    for (kind, patch) in [
        (AccessKind::Account, json!({ "metadata": { "labels": { SYNC: null } } })),
        (AccessKind::Account, json!({ "metadata": { "annotations": wider } })),
        (AccessKind::Account, json!({ "metadata": { "annotations": null } })),
        (AccessKind::Account, json!({ "spec": { "ttlSecondsAfterCreation": 60 } })),
        (AccessKind::Account, json!({ "spec": { "rotation": { "validity": "1h", "more": 1 } } })),
        (AccessKind::ManifestWork, json!({ "spec": executor })),
        (AccessKind::ManifestWork, json!({ "spec": more })),
        (AccessKind::ManifestWork, json!({ "metadata": { "ownerReferences": null } })),
        // Known to be ours.
        (AccessKind::ManifestWork, json!({ "metadata": { "labels": null } })),
        (AccessKind::Account, json!({ "metadata": { "labels": null } })),
        (AccessKind::ClusterPermission, json!({ "metadata": { "labels": null } })),
        (AccessKind::ClusterPermission, json!({ "metadata": { "ownerReferences": null } })),
        (AccessKind::ClusterPermission, json!({ "spec": { "clusterRoleBindings": null } })),
        (AccessKind::ClusterPermission, json!({ "spec": { "roleBindings": [] } })),
        (AccessKind::ClusterPermission, json!({ "spec": { "clusterRole": { "rules": [] } } })),
        (AccessKind::ClusterPermission, json!({ "spec": { "validate": true } })),
    ] {
        let by_permission = kind == AccessKind::ClusterPermission;
        let settings = if by_permission { settings_by("ClusterPermission") } else { settings() };
        let mut world = settled_by(&settings);
        let kept = json!({ "metadata": { "labels": { "theirs": "1" }, "annotations": { "theirs": "1" } } });
        let object = world.objects.remove(&kind).unwrap();
        let (right, wrong) = (object.clone(), with(with(object, &patch), &kept));
        world.objects.insert(kind, wrong);
        world.settle(&settings, &granted());
        assert_eq!(world.writes(), [format!("patch {kind:?}")], "{patch}");
        let expected = with(with(right, &kept), &json!({ "metadata": { "resourceVersion": "2" } }));
        assert_eq!(world.objects[&kind], expected, "{patch}");
    }
}

#[test]
fn a_stripped_object_is_still_deleted_with_the_grant() {
    for (kind, stripped) in [
        (AccessKind::Account, json!({ "labels": null })),
        (AccessKind::ManifestWork, json!({ "labels": null })),
        (AccessKind::ManifestWork, json!({ "labels": null, "ownerReferences": null })),
    ] {
        let mut world = settled();
        world.edit(kind, &json!({ "metadata": stripped }));
        world.settle(&settings(), &refused());
        assert!(world.objects.is_empty(), "{kind:?}: {world:?}");
    }
}

#[test]
fn an_account_without_labels_and_limit_is_not_ours_for_the_policies_nor_for_the_plan() {
    let stripped = json!({ "metadata": { "labels": null, "annotations": null } });
    for fleet in [granted(), refused()] {
        let mut world = settled();
        world.edit(AccessKind::Account, &stripped);
        let account = world.objects[&AccessKind::Account].clone();
        world.settle(&settings(), &fleet);
        assert_eq!(world.writes(), ["delete ManifestWork"], "it has no permissions");
        assert_eq!(world.objects[&AccessKind::Account], account);
        // As soon as it can be recognized, it is ours again.
        let limit = json!({ NAMESPACES: "team" });
        world.edit(AccessKind::Account, &json!({ "metadata": { "annotations": limit } }));
        world.settle(&settings(), &refused());
        assert_eq!(world.writes(), ["delete Account"]);
    }
}

#[test]
fn an_object_that_is_marked_after_it_was_seen_stays_another_owners() {
    for kind in [AccessKind::Account, AccessKind::ManifestWork] {
        let theirs = json!({ "uid": "theirs", "resourceVersion": "8" });
        let marked = json!({ "metadata": with(object_of(kind)["metadata"].clone(), &theirs) });
        let mut world = World::with(kind, foreign(kind));
        world.observed(&settings());
        world.edit(kind, &marked);
        let before = world.objects[&kind].clone();
        for fleet in [refused(), granted(), refused()] {
            world.settle(&settings(), &fleet);
            assert_eq!(world.objects[&kind], before, "{kind:?}");
        }
        assert!(!world.writes().iter().any(|write| *write == format!("delete {kind:?}")));
        // Another object of that name is judged on its own.
        world.objects.insert(kind, with(before, &json!({ "metadata": { "uid": "later" } })));
        world.settle(&settings(), &refused());
        assert!(world.objects.is_empty(), "{kind:?}");
    }
}

#[test]
fn an_account_of_another_owner_is_reported_and_gets_no_permissions() {
    let mut world = World::with(AccessKind::Account, foreign(AccessKind::Account));
    let plan = world.settle(&settings(), &granted());
    assert!(world.writes().is_empty());
    assert_eq!(reasons(&plan), [Reason::ForeignAccount]);
    // It has taken the place of ours.
    world.objects.insert(AccessKind::ManifestWork, object_of(AccessKind::ManifestWork));
    world.settle(&settings(), &granted());
    assert_eq!(world.writes(), ["delete ManifestWork"]);
    assert_eq!(world.objects[&AccessKind::Account], foreign(AccessKind::Account));
    // Where nothing is granted, its name is its own.
    let plan = world.settle(&settings(), &refused());
    assert!(reasons(&plan).is_empty() && world.writes().is_empty());
}

#[test]
fn an_object_of_another_installation_is_another_owners() {
    let other = AccessSettings { installation: "elsewhere".into(), ..settings() };
    let mut world = World { found: BTreeMap::new(), ..settled() };
    let plan = world.settle(&other, &refused());
    assert!(world.writes().is_empty(), "{plan:?}");
    let plan = world.settle(&other, &granted());
    assert!(world.writes().is_empty());
    assert_eq!(reasons(&plan), [Reason::ForeignAccount]);
}

#[test]
fn permissions_that_the_cluster_does_not_apply_are_reported() {
    let mut world = settled();
    let condition = json!({ "type": "Applied", "status": "False", "message": "no such role", "reason": "A", "lastTransitionTime": NOON });
    let work = world.objects.get_mut(&AccessKind::ManifestWork).unwrap();
    work["status"] = json!({ "conditions": [condition] });
    let plan = world.settle(&settings(), &granted());
    assert!(world.writes().is_empty());
    assert_eq!(reasons(&plan), [Reason::PermissionsNotApplied]);
    let note = &plan.findings[&AccessKind::ManifestWork][0];
    assert!(note.message.contains("no such role"), "{note:?}");
}

#[test]
fn a_doubt_creates_and_deletes_nothing_and_keeps_what_exists_up_to_date() {
    let mut world = World::default();
    world.settle(&settings(), &doubtful());
    assert!(world.writes().is_empty());
    let mut world = settled();
    world.settle(&settings(), &doubtful());
    assert!(world.writes().is_empty());
    let shorter = with(declared()[0].clone(), &json!({ "rotation": { "validity": "24h" } }));
    world.settle(&settings_of(&json!([shorter])), &doubtful());
    assert_eq!(world.writes(), ["patch Account"]);
}

#[test]
fn a_consumer_without_cluster_roles_has_an_account_and_no_permissions() {
    let bare = settings_of(&json!([{ "namespace": "team", "name": "app" }]));
    let mut world = World::default();
    world.settle(&bare, &granted());
    assert_eq!(world.writes(), ["create Account"]);
    let mut world = settled();
    // The validity is the default.
    world.settle(&bare, &granted());
    assert_eq!(world.writes(), ["patch Account", "delete ManifestWork"]);
}
