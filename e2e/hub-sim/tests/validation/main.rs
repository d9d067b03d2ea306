//! Compares the model with a real API server: the same random requests lead to the same responses, objects and events.
//!
//! The comparison covers the status code, the reason, the message where it does not list errors of a field, and the
//! object, except for what always differs between two servers: uids, versions and times.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy takes only functions marked as tests for tests"
)]

mod collecting;
mod expiry;
mod requests;
mod sides;

use local_hub::{Flavour, LocalHub};
use serde_json::Value;

use requests::Sequence;
use sides::Side;

/// The number of sequences for each flavour, and of requests in each.
const SEQUENCES: u64 = 48;
const LENGTH: usize = 40;

/// The number of graphs of owners.
const GRAPHS: u64 = 24;

/// The CRDs of a hub, from which the model knows its kinds.
fn crds(hub: &LocalHub) -> Vec<Value> {
    hub.crds().unwrap().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect()
}

async fn compare(lists: Flavour) {
    let hub =
        LocalHub::builder().without_controller_manager().flavour(lists).start().await.unwrap();
    let crds = crds(&hub);
    let client = hub.client_as(local_hub::OCM).await.unwrap();
    let first = std::env::var("HUB_SIM_VALIDATION_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let (mut requests, mut differences) = (0, Vec::new());
    for group in (first..first + SEQUENCES).step_by(8) {
        let compared = (group..group + 8).map(|seed| {
            let (client, crds) = (client.clone(), crds.clone());
            tokio::spawn(async move {
                let mut sides = [Side::model(crds), Side::Real(client)];
                Sequence::random(seed, LENGTH).compare(&mut sides).await
            })
        });
        for compared in compared.collect::<Vec<_>>() {
            let outcome = compared.await.unwrap();
            requests += outcome.requests;
            differences.extend(outcome.difference);
        }
    }
    assert!(
        differences.is_empty(),
        "{} sequences differ:\n{}",
        differences.len(),
        differences.join("\n\n")
    );
    println!("{SEQUENCES} sequences, {requests} requests, no difference ({lists:?})");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_have_the_same_answers_where_lists_are_maps() {
    compare(Flavour::Map).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_have_the_same_answers_where_lists_are_atomic() {
    compare(Flavour::Atomic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_graphs_of_owners_and_finalizers_leave_the_same_objects() {
    let hub = LocalHub::builder().start().await.unwrap();
    let client = hub.client_as(local_hub::OCM).await.unwrap();
    let compared = (0..GRAPHS).map(|seed| {
        let sides = [Side::model(crds(&hub)), Side::Real(client.clone())];
        tokio::spawn(collecting::compare(seed, sides))
    });
    let mut differences = Vec::new();
    for compared in compared.collect::<Vec<_>>() {
        differences.extend(compared.await.unwrap());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    println!("{GRAPHS} graphs of owners, no difference");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_is_compacted_or_restored_leads_to_the_same_responses() {
    let hub = LocalHub::builder().without_controller_manager().start().await.unwrap();
    let client = hub.client_as(local_hub::OCM).await.unwrap();
    expiry::compare(&hub, [Side::model(crds(&hub)), Side::Real(client)]).await;
    println!(
        "lists, continue tokens and watches in a whole, a compacted and a restored history, no difference"
    );
}
