//! Counts copies and the reasons why others are missing, and finds the earliest expiry.

use std::collections::{BTreeMap, HashMap};

use hub_api::names::{AccountKey, SecretKey};
use hub_core::credential::state::State;
use hub_core::fleet::Touched;
use hub_runtime::metrics::Metrics;
use jiff::Timestamp;
use parking_lot::Mutex;

/// Keeps the gauges up to date.
pub(crate) struct Tally {
    metrics: Metrics,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    places: HashMap<SecretKey, CountedPlace>,
    /// The number of copies by the expiry of their token.
    expiries: BTreeMap<Timestamp, usize>,
}

#[derive(Default, PartialEq, Eq)]
struct CountedPlace {
    states: Box<[(AccountKey, State)]>,
    expires: Option<Timestamp>,
}

impl Tally {
    pub(crate) fn new(metrics: Metrics) -> Self {
        metrics.declare_credentials(State::counted().map(State::as_str));
        Self { metrics, counted: Mutex::default() }
    }

    /// The places with a state that a change of the fleet affects: a place without a Secret that is no longer wanted is
    /// known only here.
    pub(crate) fn concerned(&self, touched: &Touched) -> Vec<SecretKey> {
        let counted = self.counted.lock();
        let concerns = |(key, place): &(&SecretKey, &CountedPlace)| match touched {
            Touched::Nothing => false,
            Touched::Cluster(cluster) => place.states.iter().any(|(account, _)| account.cluster == *cluster),
            Touched::Namespaces(namespaces) => namespaces.contains(&key.namespace),
        };
        counted.places.iter().filter(concerns).map(|(key, _)| key.clone()).collect()
    }

    /// Records the states of the copies with one name in a namespace; returns the accounts whose state has changed.
    pub(crate) fn set(
        &self,
        place: &SecretKey,
        states: &[(AccountKey, State)],
        expires: Option<Timestamp>,
    ) -> Vec<AccountKey> {
        let states = states.iter().filter(|(_, state)| state.is_counted()).cloned().collect();
        let now = CountedPlace { states, expires };
        let mut counted = self.counted.lock();
        let before = counted.places.remove(place).unwrap_or_default();
        if before == now {
            counted.keep(place, now);
            return Vec::new();
        }
        for (_, state) in &before.states {
            self.metrics.credential(state.as_str(), -1);
        }
        for (_, state) in &now.states {
            self.metrics.credential(state.as_str(), 1);
        }
        counted.count(before.expires, now.expires);
        self.metrics.next_token_expiry(counted.expiries.keys().next().copied());
        let differ = |one: &CountedPlace, other: &CountedPlace| {
            let new = one.states.iter().filter(|state| !other.states.contains(state));
            new.map(|(account, _)| account.clone()).collect::<Vec<_>>()
        };
        let mut changed = differ(&before, &now);
        changed.extend(differ(&now, &before));
        counted.keep(place, now);
        changed
    }
}

impl Counted {
    fn keep(&mut self, place: &SecretKey, now: CountedPlace) {
        if now != CountedPlace::default() {
            self.places.insert(place.clone(), now);
        }
    }

    fn count(&mut self, before: Option<Timestamp>, now: Option<Timestamp>) {
        if let Some(now) = now {
            *self.expiries.entry(now).or_default() += 1;
        }
        if let Some(before) = before
            && let Some(copies) = self.expiries.get_mut(&before)
        {
            *copies -= 1;
            if *copies == 0 {
                self.expiries.remove(&before);
            }
        }
    }
}
