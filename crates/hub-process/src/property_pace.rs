//! How often the properties of a profile are written. Consumers drop their caches and reconnect on every write, and an
//! agent can change a claim every second.

use std::collections::HashMap;
use std::time::Duration;

use hub_api::names::ProfileKey;
use hub_core::finding::{Finding, Reason};
use hub_core::profile::{ObservedProfile, ProfileAction, changed_properties, without_properties};
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
    /// The profiles whose properties change too often, each with a claim that does, and when it last did.
    held: HashMap<ProfileKey, (String, Instant)>,
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
    /// persists until a minute has brought no change.
    pub(crate) fn hold(
        &mut self,
        key: &ProfileKey,
        observed: Option<&ObservedProfile>,
        action: &mut ProfileAction,
    ) -> Option<(Duration, Finding)> {
        let now = Instant::now();
        let Some(mut wait) = self.paces.get(key).map(|pace| pace.wait(now)) else {
            self.forget(key);
            return None;
        };
        let mut changed = changed_properties(observed, action);
        if wait.is_zero() {
            let (held, last) = self.held.remove(key)?;
            // One that has not changed since the last write is not the one that changes too often.
            if let Some(claim) = changed.take(&held).or_else(|| changed.pop_first()) {
                self.held.insert(key.clone(), (claim, now));
            } else {
                // It may have its former value again.
                wait = INTERVAL.checked_sub(now - last).filter(|wait| !wait.is_zero())?;
                self.held.insert(key.clone(), (held, last));
            }
        } else if let Some(claim) = changed.pop_first() {
            without_properties(action);
            self.held.entry(key.clone()).or_insert((claim, now)).1 = now;
        }
        let message = format!(
            "the claim {:?} changes more often than once a minute, so properties are written once a minute",
            self.held.get(key)?.0
        );
        Some((wait, Finding::new(Reason::ClaimChangesOften, message)))
    }

    pub(crate) fn forget(&mut self, key: &ProfileKey) {
        self.held.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use hub_api::cluster_profile::StoredProfile;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_finding_names_a_claim_that_changes_in_every_minute() {
        let key = ProfileKey { namespace: "app".into(), cluster: "c1".into() };
        let status = |[a, b]: [&str; 2]| json!({"properties": [{"name": "a", "value": a}, {"name": "b", "value": b}]});
        let mut pace = PropertyPace::default();
        (0..BURST).for_each(|_| pace.wrote(&key));
        for (seconds, shown, wanted, named) in [
            (0, ["0", "0"], ["1", "1"], Some("a")),
            (60, ["0", "0"], ["1", "2"], Some("a")),
            (0, ["1", "2"], ["1", "2"], Some("a")),
            (30, ["1", "2"], ["1", "3"], Some("a")),
            (30, ["1", "2"], ["1", "4"], Some("b")),
            (40, ["1", "4"], ["1", "5"], Some("b")),
            (20, ["1", "4"], ["1", "4"], Some("b")),
            (40, ["1", "4"], ["1", "4"], None),
        ] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let profile = json!({"metadata": {}, "status": status(shown)});
            let profile: StoredProfile = serde_json::from_value(profile).unwrap();
            let observed = ObservedProfile::of(&profile);
            let patch = json!({"status": status(wanted)});
            let mut action = ProfileAction::PatchStatus(observed.version.clone(), patch);
            let held = pace.hold(&key, Some(&observed), &mut action);
            if held.as_ref().is_some_and(|(wait, _)| wait.is_zero()) {
                pace.wrote(&key);
            }
            let message = held.map(|(_, finding)| finding.message);
            let name = message.as_deref().and_then(|message| message.split('"').nth(1));
            assert_eq!(name, named, "{wanted:?}");
        }
    }
}
