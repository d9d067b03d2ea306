//! How often the properties of a profile are written. Consumers drop their caches and reconnect on every write, and an
//! agent can change a claim every second.

use std::collections::HashMap;
use std::time::Duration;

use hub_api::names::ProfileKey;
use hub_core::finding::{Finding, Reason};
use hub_core::profile::{ObservedProfile, ProfileAction, changed_property, without_properties};
use hub_runtime::flow::pace::Pace;
use tokio::time::Instant;

/// Changes in a row without a delay: those of a cluster that joins.
const BURST: u32 = 5;
const INTERVAL: Duration = Duration::from_mins(1);

#[derive(Default)]
pub(crate) struct PropertyPace {
    paces: HashMap<ProfileKey, Pace>,
    /// The number of profiles at which those that may have a whole [`BURST`] are forgotten.
    forget_at: usize,
    /// The profiles whose properties change too often, each with the claim that was held back first.
    held: HashMap<ProfileKey, String>,
}

impl PropertyPace {
    /// Counts an accepted write that changes properties.
    pub(crate) fn wrote(&mut self, key: &ProfileKey) {
        let now = Instant::now();
        if self.paces.len() >= self.forget_at {
            self.paces.retain(|_, pace| !pace.is_rested(now));
            self.forget_at = self.paces.len().saturating_mul(2).max(64);
        }
        let pace = self.paces.entry(key.clone());
        pace.or_insert_with(|| Pace::new(BURST, INTERVAL)).took(now);
    }

    /// Takes properties that change too often out of a write. Returns how long they are held back, with a finding, which
    /// persists until they change less often.
    pub(crate) fn hold(
        &mut self,
        key: &ProfileKey,
        observed: Option<&ObservedProfile>,
        action: &mut ProfileAction,
    ) -> Option<(Duration, Finding)> {
        let wait = self.paces.get(key).map(|pace| pace.wait(Instant::now()));
        let Some(wait) = wait.filter(|wait| !wait.is_zero()) else {
            self.held.remove(key);
            return None;
        };
        if let Some(claim) = changed_property(observed, action) {
            without_properties(action);
            self.held.entry(key.clone()).or_insert(claim);
        }
        let message = format!(
            "the claim {:?} changes more often than once a minute, so properties are written once a minute",
            self.held.get(key)?
        );
        Some((wait, Finding::new(Reason::ClaimChangesOften, message)))
    }

    pub(crate) fn forget(&mut self, key: &ProfileKey) {
        self.held.remove(key);
    }
}
