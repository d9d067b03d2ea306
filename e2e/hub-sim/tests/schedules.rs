//! Random schedules in every run of the tests, and what earlier ones have found. `hack/robustness.sh` runs thousands in a
//! minute, by an optimised build.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::sync::Arc;

use hub_api::crds::{Flavour, all, cluster_profile};
use hub_sim::operation::Operation as O;
use hub_sim::schedule::{Layout, Schedule};
use hub_sim::shrink;
use hub_sim::world::Fault;
use serde_json::Value;

/// Schedules in a run that is not optimised.
const SCHEDULES: u64 = 60;

fn crds(lists: Flavour) -> Arc<Vec<Value>> {
    let mut crds = all();
    crds.retain(|crd| crd.spec.names.plural != "clusterprofiles");
    crds.push(cluster_profile(lists));
    Arc::new(crds.iter().map(|crd| serde_json::to_value(crd).unwrap()).collect())
}

#[test]
fn the_hub_gets_over_whatever_happens() {
    for lists in [Flavour::Map, Flavour::Atomic] {
        let crds = crds(lists);
        for seed in 0..SCHEDULES / 2 {
            let schedule = Schedule::random(seed, false);
            let violations = shrink::run(&schedule, &crds);
            if !violations.is_empty() {
                let smallest = shrink::shrink(&schedule, &crds);
                panic!("seed {seed} ({lists:?}): {violations:#?}\nin short: {smallest:?}");
            }
        }
    }
}

#[test]
fn a_seed_runs_the_same_way_again() {
    let crds = crds(Flavour::Map);
    let schedule = Schedule::random(7, false);
    // Whatever the processes do in one moment, they do in the order of their hash maps.
    let requests = || {
        let trace = schedule.run(&crds).trace;
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
fn run(layout: Layout, operations: &[O]) -> Vec<String> {
    let operations = operations.iter().map(|operation| (*operation, 300)).collect();
    shrink::run(&Schedule { seed: 4, layout, operations }, &crds(Flavour::Map))
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
    assert_eq!(run(Layout::One, &operations), [""; 0]);
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
        assert_eq!(run(layout, &operations), [""; 0], "{layout:?}");
    }
}
