//! Applications with an identity of their own share the account of the user server: each has its part of the permissions
//! exactly where its namespace is granted the cluster, and keeps it while that is in doubt.

use hub_api::names::AccountKey;
use hub_core::consumer_access::{AccessKind, AccessName, AccessSettings};
use hub_core::finding::Reason;
use hub_core::fleet::Fleet;
use hub_core::grant::Grant;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::consumer_access::{World, reasons, settings_of};
use crate::support::{binding, broken, cases, exclusive, fleet, member, with};

const ACCOUNT: AccessKind = AccessKind::Account;
const WORK: AccessKind = AccessKind::ManifestWork;
const PERMISSION: AccessKind = AccessKind::ClusterPermission;
const NAMESPACES: &str = "authentication.open-cluster-management.io/sync-to-namespaces";
const SYNC: &str = "authentication.open-cluster-management.io/sync-to-clusterprofile";

/// Kueue with one ServiceAccount and Argo CD with two.
fn declared() -> Value {
    let own = json!({ "identity": "Own" });
    let kueue = json!({
        "namespace": "kueue-system", "name": "app", "serviceAccountNames": ["manager"],
        "permissions": [{ "clusterRole": "view" }, { "clusterRole": "edit", "namespaces": ["a", "b"] }],
    });
    let argo_cd = json!({
        "namespace": "argocd", "name": "app", "serviceAccountNames": ["server", "controller"],
        "permissions": [{ "clusterRole": "edit" }],
    });
    json!([with(own.clone(), &kueue), with(own, &argo_cd)])
}

fn settings() -> AccessSettings {
    settings_of(&declared())
}

/// The settings with a configured kind of permissions.
fn settings_with(kind: &str) -> AccessSettings {
    AccessSettings { permissions: Some(kind.parse().unwrap()), ..settings() }
}

fn key() -> AccountKey {
    AccountKey { cluster: "c1".into(), account: "user-server".into() }
}

/// A hub whose cluster is granted to the two namespaces like this.
fn grants(kueue: Grant, argo_cd: Grant) -> Fleet {
    let bind = |namespace: &str, grant| match grant {
        Grant::Granted => Some(binding(namespace, "prod")),
        Grant::Unknown => Some(binding(namespace, "odd")),
        Grant::Refused => None,
    };
    let bindings = [bind("kueue-system", kueue), bind("argocd", argo_cd)];
    let sets = [member("c1", "prod"), exclusive("prod"), broken("odd")];
    fleet(sets.into_iter().chain(bindings.into_iter().flatten()))
}

fn both() -> Fleet {
    grants(Grant::Granted, Grant::Granted)
}

/// What both applications have, where everything is granted.
fn settled(settings: &AccessSettings) -> World {
    let mut world = World::default();
    world.settle_at(settings, &both(), &key());
    world.writes();
    world
}

/// The ClusterRoles that an object binds, with the namespace and the users.
fn bound(kind: AccessKind, object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let lists = if kind == WORK {
        vec![&spec["workload"]["manifests"]]
    } else {
        vec![&spec["clusterRoleBindings"], &spec["roleBindings"]]
    };
    let bindings = lists.into_iter().flat_map(|list| list.as_array().into_iter().flatten());
    let bindings = bindings.filter(|it| it["subjects"][0]["kind"] == "User");
    let shown = bindings.map(|it| {
        let role = it["roleRef"]["name"].as_str().unwrap();
        let namespace = [&it["namespace"], &it["metadata"]["namespace"]];
        let namespace = namespace.into_iter().find_map(Value::as_str).unwrap_or("*");
        let users = it["subjects"].as_array().unwrap().iter();
        let users = users.map(|user| user["name"].as_str().unwrap().rsplit(':').next().unwrap());
        format!("{role} in {namespace} to {}", users.collect::<Vec<_>>().join(" and "))
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort();
    shown
}

/// The users and groups that the account may impersonate.
fn impersonated(kind: AccessKind, object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let rules = if kind == WORK {
        let manifests = spec["workload"]["manifests"].as_array().unwrap();
        manifests.iter().find(|it| it["kind"] == "ClusterRole").map(|it| &it["rules"])
    } else {
        spec["clusterRole"].get("rules")
    };
    let rules = rules.and_then(Value::as_array).into_iter().flatten();
    rules
        .flat_map(|rule| {
            assert_eq!(rule["verbs"], json!(["impersonate"]));
            assert_eq!(rule["apiGroups"], json!([""]));
            let names = rule["resourceNames"].as_array().unwrap();
            assert!(!names.is_empty(), "a rule for all names: {rule}");
            let resource = rule["resources"][0].as_str().unwrap();
            names.iter().map(move |name| format!("{resource} {}", name.as_str().unwrap()))
        })
        .collect()
}

const KUEUE: [&str; 3] = ["edit in a to manager", "edit in b to manager", "view in * to manager"];
const ARGO_CD: &str = "edit in * to controller and server";

#[test]
fn a_granted_cluster_takes_one_account_whose_token_is_not_copied_and_one_object_for_all_applications()
 {
    for (settings, kind) in [(settings(), WORK), (settings_with("ClusterPermission"), PERMISSION)] {
        let mut world = World::default();
        let plan = world.settle_at(&settings, &both(), &key());
        assert_eq!(world.writes(), ["create Account".to_owned(), format!("create {kind:?}")]);
        assert!(plan.findings.is_empty(), "{plan:?}");
        let account = &world.objects[&ACCOUNT];
        assert_eq!(account["metadata"]["name"], "user-server");
        assert_eq!(account["metadata"]["labels"][SYNC], Value::Null);
        assert_eq!(account["metadata"]["annotations"], Value::Null);
        let rotation = json!({ "enabled": true, "validity": "24h0m0s" });
        assert_eq!(account["spec"], json!({ "rotation": rotation }));
        let object = &world.objects[&kind];
        assert_eq!(object["metadata"]["name"], "hub-addons-consumer-user-server");
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], account["metadata"]["uid"]);
        let mut all = KUEUE.to_vec();
        all.insert(0, ARGO_CD);
        assert_eq!(bound(kind, object), all);
        let expected = [
            "users cluster:hub:system:serviceaccount:argocd:controller",
            "users cluster:hub:system:serviceaccount:argocd:server",
            "users cluster:hub:system:serviceaccount:kueue-system:manager",
            "groups cluster:hub:system:serviceaccounts",
            "groups cluster:hub:system:serviceaccounts:argocd",
            "groups cluster:hub:system:serviceaccounts:kueue-system",
        ];
        assert_eq!(impersonated(kind, object), expected);
        // As after a restart: nothing is known.
        world.found.clear();
        world.settle_at(&settings, &both(), &key());
        assert!(world.writes().is_empty());
    }
}

#[test]
fn the_label_for_copies_is_taken_from_the_account_of_the_user_server() {
    let mut world = settled(&settings());
    let scope = json!({ NAMESPACES: "team" });
    let labels = json!({ SYNC: "true", "mine": "y" });
    world.edit(ACCOUNT, &json!({ "metadata": { "labels": labels, "annotations": scope } }));
    world.settle_at(&settings(), &both(), &key());
    assert_eq!(world.writes(), ["patch Account"]);
    let labels = &world.objects[&ACCOUNT]["metadata"]["labels"];
    assert_eq!((labels.get(SYNC), &labels["mine"]), (None, &json!("y")));
    assert_eq!(world.objects[&ACCOUNT]["metadata"]["annotations"].get(NAMESPACES), None);
}

#[test]
fn only_the_account_itself_is_bound_to_the_role_by_which_it_impersonates() {
    let world = settled(&settings());
    let manifests = world.objects[&WORK]["spec"]["workload"]["manifests"].as_array().unwrap();
    let of_account: Vec<_> =
        manifests.iter().filter(|it| it["subjects"][0]["kind"] == "ServiceAccount").collect();
    let [binding] = of_account[..] else { panic!("{manifests:?}") };
    let role = manifests.iter().find(|it| it["kind"] == "ClusterRole").unwrap();
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    let agents = "open-cluster-management-agent-addon";
    let account = json!([{ "kind": "ServiceAccount", "name": "user-server", "namespace": agents }]);
    assert_eq!(binding["subjects"], account);

    let settings = settings_with("ClusterPermission");
    let world = settled(&settings);
    let bindings = world.objects[&PERMISSION]["spec"]["clusterRoleBindings"].as_array().unwrap();
    let of_account: Vec<_> = bindings.iter().filter(|it| it["subject"].is_object()).collect();
    let [binding] = of_account[..] else { panic!("{bindings:?}") };
    assert_eq!(binding["subject"]["kind"], "ManagedServiceAccount");
    assert_eq!(binding["subject"]["name"], "user-server");
    assert_eq!(binding["roleRef"], Value::Null, "it binds the role of the ClusterPermission");
}

#[test]
fn an_application_that_is_no_longer_granted_or_declared_loses_its_part_in_one_write() {
    let only_kueue = settings_of(&json!([declared()[0]]));
    let protected = AccessSettings { protected: "argocd".parse().unwrap(), ..settings() };
    for (what, settings, fleet) in [
        ("unbound", settings(), grants(Grant::Granted, Grant::Refused)),
        ("not declared", only_kueue, both()),
        ("protected", protected, both()),
    ] {
        let mut world = settled(&self::settings());
        world.settle_at(&settings, &fleet, &key());
        assert_eq!(world.writes(), ["patch ManifestWork"], "{what}");
        let work = &world.objects[&WORK];
        assert_eq!(bound(WORK, work), KUEUE, "{what}");
        assert!(!work.to_string().contains("argocd"), "{what}: {work}");
    }
}

#[test]
fn an_application_lacks_its_part_until_that_has_its_own_users_and_roles_alone() {
    let kueue = &declared()[0];
    let less = json!([{ "clusterRole": "view" }]);
    for (change, expected) in [
        (json!({}), "PermissionsNotApplied"),
        (json!({ "serviceAccountNames": ["other"] }), "PermissionsMissing"),
        (json!({ "permissions": less }), "PermissionsMissing"),
        (json!({ "permissions": [], "serviceAccountNames": ["other"] }), "PermissionsMissing"),
    ] {
        for kind in [WORK, PERMISSION] {
            let mut world = settled(&settings_with(kind.api().kind));
            world.edit(ACCOUNT, &json!({ "status": { "tokenSecretRef": { "name": "x" } } }));
            let declared = json!([with(kueue.clone(), &change), declared()[1]]);
            let permissions = Some(kind.api().kind.parse().unwrap());
            let settings = AccessSettings { permissions, ..settings_of(&declared) };
            let lacking = world.lacking(&settings, &both(), "kueue-system");
            assert_eq!(lacking.unwrap().0, expected, "{change}");
        }
    }
}

/// The status, about the generation 2, of an object of which the cluster has not applied the parts whose names contain
/// `failed`, and reports nothing about those whose names contain `unreported`.
fn partly_applied(kind: AccessKind, object: &Value, failed: &str, unreported: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!([{
            "type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 2,
        }])
    };
    let spec = &object["spec"];
    let lists = ["clusterRoleBindings", "roleBindings"].map(|field| &spec[field]);
    let lists = lists.into_iter().chain([&spec["workload"]["manifests"]]);
    let parts = lists.flat_map(|list| list.as_array().into_iter().flatten());
    let reports = parts.chain([&spec["clusterRole"]]).filter_map(|part| {
        let metadata = part.get("metadata").unwrap_or(part);
        let name = metadata["name"].as_str().unwrap_or("hub-addons-consumer-user-server");
        let status = if name.contains(failed) { "False" } else { "True" };
        let meta =
            json!({ "kind": part["kind"], "name": name, "namespace": metadata["namespace"] });
        let applied = condition("Applied", status, "R", &format!("no {name}"));
        let report = with(meta.clone(), &json!({ "resourceMeta": meta, "conditions": applied }));
        (!name.contains(unreported)).then_some(report)
    });
    let reports: Value = reports.collect();
    let lists = ["manifests", "clusterRoles", "clusterRoleBindings", "roleBindings"];
    let lists: Value = lists.map(|list| (list.to_owned(), reports.clone())).into_iter().collect();
    let whole = if kind == WORK { "Applied" } else { "AppliedRBACManifestWork" };
    let conditions = condition(whole, "False", "AppliedManifestWorkFailed", "Failed to apply");
    json!({ "status": { "conditions": conditions, "resourceStatus": lists } })
}

#[test]
fn an_application_is_ready_when_the_cluster_has_applied_its_own_part_and_the_impersonation() {
    for (failed, unreported, generation, kueue, argo_cd) in [
        ("none", "none", 2, true, true),
        (":argocd:app:", "none", 2, true, false),
        (":kueue-system:app:edit", "none", 2, false, true),
        ("none", ":kueue-system:app:edit", 2, false, true),
        ("-impersonation:", "none", 2, false, false),
        ("none", "-impersonation:", 2, false, false),
        (":argocd:app:", "none", 3, false, false),
    ] {
        for kind in [WORK, PERMISSION] {
            let settings = settings_with(kind.api().kind);
            let mut world = settled(&settings);
            world.edit(ACCOUNT, &json!({ "status": { "tokenSecretRef": { "name": "x" } } }));
            world.edit(kind, &partly_applied(kind, &world.objects[&kind], failed, unreported));
            world.edit(kind, &json!({ "metadata": { "generation": generation } }));
            for (namespace, is_ready) in [("kueue-system", kueue), ("argocd", argo_cd)] {
                let what = format!("{kind:?} of {namespace} without {failed}, {unreported}");
                let lacking = world.lacking(&settings, &both(), namespace);
                let reason = lacking.as_ref().map(|(reason, _)| reason.as_str());
                assert_eq!(reason, (!is_ready).then_some("PermissionsNotApplied"), "{what}");
                // The message about another application is not shown.
                let names_its_binding =
                    lacking.is_some_and(|(_, message)| message.contains("no hub-addons-own"));
                let is_reported = failed.contains(namespace) && generation == 2;
                assert_eq!(names_its_binding, is_reported, "{what}");
            }
        }
    }
}

#[test]
fn the_user_server_may_impersonate_once_the_cluster_has_the_role_of_a_cluster_permission() {
    let settings = settings_with("ClusterPermission");
    let mut world = settled(&settings);
    world.edit(ACCOUNT, &json!({ "status": { "tokenSecretRef": { "name": "x" } } }));
    let role = "hub-addons-consumer-user-server";
    for (failed, is_ready) in [("none", true), (role, false)] {
        let status = partly_applied(PERMISSION, &world.objects[&PERMISSION], failed, "none");
        world.edit(PERMISSION, &status);
        assert_eq!(world.lacking(&settings, &both(), "argocd").is_none(), is_ready);
    }
}

#[test]
fn the_account_and_all_permissions_end_with_the_last_grant() {
    let refused = || grants(Grant::Refused, Grant::Refused);
    for (settings, fleet) in [(settings(), refused()), (settings_of(&json!([])), both())] {
        let mut world = settled(&self::settings());
        world.settle_at(&settings, &fleet, &key());
        assert_eq!(world.writes(), ["delete Account", "delete ManifestWork"]);
        assert!(world.objects.is_empty());
    }
}

#[test]
fn what_an_object_has_that_cannot_be_decoded_stays_where_its_namespace_is_granted_the_cluster() {
    for (argo_cd, expected) in [(Grant::Granted, true), (Grant::Refused, false)] {
        let mut world = settled(&settings());
        // As after a restart.
        let mut settings = settings_of(&json!([declared()[0]]));
        let unreadable =
            hub_api::Unreadable { metadata: Box::default(), spec: None, error: "odd".to_owned() };
        let name = AccessName { namespace: "argocd".into(), name: "app".to_owned() };
        settings.consumers.apply(&name, Err(unreadable));
        let fleets = [grants(Grant::Granted, argo_cd), grants(Grant::Refused, Grant::Refused)];
        let sharing = fleets.map(|fleet| settings.sharing(&fleet, &key()));
        assert_eq!(sharing.map(|names| names.contains(&name)), [expected, false]);
        let plan = world.settle_at(&settings, &grants(Grant::Granted, argo_cd), &key());
        assert_eq!(plan.is_settled, !expected);
        assert_eq!(bound(WORK, &world.objects[&WORK]).contains(&ARGO_CD.to_owned()), expected);
        world.settle_at(&settings, &grants(Grant::Refused, argo_cd), &key());
        assert_eq!(world.objects.contains_key(&ACCOUNT), expected);
    }
}

#[test]
fn nothing_is_created_for_an_application_in_doubt() {
    let mut world = World::default();
    world.settle_at(&settings(), &grants(Grant::Unknown, Grant::Unknown), &key());
    assert!(world.writes().is_empty());
    world.settle_at(&settings(), &grants(Grant::Granted, Grant::Unknown), &key());
    assert_eq!(bound(WORK, &world.objects[&WORK]), KUEUE);
    assert!(!world.objects[&WORK].to_string().contains("argocd"));
}

#[test]
fn an_application_in_doubt_keeps_what_it_has_where_the_kind_of_permissions_changes() {
    let by_permission = settings_with("ClusterPermission");
    let mut world = World::default();
    world.settle_at(&settings(), &both(), &key());
    let work = world.objects[&WORK].clone();
    world.settle_at(&by_permission, &grants(Grant::Granted, Grant::Unknown), &key());
    assert!(!world.objects.contains_key(&WORK));
    assert_eq!(bound(PERMISSION, &world.objects[&PERMISSION]), bound(WORK, &work));
    let wanted = impersonated(WORK, &work);
    assert_eq!(impersonated(PERMISSION, &world.objects[&PERMISSION]), wanted);
}

#[test]
fn permissions_that_cannot_be_read_stay_while_an_application_is_in_doubt() {
    use hub_core::consumer_access::{AccessAction, FoundObject, ObservedObject};
    let mut world = settled(&settings());
    let metadata = serde_json::from_value(world.objects[&WORK]["metadata"].clone()).unwrap();
    let mut observed = world.observed(&settings());
    let object = ObservedObject::read(&metadata, None);
    observed.objects.insert(WORK, FoundObject { object, is_ours: true });
    let plan = |fleet: &Fleet| settings().plan(fleet, &key(), &observed);
    let doubt = plan(&grants(Grant::Granted, Grant::Unknown));
    assert_eq!((&doubt.write, reasons(&doubt)), (&None, vec![Reason::Unreadable]));
    assert!(!doubt.is_settled && !plan(&both()).is_settled);
    assert!(matches!(plan(&both()).write, Some((WORK, AccessAction::Delete(_)))));
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn whatever_the_grants_were_each_application_has_its_part_as_its_grant_says(
        steps in proptest::collection::vec((0..3_usize, 0..3_usize, any::<bool>()), 1..6)
    ) {
        const GRANTS: [Grant; 3] = [Grant::Granted, Grant::Refused, Grant::Unknown];
        let mut world = World::default();
        let mut has = [false, false];
        for (kueue, argo_cd, by_permission) in steps {
            let permissions = if by_permission { "ClusterPermission" } else { "ManifestWork" };
            let settings = settings_with(permissions);
            let now = [GRANTS[kueue], GRANTS[argo_cd]];
            let plan = world.settle_at(&settings, &grants(now[0], now[1]), &key());
            let is_certain = now.contains(&Grant::Granted) || now == [Grant::Refused; 2];
            prop_assert_eq!(plan.is_settled, is_certain, "{:?}", now);
            let exists = now.contains(&Grant::Granted) || world.objects.contains_key(&ACCOUNT);
            has = [0, 1].map(|it| match now[it] {
                Grant::Granted => true,
                Grant::Refused => false,
                Grant::Unknown => has[it] && exists,
            });
            for kind in [WORK, PERMISSION] {
                let Some(object) = world.objects.get(&kind) else { continue };
                let bound = bound(kind, object);
                let impersonated = impersonated(kind, object);
                for (it, (binding, user)) in [(KUEUE[2], "kueue-system:manager"), (ARGO_CD, "argocd:server")].into_iter().enumerate() {
                    prop_assert_eq!(bound.iter().any(|it| it == binding), has[it], "{:?} {:?}", kind, now);
                    let may_act = impersonated.iter().any(|it| it.ends_with(user));
                    prop_assert_eq!(may_act, has[it], "{:?} {:?}", kind, now);
                }
            }
        }
    }
}
