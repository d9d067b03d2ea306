//! Counts the profiles that have our entry, and the reasons why others lack it.

use std::collections::HashMap;

use hub_api::names::ProfileKey;
use hub_core::access::{Offer, Withheld};
use hub_core::profile::ObservedProfile;
use hub_runtime::metrics::Metrics;
use parking_lot::Mutex;

const PUBLISHED: &str = "published";

/// Keeps the gauge of one source up to date.
pub(crate) struct Tally {
    source: &'static str,
    metrics: Metrics,
    states: Mutex<HashMap<ProfileKey, &'static str>>,
}

impl Tally {
    pub(crate) fn new(source: &'static str, metrics: Metrics) -> Self {
        let mut states = vec![PUBLISHED];
        states.extend(Withheld::ALL.map(Withheld::as_str));
        metrics.declare_access_provider(source, &states);
        Self { source, metrics, states: Mutex::default() }
    }

    /// Records the decision for a profile; `None` if the profile is gone or not ours.
    pub(crate) fn set(&self, key: &ProfileKey, decided: Option<(&ObservedProfile, &Offer)>) {
        let now = decided.map(|(observed, offer)| match offer {
            Offer::Publish(entry) if observed.has_room_for(&entry.name) => PUBLISHED,
            Offer::Publish(_) => Withheld::NoRoom.as_str(),
            Offer::Withdraw(why) | Offer::Keep(why) => why.as_str(),
        });
        let mut states = self.states.lock();
        let before = match now {
            Some(state) => states.insert(key.clone(), state),
            None => states.remove(key),
        };
        if before != now {
            self.metrics.access_provider(self.source, before, now);
        }
    }
}
