//! Fails one in ten requests of the process, in every way in which networks and API servers fail, while users and
//! agents change the hub; afterwards the hub must converge.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use local_hub::{Fate, FaultProxy, LocalHub, Meddler};

use super::load::{Bystanders, Load, Random, prepare};
use super::stage::{self, ARGUMENTS, converges};
use crate::support::{Addons, SOON, USER};

/// One request in this number fails.
const ONE_IN: usize = 10;
/// The maximum time from the last fault until the hub has converged.
const CALM: Duration = Duration::from_secs(30);

/// Fails requests at random while it is switched on.
struct Faults(Mutex<State>);

struct State {
    is_on: bool,
    random: Random,
    requests: usize,
    failed: BTreeMap<&'static str, usize>,
}

impl Faults {
    fn new(seed: u64) -> Self {
        Self(Mutex::new(State {
            is_on: false,
            random: Random::new(seed),
            requests: 0,
            failed: BTreeMap::new(),
        }))
    }

    fn switch(&self, is_on: bool) {
        self.0.lock().unwrap().is_on = is_on;
    }

    /// The number of requests, and of failed requests by kind of fault.
    fn counts(&self) -> (usize, BTreeMap<&'static str, usize>) {
        let state = self.0.lock().unwrap();
        (state.requests, state.failed.clone())
    }
}

impl Meddler for Faults {
    fn fate(&self, _: &Method, _: &str) -> Fate {
        let mut state = self.0.lock().unwrap();
        if !state.is_on {
            return Fate::Pass;
        }
        state.requests += 1;
        if state.random.below(ONE_IN) > 0 {
            return Fate::Pass;
        }
        let bytes = state.random.below(4000);
        let refusals = [
            (StatusCode::INTERNAL_SERVER_ERROR, None),
            (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
            (StatusCode::GATEWAY_TIMEOUT, None),
            (StatusCode::TOO_MANY_REQUESTS, Some(2)),
        ];
        let (code, retry_after) = refusals[state.random.below(refusals.len())];
        let fates = [
            ("errors", Fate::Refuse(code, retry_after)),
            ("lost requests", Fate::BreakBefore),
            ("lost responses", Fate::BreakAfter),
            ("delays", Fate::Delay(Duration::from_millis(bytes as u64))),
            ("truncated bodies", Fate::Truncate(bytes)),
            ("stalls", Fate::Stall(bytes)),
        ];
        // In turn, so that a short run includes every kind.
        let turn: usize = state.failed.values().sum();
        let (kind, fate) = fates[turn % fates.len()];
        *state.failed.entry(kind).or_default() += 1;
        fate
    }
}

/// A number from the environment, for runs longer than an ordinary one.
fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[tokio::test]
#[allow(clippy::print_stdout, reason = "hack/robustness.sh prints these lines")]
async fn after_a_time_in_which_one_request_in_ten_failed_nothing_is_lost_and_nothing_is_left() {
    let seconds = from_environment("BAD_DAYS_FAULT_SECONDS", 60);
    let seed = from_environment("BAD_DAYS_SEED", 1);
    let hub = stage::start(LocalHub::builder()).await;
    let faults = Arc::new(Faults::new(seed));
    let proxy = FaultProxy::start(&hub, Arc::clone(&faults) as Arc<dyn Meddler>).await.unwrap();
    let kubeconfig = proxy.kubeconfig_for(&hub, USER).unwrap();
    let process = Addons::launch_with(&hub, "hub-addons", &kubeconfig, &ARGUMENTS).await;
    let before = prepare(&hub.ocm).await;
    converges(&hub.ocm, SOON).await;

    faults.switch(true);
    let load = Load::begin(&hub.ocm, seed);
    // This is the duration of the faults, and not a wait for a condition.
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let operations = load.end().await;
    faults.switch(false);
    proxy.release();
    converges(&hub.ocm, CALM).await;

    assert_eq!(Bystanders::now(&hub.ocm).await, before, "objects of others");
    let (requests, failed) = faults.counts();
    assert_eq!(failed.len(), 6, "too short to see every kind of fault: {failed:?}");
    let failures: usize = failed.values().sum();
    let kinds: Vec<String> = failed.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let kinds = kinds.join(", ");
    println!(
        "| faults for {seconds} s from seed {seed}: {kinds} | {operations} operations, {failures} of {requests} \
         requests failed | converged |"
    );
    process.stop().await;
}
