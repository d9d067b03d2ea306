//! A consumer's Role that follows the grant names the copies that its namespace is granted, and no others.

#![cfg(test)]

use std::collections::BTreeMap;

use hub_api::names::AccountKey;
use hub_core::access::Known;
use hub_core::consumer_role::{CONSUMER_LABELS, ConsumerRole, ObservedConsumerRole};
use hub_core::credential::account::Scope;
use hub_core::finding::Reason;
use hub_core::fleet::Fleet;
use hub_core::rights::PermissionSettings;
use hub_core::rights::RulesAction;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::support::{binding, broken, exclusive, fleet, member, settings_of_permissions as settings};

type Accounts = BTreeMap<AccountKey, Scope>;

/// Accounts by cluster, name and annotation.
fn accounts<const N: usize>(of: [(&str, &str, Option<&str>); N]) -> Accounts {
    let account = |(cluster, account, annotation): (&str, &str, Option<&str>)| {
        (AccountKey { cluster: cluster.into(), account: account.into() }, Scope::read(annotation))
    };
    of.into_iter().map(account).collect()
}

fn follower() -> ConsumerRole {
    "team/reader/app".parse().unwrap()
}

fn role(rules: &[PolicyRule]) -> Role {
    let labels = CONSUMER_LABELS.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let metadata = ObjectMeta {
        uid: Some("u1".to_owned()),
        resource_version: Some("7".to_owned()),
        labels: Some(labels.into()),
        ..ObjectMeta::default()
    };
    Role { metadata, rules: Some(rules.to_vec()) }
}

/// The rules of the Role after the next write, given the observed rules.
fn rules(fleet: &Fleet, accounts: &Accounts, observed: &[PolicyRule]) -> Vec<PolicyRule> {
    rules_with(&settings(), fleet, accounts, observed)
}

fn rules_with(
    settings: &PermissionSettings,
    fleet: &Fleet,
    accounts: &Accounts,
    observed: &[PolicyRule],
) -> Vec<PolicyRule> {
    let plan = |rules: &[PolicyRule]| {
        let observed: ObservedConsumerRole = role(rules).into();
        follower().plan(settings, fleet, Some(accounts), &Known::Present(observed))
    };
    let after = match plan(observed) {
        Ok(RulesAction::Patch(version, rules)) => {
            assert_eq!((version.uid.as_str(), version.resource_version.as_str()), ("u1", "7"));
            rules
        }
        Ok(_) => observed.to_vec(),
        Err(finding) => panic!("{finding:?}"),
    };
    assert_eq!(plan(&after), Ok(RulesAction::Nothing), "one write settles it");
    after
}

fn names(rules: &[PolicyRule]) -> Vec<&str> {
    rules.iter().flat_map(|rule| rule.resource_names.iter().flatten()).map(String::as_str).collect()
}

#[test]
fn a_role_names_each_granted_copy_of_its_account() {
    let fleet = fleet([
        member("c1", "prod"),
        member("c2", "prod"),
        member("c3", "dev"),
        exclusive("prod"),
        exclusive("dev"),
        binding("team", "prod"),
        binding("other", "dev"),
    ]);
    let accounts =
        accounts([("c1", "app", None), ("c2", "app", None), ("c3", "app", None), ("c1", "other", None)]);
    let rules = rules(&fleet, &accounts, &[]);
    let [rule] = &rules[..] else { unreachable!("one rule") };
    assert_eq!(names(&rules), ["c1-app", "c2-app"]);
    assert_eq!(rule.verbs, ["get"]);
    assert_eq!(rule.api_groups.as_deref(), Some(&[String::new()][..]));
    assert_eq!(rule.resources.as_deref(), Some(&["secrets".to_owned()][..]));
}

#[test]
fn an_annotation_narrows_a_role_as_it_narrows_copies() {
    let fleet =
        fleet([member("c1", "prod"), member("c2", "prod"), exclusive("prod"), binding("team", "prod")]);
    let narrowed = accounts([("c1", "app", Some("other")), ("c2", "app", Some("other,team"))]);
    assert_eq!(names(&rules(&fleet, &narrowed, &[])), ["c2-app"]);
    let mixed = accounts([("c1", "app", None), ("c2", "app", Some("team"))]);
    let required = PermissionSettings { require_namespaces: true, ..settings() };
    assert_eq!(names(&rules_with(&required, &fleet, &mixed, &[])), ["c2-app"]);
}

#[test]
fn without_a_name_there_is_no_rule_and_not_one_for_all() {
    let bound = fleet([member("c1", "prod"), exclusive("prod"), binding("team", "prod")]);
    let unbound = fleet([member("c1", "prod"), exclusive("prod")]);
    let asking = accounts([("c1", "app", None)]);
    let before = rules(&bound, &asking, &[]);
    assert_eq!(names(&before), ["c1-app"]);
    assert_eq!(rules(&unbound, &asking, &before), []);
    assert_eq!(rules(&bound, &Accounts::new(), &before), []);
    let long = ["a".repeat(60), "b".repeat(60), "c".repeat(60), "d".repeat(60), "e".repeat(60)].join(".");
    assert_eq!(rules(&bound, &accounts([("c1", &long, None)]), &[]), []);
}

#[test]
fn a_protected_namespace_is_granted_nothing() {
    let fleet = fleet([member("c1", "prod"), exclusive("prod"), binding("team", "prod")]);
    let asking = accounts([("c1", "app", None)]);
    let protected = PermissionSettings { protected: "team".parse().unwrap(), ..settings() };
    let before = rules(&fleet, &asking, &[]);
    assert_eq!(rules_with(&protected, &fleet, &asking, &before), []);
}

#[test]
fn a_doubt_keeps_a_name_and_adds_none() {
    let doubtful =
        fleet([member("c1", "prod"), member("c2", "prod"), broken("prod"), binding("team", "prod")]);
    let clear = fleet([member("c1", "prod"), exclusive("prod"), binding("team", "prod")]);
    let accounts = accounts([("c1", "app", None), ("c2", "app", None)]);
    let before = rules(&clear, &accounts, &[]);
    assert_eq!(names(&before), ["c1-app"]);
    assert_eq!(rules(&doubtful, &accounts, &before), before);
    assert_eq!(rules(&doubtful, &accounts, &[]), []);
    let observed: ObservedConsumerRole = role(&before).into();
    let plan = follower().plan(&settings(), &clear, None, &Known::Present(observed));
    assert_eq!(plan, Ok(RulesAction::Nothing), "a list of accounts that is not complete removes nothing");
}

#[test]
fn a_name_that_two_accounts_share_is_in_no_role() {
    // The copies of `b-app` of the cluster `a` and of `app` of `a-b` are both called `a-b-app`.
    let objects = [member("a", "s"), member("a-b", "prod"), exclusive("prod"), binding("team", "prod")];
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
fn a_role_of_another_owner_is_reported_and_left_alone_and_so_is_one_that_is_missing() {
    let fleet = fleet([member("c1", "prod"), exclusive("prod"), binding("team", "prod")]);
    let asking = accounts([("c1", "app", None)]);
    let reason = |role: Known<ObservedConsumerRole>| match follower().plan(
        &settings(),
        &fleet,
        Some(&asking),
        &role,
    ) {
        Err(finding) => Some(finding.reason),
        Ok(RulesAction::Nothing) => None,
        Ok(_) => panic!("a write"),
    };
    for (key, _) in CONSUMER_LABELS {
        let mut theirs = role(&[]);
        theirs.metadata.labels.as_mut().unwrap().remove(key);
        assert_eq!(reason(Known::Present(theirs.into())), Some(Reason::ForeignRole), "without {key}");
    }
    assert_eq!(reason(Known::Absent), Some(Reason::MissingRole));
    assert_eq!(reason(Known::Unknown), None);
}

#[test]
fn a_role_that_follows_is_given_by_namespace_name_and_account() {
    let follower: ConsumerRole = "team/hub-addons:cp-creds:app:reader/reader".parse().unwrap();
    assert_eq!(follower.name, "hub-addons:cp-creds:app:reader");
    let wrong = [
        "",
        "team",
        "team/role",
        "team/role/",
        "team//reader",
        "Team/role/reader",
        "a/b/c/d",
        "team/../reader",
    ];
    for wrong in wrong {
        assert!(wrong.parse::<ConsumerRole>().unwrap_err().contains("NAMESPACE/ROLE"), "{wrong}");
    }
}
