//! A consumer's Role that follows the grant names the copies that its namespace is granted, and no others.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, ClusterName};
use hub_core::action::Action;
use hub_core::consumer_access::{AccessName, Consumers};
use hub_core::consumer_role::{
    self, AskingAccount, AskingAccounts as Accounts, CONSUMER_LABELS, ConsumerRole, NameChange,
    RoleKind,
};
use hub_core::credential::account::Scope;
use hub_core::finding::Reason;
use hub_core::fleet::{Fleet, Touched};
use hub_core::known::Known;
use hub_core::rights::{ObservedRole, PermissionSettings};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::support::arbitrary::hub_and_steps;
use crate::support::consumer_access::consumers_of;
use crate::support::{
    binding, broken, by_labels, condition, doubting, exclusive, fleet, granting, granting_all,
    member, settings_of_permissions as settings, with,
};

/// The account `app` of these clusters, without an annotation.
fn app_of<const N: usize>(clusters: [&str; N]) -> Accounts {
    accounts(clusters.map(|cluster| (cluster, "app", None)))
}

/// Accounts by cluster, name and annotation.
fn accounts<const N: usize>(of: [(&str, &str, Option<&str>); N]) -> Accounts {
    let account = |(cluster, account, annotation): (&str, &str, Option<&str>)| {
        let asking = AskingAccount { scope: Scope::read(annotation), is_maintained: true };
        (AccountKey { cluster: cluster.into(), account: account.into() }, asking)
    };
    of.into_iter().map(account).collect()
}

fn role_of(kind: RoleKind) -> ConsumerRole {
    ConsumerRole {
        kind,
        access: AccessName { namespace: "team".into(), name: "reader".to_owned() },
    }
}

/// An object that asks for copies of the tokens of `account`.
fn asking_for(account: &str) -> Consumers {
    consumers_of(&json!([{
        "namespace": "team", "name": "reader", "managedServiceAccountName": account,
        "serviceAccountNames": ["worker", "app"],
    }]))
}

fn owner(namespace: &str) -> Value {
    json!({
        "apiVersion": "access.open-cluster-management.io/v1alpha1", "kind": "ClusterAccess", "name": "reader",
        "uid": format!("uid of {namespace}/reader"),
    })
}

fn role(rules: &[PolicyRule]) -> Role {
    role_in("team", rules)
}

fn role_in(namespace: &str, rules: &[PolicyRule]) -> Role {
    let labels = CONSUMER_LABELS.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let metadata = ObjectMeta {
        uid: Some("u1".to_owned()),
        resource_version: Some("7".to_owned()),
        labels: Some(labels.into()),
        owner_references: serde_json::from_value(json!([owner(namespace)])).unwrap(),
        ..ObjectMeta::default()
    };
    Role { metadata, rules: Some(rules.to_vec()) }
}

/// The rules of the Role after the next write, given the observed rules.
fn rules(fleet: &Fleet, accounts: &Accounts, observed: &[PolicyRule]) -> Vec<PolicyRule> {
    rules_with(&settings(), &asking_for("app"), fleet, accounts, observed)
}

fn rules_with(
    settings: &PermissionSettings,
    consumers: &Consumers,
    fleet: &Fleet,
    accounts: &Accounts,
    observed: &[PolicyRule],
) -> Vec<PolicyRule> {
    rules_of(&role_of(RoleKind::Role), settings, consumers, fleet, accounts, observed)
}

fn rules_of(
    of: &ConsumerRole,
    settings: &PermissionSettings,
    consumers: &Consumers,
    fleet: &Fleet,
    accounts: &Accounts,
    observed: &[PolicyRule],
) -> Vec<PolicyRule> {
    let plan = |rules: &[PolicyRule]| {
        let observed: ObservedRole = role_in(of.access.namespace.as_str(), rules).into();
        of.plan(settings, fleet, consumers, Some(accounts), &Known::Present(observed))
    };
    let after = match plan(observed) {
        Ok(Action::Patch(version, patch)) => {
            assert_eq!((&*version.uid.to_string(), &*version.resource_version), ("u1", "7"));
            serde_json::from_value(patch["rules"].clone()).unwrap()
        }
        Ok(_) => observed.to_vec(),
        Err(finding) => panic!("{finding:?}"),
    };
    assert_eq!(plan(&after), Ok(Action::Nothing), "one write settles it");
    after
}

fn names(rules: &[PolicyRule]) -> Vec<&str> {
    rules.iter().flat_map(|rule| rule.resource_names.iter().flatten()).map(String::as_str).collect()
}

#[test]
fn a_role_names_each_granted_copy_of_its_account() {
    let elsewhere = [member("c3", "dev"), exclusive("dev"), binding("other", "dev")];
    let fleet =
        granting_all([member("c1", "prod"), member("c2", "prod")].into_iter().chain(elsewhere));
    let mut asking = app_of(["c1", "c2", "c3"]);
    asking.extend(accounts([("c1", "other", None)]));
    let rules = rules(&fleet, &asking, &[]);
    let [rule] = &rules[..] else { unreachable!("one rule") };
    assert_eq!(names(&rules), ["c1-app", "c2-app"]);
    assert_eq!(rule.verbs, ["get"]);
    assert_eq!(rule.api_groups.as_deref(), Some(&[String::new()][..]));
    assert_eq!(rule.resources.as_deref(), Some(&["secrets".to_owned()][..]));
}

#[test]
fn a_role_does_not_name_copies_of_an_account_with_another_owner() {
    let fleet = granting(&["c1"]);
    let mut accounts = accounts([("c1", "app", Some("team"))]);
    let before = rules(&fleet, &accounts, &[]);
    for account in accounts.values_mut() {
        account.is_maintained = false;
    }
    assert_eq!((names(&before), rules(&fleet, &accounts, &before)), (vec!["c1-app"], vec![]));
}

#[test]
fn an_annotation_narrows_a_role_as_it_narrows_copies() {
    let fleet = granting(&["c1", "c2"]);
    let narrowed = accounts([("c1", "app", Some("other")), ("c2", "app", Some("other,team"))]);
    assert_eq!(names(&rules(&fleet, &narrowed, &[])), ["c2-app"]);
    let mixed = accounts([("c1", "app", None), ("c2", "app", Some("team"))]);
    let required = PermissionSettings { require_namespaces: true, ..settings() };
    assert_eq!(names(&rules_with(&required, &asking_for("app"), &fleet, &mixed, &[])), ["c2-app"]);
}

#[test]
fn without_a_name_there_is_no_rule_and_not_one_for_all() {
    let bound = granting(&["c1"]);
    let unbound = fleet([member("c1", "prod"), exclusive("prod")]);
    let asking = app_of(["c1"]);
    let before = rules(&bound, &asking, &[]);
    assert_eq!(names(&before), ["c1-app"]);
    assert_eq!(rules(&unbound, &asking, &before), []);
    assert_eq!(rules(&bound, &Accounts::new(), &before), []);
    let long = ["a", "b", "c", "d", "e"].map(|part| part.repeat(60)).join(".");
    let asking = accounts([("c1", &long, None)]);
    assert_eq!(rules_with(&settings(), &asking_for(&long), &bound, &asking, &[]), []);
}

#[test]
fn a_protected_namespace_is_granted_nothing() {
    let fleet = granting(&["c1"]);
    let asking = app_of(["c1"]);
    let protected = PermissionSettings { protected: "team".parse().unwrap(), ..settings() };
    let before = rules(&fleet, &asking, &[]);
    assert_eq!(rules_with(&protected, &asking_for("app"), &fleet, &asking, &before), []);
}

#[test]
fn a_doubt_keeps_a_name_and_adds_none() {
    let doubtful = doubting(&["c1", "c2"]);
    let clear = granting(&["c1"]);
    let accounts = app_of(["c1", "c2"]);
    let before = rules(&clear, &accounts, &[]);
    assert_eq!(names(&before), ["c1-app"]);
    assert_eq!(rules(&doubtful, &accounts, &before), before);
    assert_eq!(rules(&doubtful, &accounts, &[]), []);
    // A list of accounts that is not complete removes nothing.
    let observed = Known::Present(role(&before).into());
    let of_team = role_of(RoleKind::Role);
    let plan = of_team.plan(&settings(), &clear, &asking_for("app"), None, &observed);
    assert_eq!(plan, Ok(Action::Nothing));
}

#[test]
fn while_cluster_accesses_cannot_be_read_a_role_loses_names_and_gets_none() {
    let accounts = app_of(["c1", "c2"]);
    let (c1, both) = (granting(&["c1"]), granting(&["c1", "c2"]));
    let mut unread = asking_for("app");
    unread.set_read(false);
    let plan = |fleet: &Fleet, before: &[PolicyRule]| {
        let (observed, of_team) = (Known::Present(role(before).into()), role_of(RoleKind::Role));
        of_team.plan(&settings(), fleet, &unread, Some(&accounts), &observed).unwrap()
    };
    let (one, two) = (rules(&c1, &accounts, &[]), rules(&both, &accounts, &[]));
    assert_eq!((names(&one).len(), names(&two).len()), (1, 2));
    assert_eq!(plan(&both, &one), Action::Nothing);
    assert!(matches!(plan(&c1, &two), Action::Patch(_, patch) if patch["rules"] == json!(one)));
}

#[test]
fn a_name_that_two_accounts_share_is_in_no_role() {
    // The copies of `b-app` of the cluster `a` and of `app` of `a-b` are both called `a-b-app`.
    let objects =
        [member("a", "s"), member("a-b", "prod"), exclusive("prod"), binding("team", "prod")];
    let alone = fleet(objects.clone());
    let both = fleet(objects.clone().into_iter().chain([exclusive("s"), binding("team", "s")]));
    let doubtful = fleet(objects.into_iter().chain([broken("s"), binding("team", "s")]));
    let accounts = accounts([("a", "b-app", None), ("a-b", "app", None)]);
    let before = rules(&alone, &accounts, &[]);
    assert_eq!(names(&before), ["a-b-app"], "the other one is not granted here");
    assert_eq!(rules(&both, &accounts, &before), []);
    assert_eq!(rules(&doubtful, &accounts, &before), before);
    assert_eq!(rules(&doubtful, &accounts, &[]), []);
}

#[test]
fn a_role_of_another_owner_is_reported_and_left_alone_and_one_that_is_missing_is_created() {
    let fleet = granting(&["c1"]);
    let asking = app_of(["c1"]);
    let consumers = asking_for("app");
    let plan = |kind, role: Known<ObservedRole>| {
        role_of(kind).plan(&settings(), &fleet, &consumers, Some(&asking), &role)
    };
    for (key, _) in CONSUMER_LABELS {
        let mut theirs = role(&[]);
        theirs.metadata.labels.as_mut().unwrap().remove(key);
        let reason = plan(RoleKind::Role, Known::Present(theirs.into())).unwrap_err().reason;
        assert_eq!(reason, Reason::ForeignRole, "without {key}");
    }
    assert_eq!(plan(RoleKind::Role, Known::Unknown), Ok(Action::Nothing));
    let created = |kind| match plan(kind, Known::Absent) {
        Ok(Action::Create(created)) => created,
        other => panic!("{other:?}"),
    };
    let created_role = created(RoleKind::Role);
    assert_eq!(created_role["metadata"]["name"], "hub-addons-cluster-access-reader");
    assert_eq!(created_role["metadata"]["ownerReferences"], json!([owner("team")]));
    assert_eq!(created_role["rules"][0]["resourceNames"], json!(["c1-app"]));
    let created = created(RoleKind::RoleBinding);
    let of = |name: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": "team" });
    assert_eq!(created["subjects"], json!([of("app"), of("worker")]));
    assert_eq!(created["roleRef"]["kind"], "Role");
    assert_eq!(created["roleRef"]["name"], "hub-addons-cluster-access-reader");
    let binds =
        |bound: &RoleBinding| plan(RoleKind::RoleBinding, Known::Present(bound.clone().into()));
    let mut bound: RoleBinding = serde_json::from_value(created).unwrap();
    bound.metadata.uid = Some("u2".to_owned());
    assert_eq!(binds(&bound), Ok(Action::Nothing));
    bound.subjects = None;
    assert!(matches!(binds(&bound), Ok(Action::Patch(..))));
}

#[test]
fn an_object_without_copies_gets_no_role_and_an_earlier_one_names_nothing() {
    let fleet = granting(&["c1"]);
    let asking = app_of(["c1"]);
    let before = rules(&fleet, &asking, &[]);
    let older = json!({ "namespace": "other", "name": "app" });
    let reader = json!({ "namespace": "team", "name": "reader", "managedServiceAccountName": "app", "created": 1 });
    let own = json!({ "namespace": "team", "name": "reader", "identity": "Own" });
    for objects in [json!([older, reader]), json!([own])] {
        let consumers = consumers_of(&objects);
        assert_eq!(rules_with(&settings(), &consumers, &fleet, &asking, &before), [], "{objects}");
        for kind in [RoleKind::Role, RoleKind::RoleBinding] {
            let missing = Known::Absent;
            let plan = role_of(kind).plan(&settings(), &fleet, &consumers, Some(&asking), &missing);
            assert_eq!(plan, Ok(Action::Nothing));
        }
    }
}

proptest! {
    /// After a change of the sets or the bindings of its namespace, a Role is planned as a whole.
    #[test]
    fn a_role_changes_with_a_cluster_or_an_account_just_as_a_whole_plan_says(
        (hub, steps) in hub_and_steps(),
        toggled in vec((select(&["a", "a-b", "b"][..]), select(&["app", "b-app"][..])), 30),
    ) {
        let consumers = consumers_of(&json!([{
            "namespace": "blues", "name": "reader", "managedServiceAccountName": "app",
        }]));
        let (mut fleet, mut accounts, mut shown) = (Fleet::new(hub.bound), Accounts::new(), vec![]);
        let access = AccessName { namespace: "blues".into(), name: "reader".to_owned() };
        let reader = ConsumerRole { kind: RoleKind::Role, access: access.clone() };
        let steps = steps.iter().zip(toggled);
        for (step, (cluster, account)) in steps.flat_map(|(step, it)| [(Some(step), it), (None, it)]) {
            let concerned: Vec<_> = if let Some(step) = step {
                let touched = step.take(&mut fleet);
                let is_whole = matches!(touched, Touched::Namespaces(_));
                let accounts = accounts.keys().cloned();
                let on = |key: &AccountKey| touched == Touched::Cluster(key.cluster.clone());
                accounts.filter(|key| is_whole || on(key)).collect()
            } else {
                let key = AccountKey { cluster: cluster.into(), account: account.into() };
                if accounts.remove(&key).is_none() {
                    let scope = Scope::read(None);
                    accounts.insert(key.clone(), AskingAccount { scope, is_maintained: true });
                }
                vec![key]
            };
            let observed: ObservedRole = role_in("blues", &shown).into();
            let roles = |role: &ConsumerRole| (*role == reader).then_some(&observed);
            let changes = |key| {
                consumer_role::changes(&settings(), &fleet, &consumers, &accounts, roles, key)
            };
            let found: BTreeSet<_> = concerned.iter().flat_map(changes).collect();
            let planned = rules_of(&reader, &settings(), &consumers, &fleet, &accounts, &shown);
            let [before, after]: [BTreeSet<_>; 2] =
                [&shown, &planned].map(|rules| names(rules).into_iter().collect());
            let removes = (!before.is_subset(&after)).then_some((&access, NameChange::Remove));
            let adds = (!after.is_subset(&before)).then_some((&access, NameChange::Add));
            prop_assert_eq!(found, removes.into_iter().chain(adds).collect());
            shown = planned;
        }
    }
}

#[test]
fn a_change_of_a_cluster_queues_the_same_roles_with_one_cluster_access_and_with_fifty() {
    // The set `moving` is bound in n0 alone.
    let hub = |objects: usize, set: &str, available: &str| {
        let state = json!({ "status": { "conditions": [
            condition("ManagedClusterConditionAvailable", available, "ManagedClusterLease"),
        ] } });
        let everywhere = by_labels("all", &json!({}));
        let namespaces = (1..objects).map(|it| binding(&format!("n{it}"), "all"));
        let cluster = with(member("c1", set), &state);
        let moving = [cluster, exclusive("moving"), binding("n0", "moving"), everywhere];
        fleet(moving.into_iter().chain(namespaces))
    };
    let queued = |objects: usize| {
        let of = |it: usize| (format!("n{it}"), format!("app-{it}"));
        let declared = (0..objects).map(of).map(|(namespace, account)| {
            json!({ "namespace": namespace, "name": "reader", "managedServiceAccountName": account })
        });
        let consumers = consumers_of(&declared.collect());
        let asking = AskingAccount { scope: Scope::EveryGrantedNamespace, is_maintained: true };
        let cluster = ClusterName::from("c1");
        let keys: Vec<_> =
            (0..objects).map(|it| cluster.account(&of(it).1.as_str().into())).collect();
        let accounts: Accounts = keys.iter().map(|key| (key.clone(), asking.clone())).collect();
        let before = hub(objects, "moving", "True");
        let shown = consumers.names().map(|access| {
            let role = ConsumerRole { kind: RoleKind::Role, access: access.clone() };
            let rules = rules_of(&role, &settings(), &consumers, &before, &accounts, &[]);
            (role, role_in(access.namespace.as_str(), &rules).into())
        });
        let shown: BTreeMap<_, _> = shown.collect();
        [("moving", "Unknown"), ("", "True")].map(|(set, available)| {
            let after = hub(objects, set, available);
            let of_account = |key| {
                let shown = |role: &ConsumerRole| shown.get(role);
                consumer_role::changes(&settings(), &after, &consumers, &accounts, shown, key)
            };
            let changes = keys.iter().flat_map(of_account);
            changes.map(|(access, change)| (access.to_string(), change)).collect::<Vec<_>>()
        })
    };
    let of_one = queued(1);
    assert_eq!(of_one, [vec![], vec![("n0/reader".to_owned(), NameChange::Remove)]]);
    assert_eq!(queued(50), of_one);
}
