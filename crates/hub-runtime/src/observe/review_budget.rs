//! Limits the reviews of tokens: anyone can send them, and each costs the hub a request.

use std::time::Duration;

use tokio::time::Instant;

/// How many tokens that are not valid are reviewed in a burst, and the interval between two reviews after it.
const INVALID_AT_ONCE: u32 = 10;
const INVALID_EVERY: Duration = Duration::from_millis(250);

/// The reviews that are left; by default for tokens that are not known to be valid.
pub struct ReviewBudget {
    at_once: u32,
    every: Duration,
    left: u32,
    /// When reviews were last added.
    since: Option<Instant>,
}

impl Default for ReviewBudget {
    fn default() -> Self {
        Self::new(INVALID_AT_ONCE, INVALID_EVERY)
    }
}

impl ReviewBudget {
    /// This many reviews in a burst, and one in each interval after it.
    #[must_use]
    pub fn new(at_once: u32, every: Duration) -> Self {
        Self { at_once, every, left: at_once, since: None }
    }

    /// Whether none was taken for as long as a burst takes to come back.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.add(now);
        self.left == self.at_once
    }

    /// Takes a review; returns whether one was left.
    pub fn take(&mut self, now: Instant) -> bool {
        self.add(now);
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }

    fn add(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let whole = u32::try_from(now.duration_since(since).as_millis() / self.every.as_millis())
            .unwrap_or(u32::MAX);
        if whole > 0 {
            self.left = self.left.saturating_add(whole).min(self.at_once);
            self.since = Some(now);
        }
    }

    /// Returns the review of a token that was valid.
    pub fn give_back(&mut self) {
        self.left = self.left.saturating_add(1).min(self.at_once);
    }
}
