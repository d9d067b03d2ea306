//! No change is missed: the keys that the index returns for a change include every plan that the change affects, and
//! every account whose report it affects.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, SecretKey};
use hub_core::credential::index::SyncSettings;
use hub_core::credential::plan::{CopyAction, CopyPlan};
use hub_core::credential::report::Report;
use hub_core::credential::state::State;
use hub_core::finding::Finding;
use hub_core::fleet::Touched;
use hub_core::token_names::token_names;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::arbitrary_credentials::{Change, Hub, accounts, change, hub, secret_keys};
use crate::support::credential::{
    Arrival, World, account, account_key, names, profile, scene, scene_key, secret_key, token,
};
use crate::support::{IN_SET, NOON, binding, by_labels, cases, key, member, with};

/// The actions and findings of a plan, without the state of accounts that do not opt in: while it is unknown whether they
/// do, by what was known of them.
type Told = (CopyAction, Vec<Finding>, Vec<(AccountKey, State)>);

fn told(plan: CopyPlan) -> Told {
    let states = plan.states.into_iter().filter(|(_, state)| state.is_counted()).collect();
    (plan.action, plan.findings, states)
}

fn plans(world: &World) -> BTreeMap<SecretKey, Told> {
    let index = &world.index;
    let plan = |key: SecretKey| {
        let mut told = told(world.plan(&key));
        told.2.retain(|(account, _)| {
            let asks = |it| index.asks_in(it, &key.namespace);
            index.knows_accounts || index.account(account).is_some_and(asks)
        });
        (key, told)
    };
    secret_keys().into_iter().map(plan).collect()
}

/// Nothing is reported before the accounts are known.
fn reports(world: &World) -> BTreeMap<AccountKey, Option<Report>> {
    let report = |key: &_| world.report(key).filter(|_| world.index.knows_accounts);
    accounts().map(|key| (key.clone(), report(&key))).collect()
}

/// The keys to plan again.
#[derive(Debug, Default)]
struct Named {
    keys: BTreeSet<SecretKey>,
    accounts: BTreeSet<AccountKey>,
}

/// Makes a change and collects the keys that the index returns, as a controller does: for an account, its token
/// or a profile after, for a copy its key, for the fleet what it touches.
fn make(world: &mut World, hub: &mut Hub, change: &Change) -> Named {
    match change {
        Change::AccountsListed => world.index.knows_accounts = true,
        Change::SourcesListed => _ = world.index.listed_sources.set(None, true),
        Change::Secret(index, secret) => {
            let key = secret_keys().swap_remove(*index);
            let changed = match secret {
                Some(secret) => world.put(secret.clone()),
                None => world.remove(&key),
            };
            let keys = changed.then_some(key).into_iter().collect();
            return Named { keys, ..Named::default() };
        }
        Change::Object(index, object) => {
            let before = std::mem::replace(&mut hub.objects[*index], object.clone());
            let Some(subject) = object.as_ref().or(before.as_ref()).cloned() else {
                return Named::default();
            };
            return arrive_or_leave(world, &subject, object.is_some());
        }
    }
    Named { keys: world.keys(), accounts: accounts().collect() }
}

fn arrive_or_leave(world: &mut World, subject: &Value, arrives: bool) -> Named {
    let (namespace, name) = names(subject);
    let account = account_key(namespace, name);
    let mut named = Named::default();
    let of_account = matches!(subject["kind"].as_str(), Some("ManagedServiceAccount" | "Secret"));
    named.accounts.extend(of_account.then(|| account.clone()));
    let arrival = if arrives { world.arrive(subject) } else { world.leave(subject) };
    match arrival {
        Arrival::Changes(false) => return Named::default(),
        Arrival::Changes(true) if of_account => {
            named.keys.extend(world.index.keys_of(&world.fleet, &account));
        }
        Arrival::Changes(true) => {
            named.keys.extend(world.index.keys_at(&world.fleet, &key(namespace, name)));
        }
        Arrival::Touches(touched) => {
            (named.keys, named.accounts) = world.concerned(&touched);
        }
    }
    named
}

proptest! {
    #![proptest_config(cases(96))]

    /// A key that is not named has the plan that it had, or one that neither does nor says anything any more.
    #[test]
    fn a_change_names_every_place_whose_plan_it_changes(mut hub in hub(), changes in vec(change(), 1..10)) {
        let mut world = hub.world();
        let (mut plans_before, mut reports_before) = (plans(&world), reports(&world));
        for change in &changes {
            for key in secret_keys() {
                let planned = world.plan(&key).states;
                world.index.set_planned(&key, &planned);
            }
            let named = make(&mut world, &mut hub, change);
            let (plans_after, reports_after) = (plans(&world), reports(&world));
            for (key, after) in &plans_after {
                let is_over = *after == told(CopyPlan::default());
                prop_assert!(
                    named.keys.contains(key) || *after == plans_before[key] || is_over,
                    "{key} after {change:?}: {:?}, then {after:?}", plans_before[key]
                );
            }
            let of_keys: BTreeSet<_> = named
                .keys
                .iter()
                .flat_map(|key| plans_before[key].2.iter().chain(&plans_after[key].2))
                .map(|(account, _)| account)
                .collect();
            for (account, after) in &reports_after {
                prop_assert!(
                    named.accounts.contains(account) || of_keys.contains(account) || *after == reports_before[account],
                    "{account} after {change:?}: {:?}, then {after:?}", reports_before[account]
                );
            }
            (plans_before, reports_before) = (plans_after, reports_after);
        }
    }

    /// After the first list of one namespace, or of one name, nothing else has another plan.
    #[test]
    fn the_first_list_of_a_namespace_or_of_a_name_names_every_place_whose_plan_it_changes(hub in hub()) {
        let mut world = World::unlisted(SyncSettings::default(), hub.objects.iter().flatten().cloned());
        world.index.knows_accounts = true;
        for secret in hub.secrets.iter().flatten() {
            world.put(secret.clone());
        }
        let mut before = plans(&world);
        let mut check = |world: &World, named: BTreeSet<SecretKey>, list: &str| {
            for (copy_key, after) in plans(world) {
                let is_known = after == before[&copy_key] || after == told(CopyPlan::default());
                prop_assert!(named.contains(&copy_key) || is_known, "{copy_key} after the list of {list}");
                before.insert(copy_key, after);
            }
            Ok(())
        };
        for name in accounts().map(|key| key.account).collect::<BTreeSet<_>>() {
            world.index.listed_sources.set(Some(&name), true);
            let named = world.index.reached(&name).flat_map(|it| world.index.keys_of(&world.fleet, &it));
            check(&world, named.collect(), name.as_str())?;
        }
        for namespace in secret_keys().into_iter().map(|copy_key| copy_key.namespace).collect::<BTreeSet<_>>() {
            world.index.listed_copies.set(Some(&namespace), true);
            let named = world.concerned(&Touched::Namespaces([namespace.clone()].into())).0;
            check(&world, named, namespace.as_str())?;
        }
    }

    /// The reach that follows every change is the one of a process that starts now.
    #[test]
    fn the_reach_after_any_changes_is_that_of_the_present_state(
        mut hub in hub(), changes in vec(change(), 1..20),
    ) {
        let mut world = hub.world();
        let mut names = BTreeSet::new();
        for change in &changes {
            make(&mut world, &mut hub, change);
            if let Some((changed, _)) = world.index.reach.changed_names() {
                names = changed;
            }
            let asks = |key: &AccountKey| world.index.account(key).is_some_and(|account| account.opts_in);
            let asking: Vec<_> = world.index.accounts().filter(asks).collect();
            prop_assert_eq!(&names, &token_names(&world.fleet, &asking).names, "after {:?}", change);
        }
    }

    /// The list of all keys contains everything that has work.
    #[test]
    fn the_list_of_all_places_misses_no_action_and_no_finding(hub in hub()) {
        let world = hub.world();
        let all = world.keys();
        for (key, told_there) in plans(&world) {
            prop_assert!(all.contains(&key) || told_there == told(CopyPlan::default()), "{key}: {told_there:?}");
        }
    }
}

#[test]
fn what_no_plan_reads_of_an_account_changes_nothing() {
    let mut world = World::of(scene());
    let same = [
        json!({ "metadata": { "resourceVersion": "9" } }),
        json!({ "metadata": { "annotations": { "example.com/note": "x" } } }),
        json!({ "metadata": { "labels": { "example.com/team": "x" } } }),
        json!({ "spec": { "rotation": { "enabled": true } } }),
        json!({ "status": { "conditions": [] } }),
        json!({ "status": { "expirationTimestamp": NOON } }),
    ];
    for patch in same {
        let arrival = world.arrive(&with(account("c1", "kueue"), &patch));
        assert_eq!(arrival, Arrival::Changes(false), "{patch}");
        world.arrive(&account("c1", "kueue"));
    }
    for object in [token("c1", "kueue"), profile("team", "c1")] {
        let patch = json!({ "metadata": { "annotations": { "example.com/note": "x" }, "resourceVersion": "9" } });
        let arrival = world.arrive(&with(object.clone(), &patch));
        assert_eq!(arrival, Arrival::Changes(false), "{object}");
    }
}

#[test]
fn a_change_of_one_cluster_names_no_place_that_only_others_have() {
    let mut world = World::of(scene());
    for object in
        [member("c2", "prod"), profile("team", "c2"), account("c2", "kueue"), token("c2", "kueue")]
    {
        world.arrive(&object);
    }
    world.settle();
    let (named, accounts) = world.concerned(&Touched::Cluster("c1".into()));
    assert_eq!(named.iter().collect::<Vec<_>>(), [&scene_key()]);
    assert_eq!(accounts, [account_key("c1", "kueue")].into());
    let nothing = world.concerned(&Touched::Nothing);
    assert_eq!(nothing, (BTreeSet::new(), BTreeSet::new()));
    let keys = world.index.keys_of(&world.fleet, &account_key("c2", "kueue"));
    assert!(keys.iter().all(|named| *named == secret_key("team", "c2-kueue")), "{keys:?}");
}

#[test]
fn a_cluster_that_leaves_before_its_copy_was_created_names_the_place_for_the_account_that_shares_it()
 {
    let set = by_labels("prod", &json!({ "matchLabels": { IN_SET: "prod" } }));
    let clusters = [member("a", "prod"), member("a-b", "prod")];
    let mut world = World::of(clusters.into_iter().chain([set, binding("team", "prod")]));
    for (cluster, name) in [("a", "b-c"), ("a-b", "c")] {
        world.arrive(&account(cluster, name));
        world.arrive(&token(cluster, name));
        world.arrive(&profile("team", cluster));
    }
    let shared = secret_key("team", "a-b-c");
    let CopyAction::Create(first) = world.plan(&shared).action else { panic!("no copy") };
    let Arrival::Touches(touched) = world.arrive(&member("a", "dev")) else { panic!("no cluster") };
    let CopyAction::Create(second) = world.plan(&shared).action else { panic!("no copy") };
    assert_ne!(first, second);
    assert!(world.concerned(&touched).0.contains(&shared));
}
