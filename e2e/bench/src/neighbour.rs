//! Another client of the hub, which sends small requests at a fixed rate: what the controllers cost everybody else.
//!
//! Its ServiceAccount has the same standing as those of the controllers in API Priority and Fairness.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use local_hub::ocm::Object;
use local_hub::{LocalHub, OCM};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use crate::error::BenchError;
use crate::progress::say;

const NAME: &str = "neighbour";
/// The ConfigMap that it reads. Its own: that of Kubernetes in every namespace comes minutes late on a hub with
/// thousands of new namespaces.
const READ: &str = NAME;
/// The time between two requests. They do not wait for each other, so a slow one delays no other.
const INTERVAL: Duration = Duration::from_millis(50);

/// How long its requests took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// How many were successful, or had no response yet.
    pub requests: usize,
    /// How many failed.
    pub failed: usize,
    /// The median in milliseconds.
    pub p50_ms: f64,
    /// What 99 of 100 did not exceed, in milliseconds.
    pub p99_ms: f64,
}

impl Latency {
    fn of(mut seen: Seen) -> Self {
        seen.took.sort_unstable();
        let percentile = |percent: usize| {
            let rank = (seen.took.len() * percent).div_ceil(100).saturating_sub(1);
            seen.took.get(rank).map_or(0.0, |took| took.as_secs_f64() * 1000.0)
        };
        Self {
            requests: seen.took.len(),
            failed: seen.failed,
            p50_ms: percentile(50),
            p99_ms: percentile(99),
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    took: Vec<Duration>,
    failed: usize,
    /// When the requests were sent that have no response yet, by number.
    in_flight: BTreeMap<u64, Instant>,
}

/// The running client.
#[derive(Debug)]
pub struct Neighbour {
    seen: Arc<Mutex<Seen>>,
    sending: JoinHandle<()>,
}

impl Neighbour {
    pub async fn start(hub: &LocalHub) -> Result<Self, BenchError> {
        let account = hub.service_account(NAME, NAME).await?;
        let read = PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["configmaps".to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        account.grant_in_namespace(vec![read]).await?;
        let map = Object::new(("", "v1", "ConfigMap"), "configmaps", Some(NAME), READ);
        map.create(&hub.client_as(OCM).await?).await?;
        let api = Api::<ConfigMap>::namespaced(account.client().await?, NAME);
        let seen = Arc::<Mutex<Seen>>::default();
        let sending = tokio::spawn(send(api, Arc::clone(&seen)));
        Ok(Self { seen, sending })
    }

    /// How long the requests took that were sent since the last call; those without a response, until now.
    pub fn take(&self) -> Latency {
        let mut seen = std::mem::take(&mut *self.seen.lock());
        seen.took.extend(seen.in_flight.values().map(Instant::elapsed));
        Latency::of(seen)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.sending.abort();
    }
}

async fn send(api: Api<ConfigMap>, seen: Arc<Mutex<Seen>>) {
    let mut requests = JoinSet::new();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for number in 0.. {
        ticks.tick().await;
        while requests.try_join_next().is_some() {}
        let (api, seen) = (api.clone(), Arc::clone(&seen));
        requests.spawn(async move {
            seen.lock().in_flight.insert(number, Instant::now());
            let result = api.get(READ).await;
            let mut seen = seen.lock();
            let Some(sent) = seen.in_flight.remove(&number) else { return };
            match result {
                Ok(_) => seen.took.push(sent.elapsed()),
                Err(error) => {
                    if seen.failed == 0 {
                        say(&format!("a request of another client failed: {error}"));
                    }
                    seen.failed += 1;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentiles_are_those_of_the_sorted_times() {
        let took = (1..=200).rev().map(Duration::from_millis).collect();
        let latency = Latency::of(Seen { took, failed: 1, ..Seen::default() });
        assert_eq!(latency, Latency { requests: 200, failed: 1, p50_ms: 100.0, p99_ms: 198.0 });
        assert_eq!(Latency::of(Seen::default()), Latency::default());
    }
}
