//! How often the properties of a profile are written. Consumers drop their caches and reconnect on every write, and an
//! agent can change a claim every second.

use std::collections::HashMap;
use std::time::Duration;

use hub_api::names::ProfileKey;
use hub_core::finding::{Finding, Reason};
use hub_core::profile::{ObservedProfile, ProfileAction, changed_property, without_properties};
use tokio::time::Instant;

/// Changes in a row without a delay: those of a cluster that joins.
const BURST: u32 = 5;
const INTERVAL: Duration = Duration::from_mins(1);

#[derive(Default)]
pub(crate) struct PropertyPace {
    /// When each profile may have a whole [`BURST`] again.
    rested: HashMap<ProfileKey, Instant>,
    /// The number of profiles at which those that may have one are forgotten.
    forget_at: usize,
    /// The profiles whose properties change too often, each with the claim that was held back first.
    held: HashMap<ProfileKey, String>,
}

impl PropertyPace {
    /// Counts an accepted write that changes properties.
    pub(crate) fn wrote(&mut self, key: &ProfileKey) {
        let now = Instant::now();
        if self.rested.len() >= self.forget_at {
            self.rested.retain(|_, rested| *rested > now);
            self.forget_at = self.rested.len().saturating_mul(2).max(64);
        }
        let rested = self.rested.entry(key.clone()).or_insert(now);
        *rested = (*rested).max(now) + INTERVAL;
    }

    /// How long the next change of a profile's properties must wait.
    fn wait(&self, key: &ProfileKey) -> Option<Duration> {
        let left = self.rested.get(key)?.checked_duration_since(Instant::now())?;
        left.checked_sub(INTERVAL * (BURST - 1)).filter(|wait| !wait.is_zero())
    }

    /// Takes properties that change too often out of a write. Returns how long they are held back, with a finding, which
    /// persists until they change less often.
    pub(crate) fn hold(
        &mut self,
        key: &ProfileKey,
        observed: Option<&ObservedProfile>,
        action: &mut ProfileAction,
    ) -> Option<(Duration, Finding)> {
        let Some(wait) = self.wait(key) else {
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
