//! What a ClusterAccess asks for: which object has what two of them ask for, which clusters one selects, and its status.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use hub_api::cluster_access::{ClusterAccessStatus, NotReady};
use hub_api::names::{AccountKey, ClusterName};
use hub_core::consumer_access::{
    AccessKind, AccessName, AccessRules, AccessSettings, Consumer, Consumers, DecisionKind,
    PlacementName, Unread,
};
use hub_core::fleet::Fleet;
use hub_core::grant::Grant;
use hub_core::known::Known;
use serde_json::{Value, json};

use crate::support::consumer_access::{
    World, access, consumers_of, declared, doubtful, foreign, granted, key, refused, settings,
    settings_of, settled,
};
use crate::support::{
    self, binding, broken, deleting, exclusive, fleet, granting_all, member, with,
};

fn named(namespace: &str, name: &str) -> AccessName {
    AccessName { namespace: namespace.into(), name: name.to_owned() }
}

/// The reason for which an object is not accepted.
fn reason(consumers: &Consumers, namespace: &str, name: &str) -> Option<&'static str> {
    consumers.not_accepted(&named(namespace, name)).map(|not_accepted| not_accepted.reason)
}

#[test]
fn of_two_objects_that_ask_for_one_account_the_older_has_it() {
    let of = |namespace: &str, name: &str, created: u64| json!({ "namespace": namespace, "name": name, "created": created, "managedServiceAccountName": "app" });
    for (objects, owner) in [
        (json!([of("a", "x", 1), of("b", "y", 0)]), ("b", "y")),
        (json!([of("b", "y", 0), of("a", "x", 1)]), ("b", "y")),
        (json!([of("b", "x", 0), of("a", "y", 0)]), ("a", "y")),
        (json!([of("a", "y", 0), of("a", "x", 0)]), ("a", "x")),
    ] {
        let mut consumers = consumers_of(&objects);
        let users: Vec<_> =
            consumers.of(&"app".into()).map(|consumer| consumer.name.clone()).collect();
        assert_eq!(users, [named(owner.0, owner.1)], "{objects}");
        let names: Vec<_> = consumers.names().cloned().collect();
        let loser = names.iter().find(|name| **name != users[0]).unwrap();
        let why = consumers.not_accepted(loser).unwrap();
        assert_eq!(why.reason, "Conflict");
        assert!(why.message.contains(&format!("{}/{}", owner.0, owner.1)), "{why:?}");
        assert_eq!(consumers.not_accepted(&users[0]), None);
        // When it is gone, the other one has it.
        let changed = consumers.remove(&users[0]);
        assert!(changed.keys().eq(names.iter().collect::<BTreeSet<_>>()), "both are concerned");
        let users: Vec<_> = consumers.of(&"app".into()).map(|consumer| &consumer.name).collect();
        assert_eq!(users, [loser]);
        assert_eq!(consumers.not_accepted(loser), None);
    }
}

/// Otherwise, who has its token would have what the next object asks for.
#[test]
fn an_account_that_changes_hands_is_made_anew() {
    let asks = json!([{ "namespace": "other", "name": "app", "permissions": [{ "clusterRole": "edit" }] }]);
    let settings = settings_of(&asks);
    let bound =
        |namespace| fleet([member("c1", "prod"), exclusive("prod"), binding(namespace, "prod")]);
    let mut world = settled();
    world.edit(AccessKind::Account, &json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    world.settle(&settings, &bound("other"));
    assert_eq!(world.writes(), ["delete Account", "delete ManifestWork"]);
    world.objects.remove(&AccessKind::Account);
    world.found.clear();
    world.settle(&settings, &bound("other"));
    assert_eq!(world.writes(), ["create Account", "create ManifestWork"]);
    // In doubt, it stays as it is.
    let mut world = settled();
    let in_doubt = fleet([member("c1", "prod"), broken("prod"), binding("other", "prod")]);
    world.settle(&settings, &in_doubt);
    assert!(world.writes().is_empty());
}

#[test]
fn kueue_lists_clusters_for_one_namespace_and_a_list_has_one_object() {
    let of = |namespace: &str, name: &str, created: u64, config: &str| {
        let kueue = json!({ "configs": [{ "name": config }] });
        json!({ "namespace": namespace, "name": name, "created": created, "multiKueue": kueue })
    };
    let objects = json!([
        of("kueue", "one", 1, "gpu"),
        of("kueue", "two", 2, "gpu"),
        of("kueue", "three", 3, "cpu"),
        of("team", "app", 4, "mine"),
    ]);
    let settings = settings_of(&objects);
    let configs: BTreeSet<_> = settings.multi_kueue_configs().map(|config| config.name()).collect();
    assert_eq!(configs, ["cpu", "gpu"].map(str::to_owned).into());
    assert_eq!(settings.consumers.with_config("gpu").unwrap().name, named("kueue", "one"));
    assert_eq!(settings.consumers.with_config("mine"), None);
    for (namespace, name, expected) in [
        ("kueue", "one", None),
        ("kueue", "two", Some("Conflict")),
        ("kueue", "three", None),
        ("team", "app", Some("Conflict")),
    ] {
        assert_eq!(reason(&settings.consumers, namespace, name), expected, "{namespace}/{name}");
    }
    // Without the objects there, the other namespace has it.
    let settings = settings_of(&json!([objects[3]]));
    assert!(settings.consumers.with_config("mine").is_some());
}

#[test]
fn the_cluster_secrets_of_a_namespace_have_one_object() {
    let of = |name: &str, created: u64| json!({ "namespace": "argocd", "name": name, "created": created, "argoCD": {} });
    let consumers = consumers_of(&json!([of("b", 0), of("a", 1)]));
    assert_eq!(consumers.argo_cd(&"argocd".into()).unwrap().name, named("argocd", "b"));
    assert_eq!(reason(&consumers, "argocd", "a"), Some("Conflict"));
    assert_eq!(consumers.iter().count(), 2, "the rest of the object is in effect");
}

#[test]
fn an_object_that_gives_nothing_keeps_nothing_from_others() {
    let of = |namespace: &str, name: &str, created: u64, more: &Value| {
        let object = json!({
            "namespace": namespace, "name": name, "created": created, "managedServiceAccountName": "app", "argoCD": {},
            "multiKueue": { "configs": [{ "name": "gpu" }] },
        });
        with(object, more)
    };
    let older = |more: Value| vec![of("team", "older", 0, &more)];
    let valid = of("team", "valid", 9, &json!({}));
    let lost = json!({ "managedServiceAccountName": "lost" });
    let ending = json!({ "metadata": { "deletionTimestamp": "2026-05-01T12:30:00Z" } });
    let rival = with(json!({ "namespace": "other", "name": "rival" }), &lost);
    for older in [
        vec![of("kube-system", "older", 0, &json!({}))],
        older(ending),
        older(json!({ "managedServiceAccountName": "default" })),
        older(json!({ "permissions": [{ "clusterRole": "cluster-admin" }] })),
        // It has lost its account, so that it gives nothing.
        vec![rival, of("team", "older", 1, &lost)],
    ] {
        let objects = json!([&older[..], std::slice::from_ref(&valid)].concat());
        let mut settings = settings_of(&objects);
        let name = named("team", "valid");
        let has_all = |settings: &AccessSettings| {
            let consumers = &settings.consumers;
            let has = |consumer: Option<&Consumer>| consumer.is_some_and(|it| it.name == name);
            has(consumers.get(&name))
                && has(consumers.with_config("gpu"))
                && has(consumers.argo_cd(&name.namespace))
        };
        assert!(has_all(&settings), "{objects}");
        assert_eq!(settings.consumers.not_accepted(&name), None, "{objects}");
        // What the rival gives up is what the other gets, and what `valid` loses is concerned, too.
        let changed = settings.consumers.remove(&named("other", "rival"));
        assert_eq!(has_all(&settings), older.len() == 1, "{objects}");
        assert_eq!(changed.contains_key(&name), older.len() == 2, "{objects}");
    }
}

#[test]
fn an_object_gives_nothing_that_the_platform_does_not_offer() {
    let own = json!({ "namespace": "team", "name": "app", "identity": "Own" });
    let reserved = json!({ "namespace": "team", "name": "user-server" });
    let never_copied = json!({ "namespace": "team", "name": "hub-addons-user-server-2" });
    let of_addon = json!({ "namespace": "team", "name": "cluster-proxy" });
    let app = |more: Value| with(json!({ "namespace": "team", "name": "app" }), &more);
    let of_everyone = app(json!({ "managedServiceAccountName": "default" }));
    let roles = app(json!({ "permissions": [{ "clusterRole": "view" }] }));
    let protected = json!({ "namespace": "team-of-hub", "name": "app" });
    let ending = deleting(app(json!({})));
    let all = AccessRules {
        user_server: Some("user-server".into()),
        allowed_cluster_roles: ["view", "edit", "admin"].map(str::to_owned).into(),
        protected: "team-of-hub".parse().unwrap(),
    };
    let without_server = AccessRules { user_server: None, ..all.clone() };
    let edit_alone =
        AccessRules { allowed_cluster_roles: ["edit".to_owned()].into(), ..all.clone() };
    for (object, rules, expected) in [
        (&own, without_server, Some("OwnIdentityUnavailable")),
        (&own, all.clone(), None),
        (&reserved, all.clone(), Some("ReservedAccount")),
        (&never_copied, all.clone(), Some("ReservedAccount")),
        (&of_addon, all.clone(), Some("ReservedAccount")),
        (&of_everyone, all.clone(), Some("ReservedAccount")),
        (&protected, all.clone(), Some("ProtectedNamespace")),
        (&ending, all.clone(), Some("Terminating")),
        (&roles, edit_alone, Some("ClusterRoleNotAllowed")),
        (&roles, all, None),
    ] {
        let mut consumers = Consumers::new(rules);
        consumers.set_read(true);
        let (name, access) = access(object);
        consumers.apply(&name, Ok(access));
        assert_eq!(consumers.not_accepted(&name).map(|it| it.reason), expected, "{object}");
        assert_eq!(consumers.get(&name).is_some(), expected.is_none(), "{object}");
    }
}

#[test]
fn what_no_object_asks_for_stays_while_objects_are_unknown() {
    let mut settings = settings_of(&json!([]));
    settings.consumers.set_read(false);
    let mut world = settled();
    world.settle(&settings, &granted());
    assert!(world.writes().is_empty());
    assert_eq!(settings.kueue_grant(&granted(), &"c1".into()), Grant::Unknown);
    // What exists is kept up to date, and nothing is created.
    let mut settings = self::settings();
    settings.consumers.set_read(false);
    assert_eq!(settings.grant(&granted(), &key()), Grant::Unknown);
    assert_eq!(settings.grant(&refused(), &key()), Grant::Refused, "the binding is known");
    settings.consumers.set_read(true);
    assert_eq!(settings.grant(&granted(), &key()), Grant::Granted);
}

#[test]
fn an_object_that_cannot_be_decoded_keeps_what_it_had() {
    let mut settings = settings();
    let unreadable =
        || hub_api::Unreadable { metadata: Box::default(), spec: None, error: "odd".to_owned() };
    let changed = settings.consumers.apply(&named("team", "app"), Err(unreadable()));
    assert!(changed.is_empty());
    assert_eq!(settings.grant(&granted(), &key()), Grant::Granted);
    // As after a restart: what it asks for is not known.
    let mut settings = settings_of(&json!([]));
    settings.consumers.apply(&named("team", "app"), Err(unreadable()));
    assert_eq!(settings.grant(&granted(), &key()), Grant::Unknown);
    settings.consumers.remove(&named("team", "app"));
    assert_eq!(settings.grant(&granted(), &key()), Grant::Refused);
}

#[test]
fn an_object_whose_status_cannot_be_decoded_is_used_and_ends_like_any_other() {
    let object = |metadata: Value, spec: Value| {
        let metadata = serde_json::from_value(metadata).unwrap();
        Err(hub_api::Unreadable { metadata, spec: Some(spec), error: "odd".to_owned() })
    };
    let spec = || json!({ "identity": "Copy", "serviceAccountNames": ["app"] });
    let deleting = || json!({ "deletionTimestamp": "2026-05-01T12:00:00Z" });
    let app = named("team", "app");
    for last in [json!({}), spec()] {
        let mut settings = settings_of(&json!([]));
        settings.consumers.apply(&app, object(json!({}), spec()));
        assert_eq!(settings.grant(&granted(), &key()), Grant::Granted);
        settings.consumers.apply(&app, object(deleting(), last));
        assert_eq!(settings.grant(&granted(), &key()), Grant::Refused);
        assert_eq!(settings.consumers.not_accepted(&app).unwrap().reason, "Terminating");
    }
}

/// The settings with an object that selects clusters like this.
fn selecting(clusters: &Value) -> AccessSettings {
    settings_of(&json!([{
        "namespace": "team", "name": "app", "clusters": clusters, "argoCD": {}, "multiKueue": { "configs": [{ "name": "x" }] },
    }]))
}

fn labelled(env: &str) -> Fleet {
    let cluster = with(member("c1", "prod"), &json!({ "metadata": { "labels": { "env": env } } }));
    granting_all([cluster])
}

#[test]
fn a_selector_narrows_what_the_binding_grants_and_one_that_is_not_valid_keeps_it() {
    let settings = selecting(&json!({ "selector": { "matchLabels": { "env": "prod" } } }));
    let unbound = fleet([member("c1", "prod"), exclusive("prod")]);
    let odd = json!({ "matchExpressions": [{ "key": "env", "operator": "Is" }] });
    let odd = selecting(&json!({ "selector": odd }));
    for (settings, fleet, grant) in [
        (&settings, &labelled("prod"), Grant::Granted),
        (&settings, &labelled("dev"), Grant::Refused),
        (&settings, &unbound, Grant::Refused),
        (&odd, &labelled("prod"), Grant::Unknown),
        (&odd, &unbound, Grant::Refused),
    ] {
        assert_eq!(settings.grant(fleet, &key()), grant);
        assert_eq!(settings.kueue_grant(fleet, &"c1".into()), grant);
        assert_eq!(settings.argo_cd_grant(fleet, &support::key("team", "c1")), grant);
    }
    assert_eq!(reason(&odd.consumers, "team", "app"), Some("InvalidSelector"));
}

fn at(second: u64) -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START + Duration::from_secs(second)
}

/// Lists the decisions of a Placement, and ends the doubt about the first list.
fn read_decisions(settings: &mut AccessSettings, placement: &PlacementName) {
    for kind in DecisionKind::ALL {
        settings.consumers.set_decisions(placement, kind, Known::Present(()), at(0));
    }
    assert_eq!(settings.consumers.settle_decisions(placement, at(0)), None);
}

#[test]
fn a_placement_narrows_what_the_binding_grants_and_is_unknown_until_it_is_read() {
    let mut settings = selecting(&json!({ "placementRef": { "name": "gpus" } }));
    let placement = ("team".into(), "gpus".to_owned());
    assert!(settings.consumers.placements_in(&placement.0).eq([placement.clone()]));
    assert_eq!(settings.grant(&granted(), &key()), Grant::Unknown);
    assert_eq!(settings.grant(&refused(), &key()), Grant::Refused);
    let know = |settings: &mut AccessSettings, of_ocm: Known<()>, of_sig: Known<()>| {
        let consumers = &mut settings.consumers;
        consumers.set_decisions(&placement, DecisionKind::Ocm, of_ocm, at(1));
        consumers.set_decisions(&placement, DecisionKind::SigV1alpha1, Known::Absent, at(1));
        consumers.set_decisions(&placement, DecisionKind::SigV1alpha2, of_sig, at(1));
        settings.grant(&granted(), &key())
    };
    settings.consumers.set_decisions(&placement, DecisionKind::Ocm, Known::Present(()), at(1));
    assert_eq!(settings.grant(&granted(), &key()), Grant::Unknown, "the other kind may have one");
    let first = know(&mut settings, Known::Present(()), Known::Absent);
    assert_eq!(first, Grant::Unknown, "the first list may show a move half done");
    assert_eq!(settings.consumers.settle_decisions(&placement, at(0)), Some(BTreeSet::new()));
    assert_eq!(settings.grant(&granted(), &key()), Grant::Unknown);
    assert_eq!(settings.consumers.settle_decisions(&placement, at(1)), None);
    assert_eq!(settings.grant(&granted(), &key()), Grant::Refused, "it has decided for no cluster");
    let clusters =
        |names: &[&str]| names.iter().map(|name| ClusterName::from(*name)).collect::<BTreeSet<_>>();
    let decide = |settings: &mut AccessSettings, slice: &str, names: &[&str], second: u64| {
        let (slice, names) = ((DecisionKind::Ocm, slice), Some(clusters(names)));
        settings.consumers.set_decision(&placement, slice, names, at(second))
    };
    let both = decide(&mut settings, "gpus-1", &["c1", "other"], 0);
    assert_eq!(both, Some(clusters(&["c1", "other"])));
    assert_eq!(settings.grant(&granted(), &key()), Grant::Granted);
    assert_eq!(settings.grant(&refused(), &key()), Grant::Refused, "a decision grants nothing");
    // A decision moves to another slice, which may have it before or after the first one has lost it.
    for (slice, names, second, expected) in [
        ("gpus-2", &["c1"][..], 1, Grant::Granted),
        ("gpus-1", &["other"], 2, Grant::Granted),
        ("gpus-2", &[], 3, Grant::Unknown),
        ("gpus-1", &["c1", "other"], 4, Grant::Granted),
        ("gpus-1", &["other"], 5, Grant::Unknown),
    ] {
        assert_eq!(decide(&mut settings, slice, names, second), Some(clusters(&["c1"])));
        assert_eq!(settings.grant(&granted(), &key()), expected, "at {second}");
        assert_eq!(settings.grant(&refused(), &key()), Grant::Refused, "the grant has ended");
    }
    // An earlier doubt ends without this one, and another Placement has its own.
    assert_eq!(settings.consumers.settle_decisions(&placement, at(3)), Some(clusters(&[])));
    assert_eq!(settings.grant(&granted(), &key()), Grant::Unknown);
    let (mut elsewhere, cpus) = (settings.clone(), ("team".into(), "cpus".to_owned()));
    let (name, object) = access(&json!({
        "namespace": "team", "name": "app", "clusters": { "placementRef": { "name": cpus.1 } },
    }));
    elsewhere.consumers.apply(&name, Ok(object));
    read_decisions(&mut elsewhere, &cpus);
    assert_eq!(elsewhere.grant(&granted(), &key()), Grant::Refused);
    // Nothing that ends a doubt is shown while a watch fails; afterwards, it begins again.
    let set_failing = |settings: &mut AccessSettings, kind, is_failing| {
        settings.consumers.set_failing(&placement, kind, is_failing, at(7))
    };
    let (ocm, not_served) = (DecisionKind::Ocm, DecisionKind::SigV1alpha1);
    assert!(!set_failing(&mut settings, ocm, false), "it has not failed");
    for is_failing in [true, false] {
        assert_eq!(set_failing(&mut settings, ocm, is_failing), !is_failing);
        assert!(!set_failing(&mut settings, not_served, true), "it has nothing to show");
        assert_eq!(settings.consumers.settle_decisions(&placement, at(6)), Some(clusters(&[])));
        assert_eq!(settings.grant(&granted(), &key()), Grant::Unknown);
    }
    assert_eq!(settings.consumers.settle_decisions(&placement, at(7)), Some(clusters(&["c1"])));
    assert_eq!(settings.grant(&granted(), &key()), Grant::Refused);
    // A hub serves one kind or both; a decision of either counts.
    for of_ocm in [Known::Present(()), Known::Absent] {
        assert_eq!(know(&mut settings, of_ocm.clone(), Known::Present(())), Grant::Refused);
        let slice = (DecisionKind::SigV1alpha2, "gpus-1");
        settings.consumers.set_decision(&placement, slice, Some(clusters(&["c1"])), at(6));
        assert_eq!(know(&mut settings, of_ocm.clone(), Known::Present(())), Grant::Granted);
        assert_eq!(know(&mut settings, of_ocm, Known::Unknown), Grant::Unknown);
        let ended = know(&mut settings, Known::Present(()), Known::Absent);
        assert_eq!(ended, Grant::Unknown, "the other kind may have it soon");
        let lost = settings.consumers.settle_decisions(&placement, at(1)).unwrap();
        assert!(lost.is_superset(&clusters(&["c1"])));
        assert_eq!(settings.grant(&granted(), &key()), Grant::Refused);
    }
    for unread in [Known::Unknown, Known::Absent] {
        assert_eq!(know(&mut settings, unread, Known::Absent), Grant::Unknown);
    }
}

/// The status of the object with these objects of its account.
fn status(settings: &AccessSettings, fleet: &Fleet, world: &World) -> ClusterAccessStatus {
    status_of(settings, fleet, world, None)
}

/// What is missing on `c1`, which is granted.
fn missing(settings: &AccessSettings, world: &World) -> String {
    let ready = ready(settings, &granted(), world);
    ready.strip_prefix("False ClustersNotReady c1: ").unwrap_or(&ready).to_owned()
}

fn status_of(
    settings: &AccessSettings,
    fleet: &Fleet,
    world: &World,
    unread: Option<Unread>,
) -> ClusterAccessStatus {
    let mut found = world.clone();
    found.observed(settings);
    let observed =
        |kind: AccessKind, of: &AccountKey| found.found.get(&kind).filter(|_| *of == key());
    let now = "2026-05-01T13:00:00Z".parse().unwrap();
    support::consumer_access::status_of(
        settings,
        fleet,
        &named("team", "app"),
        unread,
        observed,
        now,
    )
    .unwrap()
}

/// The status and the reason of the condition Ready, and what is missing.
fn ready(settings: &AccessSettings, fleet: &Fleet, world: &World) -> String {
    let status = status(settings, fleet, world);
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    let missing: Vec<_> =
        status.not_ready.iter().map(|it| format!(" {}: {}", it.cluster, it.reason)).collect();
    format!("{} {}{}", ready.status, ready.reason, missing.concat())
}

#[test]
fn a_status_names_what_is_missing_where_until_nothing_is() {
    let settings = settings();
    let token = json!({ "status": { "tokenSecretRef": { "name": "app" } } });
    let applied = |status: &str| json!({ "status": { "conditions": [{ "type": "Applied", "status": status, "message": "no" }] } });
    let copied = |status: &str| json!({ "status": { "conditions": [{ "type": "SyncedToClusterProfiles", "status": status, "message": "no profile" }] } });
    let (account, work) = (AccessKind::Account, AccessKind::ManifestWork);
    let mut world = World::default();
    assert_eq!(ready(&settings, &granted(), &world), "False ClustersNotReady c1: AccountMissing");
    world.settle(&settings, &granted());
    assert_eq!(missing(&settings, &world), "TokenMissing");
    world.edit(account, &token);
    assert_eq!(missing(&settings, &world), "PermissionsNotApplied");
    world.edit(work, &applied("False"));
    assert_eq!(missing(&settings, &world), "PermissionsNotApplied");
    assert!(status(&settings, &granted(), &world).not_ready[0].message.ends_with(": no."));
    world.edit(work, &applied("True"));
    assert_eq!(missing(&settings, &world), "CopyMissing");
    world.edit(account, &copied("True"));
    assert_eq!(ready(&settings, &granted(), &world), "True Ready");
    let mut without_work = world.clone();
    without_work.objects.remove(&work);
    without_work.found.remove(&work);
    // A cluster in doubt does not count as ready, whatever it has.
    let in_doubt = [member("c1", "odd"), broken("odd"), binding("team", "odd")];
    let other = [member("c2", "prod"), exclusive("prod"), binding("team", "prod")];
    let both = status(&settings, &fleet(in_doubt.into_iter().chain(other)), &world);
    let counts = both.clusters.unwrap();
    assert_eq!((counts.granted, counts.selected, counts.ready), (1, 1, 0));
    let more = with(declared()[0].clone(), &json!({ "permissions": [{ "clusterRole": "admin" }] }));
    let edit_in_c = json!({ "clusterRole": "edit", "namespaces": ["c"] });
    let elsewhere = json!([{ "clusterRole": "view" }, edit_in_c]);
    let elsewhere = with(declared()[0].clone(), &json!({ "permissions": elsewhere }));
    for changed in [more, elsewhere] {
        assert_eq!(missing(&settings_of(&json!([changed])), &world), "PermissionsMissing");
    }
    world.edit(account, &copied("False"));
    assert_eq!(missing(&settings, &world), "CopyMissing");
    for (kind, reason) in [(account, "AccountConflict"), (work, "PermissionsConflict")] {
        let mut world = settled();
        world.edit(account, &token);
        world.found.clear();
        world.objects.insert(kind, foreign(kind));
        assert_eq!(missing(&settings, &world), reason);
    }
    let mut going = settled();
    let object = going.objects.remove(&account).unwrap();
    going.objects.insert(account, deleting(object));
    assert_eq!(missing(&settings, &going), "AccountTerminating");
    assert_eq!(ready(&settings, &refused(), &World::default()), "False NoCluster");
    let in_doubt = ready(&settings, &doubtful(), &World::default());
    assert_eq!(in_doubt, "Unknown Unknown c1: AccountMissing");
    let unknown = |kinds: &[AccessKind]| (kinds.to_vec(), ("Unknown", "Unknown"), "Unknown");
    for (world, (kinds, expected, missing)) in [
        (World::default(), unknown(&[account, work])),
        (World::default(), (vec![], ("False", "Unavailable"), "AccountMissing")),
        (World::default(), (vec![work], ("False", "Unavailable"), "AccountMissing")),
        (without_work, unknown(&[work])),
    ] {
        let unread = Unread { reason: expected.1, message: "no Kueue".to_owned(), kinds };
        let status = status_of(&settings, &granted(), &world, Some(unread));
        let ready = &status.conditions[1];
        assert_eq!((&*ready.status, &*ready.reason), expected);
        assert_eq!(ready.message, "no Kueue");
        let NotReady { reason, message, .. } = &status.not_ready[0];
        assert_eq!(reason, missing);
        assert_eq!(message.contains("does not exist"), missing != "Unknown");
    }
}

#[test]
fn a_status_says_that_the_hub_itself_is_left_out() {
    let labels = json!({ "metadata": { "labels": { "local-cluster": "true" } } });
    let hub = with(member("hub", "prod"), &labels);
    let mut settings = selecting(&json!({ "placementRef": { "name": "gpus" } }));
    let placement = ("team".into(), "gpus".to_owned());
    let slice = (DecisionKind::Ocm, "gpus-1");
    settings.consumers.set_decision(&placement, slice, Some(["hub".into()].into()), at(0));
    for (binds, says) in [("team", true), ("other", false)] {
        let fleet = fleet([hub.clone(), exclusive("prod"), binding(binds, "prod")]);
        let status = status(&settings, &fleet, &World::default());
        let counts = status.clusters.unwrap();
        assert_eq!((counts.granted, counts.not_granted), (0, i64::from(!says)));
        let message = &status.conditions[1].message;
        assert_eq!(message.contains("the hub itself"), says, "{message}");
    }
}

#[test]
fn a_status_names_the_placement_that_has_decided_for_no_granted_cluster() {
    let mut settings = selecting(&json!({ "placementRef": { "name": "gpus" } }));
    let placement = ("team".into(), "gpus".to_owned());
    read_decisions(&mut settings, &placement);
    let slice = (DecisionKind::Ocm, "gpus-1");
    let listed = || Known::Present(());
    for (decided, listed, says) in [
        (None, listed(), "has no PlacementDecision: does it exist?"),
        (Some(vec![]), listed(), "has decided for 0 clusters, 0 of them not granted"),
        (Some(vec!["elsewhere"]), listed(), "has decided for 1 clusters, 1 of them not granted"),
        (Some(vec!["c1"]), Known::Unknown, "decisions cannot be read"),
    ] {
        settings.consumers.set_decisions(&placement, DecisionKind::Ocm, listed, at(0));
        let decided = decided.map(|names| names.into_iter().map(ClusterName::from).collect());
        let mut set = || settings.consumers.set_decision(&placement, slice, decided.clone(), at(0));
        assert!(set().is_some() || decided.is_none());
        assert_eq!(set(), None);
        let status = status(&settings, &granted(), &World::default());
        let message = &status.conditions[1].message;
        assert!(message.contains("the Placement gpus") && message.contains(says), "{message}");
    }
}

#[test]
fn a_status_counts_clusters_and_keeps_the_time_of_a_condition() {
    let names: Vec<String> = (0..30).map(|number| format!("c{number:02}")).collect();
    let clusters = names.iter().map(|name| {
        let env = if name < &"c25".to_owned() { "prod" } else { "dev" };
        with(member(name, "prod"), &json!({ "metadata": { "labels": { "env": env } } }))
    });
    let fleet = granting_all(clusters);
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "Earlier", "message": "", "lastTransitionTime": "2026-05-01T12:30:00Z",
        })
    };
    let mut settings = settings_of(&json!([{
        "namespace": "team", "name": "app", "status": { "conditions": [condition("Accepted", "True"), condition("Ready", "True")] },
        "clusters": { "selector": { "matchLabels": { "env": "prod" } }, "placementRef": { "name": "gpus" } },
    }]));
    let placement = ("team".into(), "gpus".to_owned());
    read_decisions(&mut settings, &placement);
    let decided =
        names.iter().map(String::as_str).chain(["elsewhere"]).map(ClusterName::from).collect();
    let slice = (DecisionKind::Ocm, "gpus-1");
    settings.consumers.set_decision(&placement, slice, Some(decided), at(0));
    let status = |settings: &AccessSettings| self::status(settings, &fleet, &World::default());
    let before = status(&settings);
    settings.consumers.set_decision(&placement, slice, Some([].into()), at(0));
    assert_eq!(status(&settings), before, "what may be moving counts as before");
    settings.consumers.settle_decisions(&placement, at(0));
    assert_eq!(status(&settings).clusters.unwrap().selected, 0);
    let (status, counts) = (before.clone(), before.clusters.unwrap());
    assert_eq!((counts.granted, counts.selected, counts.ready, counts.not_granted), (30, 25, 0, 1));
    assert_eq!((status.not_ready.len(), status.more_not_ready), (20, Some(5)));
    assert_eq!(status.observed_generation, Some(3));
    let since = |kind: &str| {
        let condition = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
        (condition.status.as_str(), condition.last_transition_time.0.to_string())
    };
    assert_eq!(since("Accepted"), ("True", "2026-05-01T12:30:00Z".to_owned()));
    assert_eq!(since("Ready"), ("False", "2026-05-01T13:00:00Z".to_owned()));
}
