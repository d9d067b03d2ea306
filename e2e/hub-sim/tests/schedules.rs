//! Random schedules in every run of the tests, and what earlier ones have found. `hack/robustness.sh` runs thousands in a
//! minute, by an optimised build.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use hub_sim::operation::{Operation as O, SecretTenant};
use hub_sim::process::Means;
use hub_sim::schedule::{Hubs, Layout, Schedule, Setting};
use hub_sim::shrink;
use hub_sim::world::Fault;

/// Schedules in a run that is not optimised.
const SCHEDULES: u64 = 60;

#[test]
fn the_hub_gets_over_whatever_happens() {
    let hubs = Hubs::default();
    for seed in 0..SCHEDULES {
        let schedule = Schedule::random(seed);
        let violations = shrink::run(&schedule, &hubs);
        if !violations.is_empty() {
            let smallest = shrink::shrink(&schedule, &hubs);
            panic!("seed {seed}: {violations:#?}\nin short: {smallest:?}");
        }
    }
}

#[test]
fn a_seed_runs_the_same_way_again() {
    let hubs = Hubs::default();
    let schedule = Schedule::random(7);
    // Whatever the processes do in one moment, they do in the order of their hash maps.
    let requests = || {
        let trace = schedule.run(&hubs).trace;
        let mut requests: Vec<String> = trace
            .iter()
            .filter_map(|line| line.split_once(' ').map(|(_, request)| request.to_owned()))
            .collect();
        requests.sort();
        requests
    };
    assert_eq!(requests(), requests());
}

/// Runs operations, a moment apart.
fn run(setting: Setting, operations: &[O]) -> Vec<String> {
    let operations = operations.iter().map(|operation| (*operation, 300)).collect();
    shrink::run(&Schedule { seed: 4, setting, operations }, &Hubs::default())
}

#[test]
fn a_create_whose_response_is_lost_is_neither_repeated_nor_forgotten() {
    let operations = [
        O::Start(0),
        O::CreateSet(0),
        O::Bind(0, 0),
        O::CreateCluster(0),
        O::Fail(Fault::Lost, 3),
        O::MoveCluster(0, Some(0)),
    ];
    assert_eq!(run(Setting::PLAIN, &operations), [""; 0]);
}

#[test]
fn two_replicas_that_both_believe_they_lead_do_no_harm() {
    let operations = [
        O::Start(0),
        O::Start(1),
        O::CreateSet(0),
        O::Bind(0, 0),
        O::CreateCluster(0),
        O::CreateAccount(0, 0),
        O::Report(0, 0, 1),
        O::MoveCluster(0, Some(0)),
        O::Report(0, 0, 2),
        O::MoveCluster(0, None),
    ];
    for layout in [Layout::One, Layout::Chart, Layout::Apart] {
        assert_eq!(run(Setting { layout, ..Setting::PLAIN }, &operations), [""; 0], "{layout:?}");
    }
}

#[test]
fn a_credential_that_is_stripped_before_its_create_is_acknowledged_is_replaced() {
    let operations = [
        O::Start(0),
        O::CreateSet(0),
        O::Bind(0, 0),
        O::CreateCluster(0),
        O::MoveCluster(0, Some(0)),
        O::CreateAccount(0, 0),
    ];
    let operations: Vec<_> = operations.map(|operation| (operation, 300)).into();
    // The token is seen, the create is sent, and its response is under way: in some of these moments.
    for milliseconds in 0..12 {
        let mut operations = operations.clone();
        operations
            .extend([(O::Report(0, 0, 0), milliseconds), (O::Secret(0, 0, 0, SecretTenant::Disown), 0)]);
        for seed in 0..4 {
            let schedule = Schedule { seed, setting: Setting::PLAIN, operations: operations.clone() };
            assert_eq!(shrink::run(&schedule, &Hubs::default()), [""; 0], "seed {seed}, {milliseconds} ms");
        }
    }
}

#[test]
fn what_a_namespace_held_that_has_ended_is_not_reported_as_undeletable() {
    let operations = [
        O::Start(0),
        O::CreateSet(0),
        O::CreateSet(1),
        O::Bind(0, 0),
        O::Bind(1, 1),
        O::CreateCluster(1),
        O::MoveCluster(1, Some(1)),
        O::CreateAccount(1, 1),
        O::Report(1, 1, 0),
        O::EndNamespace(1),
        O::MoveCluster(1, Some(0)),
    ];
    let means = Means { granted: true, leases: false };
    assert_eq!(run(Setting { means, ..Setting::PLAIN }, &operations), [""; 0]);
}

#[test]
fn a_foreign_secret_where_a_credential_belongs_is_reported_once_and_for_as_long_as_it_is_there() {
    let operations = [
        O::Start(0),
        O::CreateSet(0),
        O::Bind(0, 0),
        O::CreateAccount(2, 0),
        O::Report(2, 0, 0),
        O::Secret(0, 2, 0, SecretTenant::CreateForeign),
        O::CreateCluster(2),
        O::MoveCluster(2, Some(0)),
    ];
    assert_eq!(run(Setting::PLAIN, &operations), [""; 0]);
}
