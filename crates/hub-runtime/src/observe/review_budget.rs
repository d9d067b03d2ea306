//! Limits the reviews of tokens that are not valid: anybody can send them, and each costs the hub a request.

use std::time::Duration;

use tokio::time::Instant;

/// How many tokens that are not valid are reviewed at once, and after that, how often one is.
const INVALID_AT_ONCE: u32 = 10;
const INVALID_EVERY: Duration = Duration::from_millis(250);

/// The reviews that are left for tokens that are not known to be valid.
pub struct ReviewBudget {
    left: u32,
    /// When the last of them was added.
    since: Option<Instant>,
}

impl Default for ReviewBudget {
    fn default() -> Self {
        Self { left: INVALID_AT_ONCE, since: None }
    }
}

impl ReviewBudget {
    /// Takes one, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let whole = u32::try_from(now.duration_since(since).as_millis() / INVALID_EVERY.as_millis())
            .unwrap_or(u32::MAX);
        if whole > 0 {
            self.left = self.left.saturating_add(whole).min(INVALID_AT_ONCE);
            self.since = Some(now);
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }

    /// The token was valid.
    pub fn give_back(&mut self) {
        self.left = self.left.saturating_add(1).min(INVALID_AT_ONCE);
    }
}
