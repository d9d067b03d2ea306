//! Whether profiles are still being created: a copy without a profile then waits for it.

use std::time::Duration;

use tokio::time::Instant;

/// The window in which arrivals are counted.
const WINDOW: Duration = Duration::from_secs(3);
/// This many profiles in a window mean that a projector is busy: a cold start creates about a hundred a second.
const MANY: usize = 5;

/// The recently created profiles.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    since: Option<Instant>,
    now: usize,
    before: usize,
}

impl Arrivals {
    /// Records a new profile.
    pub(crate) fn add(&mut self, now: Instant) {
        self.turn(now);
        self.now += 1;
    }

    /// Whether many profiles have been created recently.
    pub(crate) fn are_many(&mut self, now: Instant) -> bool {
        self.turn(now);
        self.now >= MANY || self.before >= MANY
    }

    fn turn(&mut self, now: Instant) {
        let elapsed = self.since.map(|since| now.saturating_duration_since(since));
        match elapsed {
            Some(elapsed) if elapsed < WINDOW => {}
            elapsed => {
                self.before = if elapsed.is_some_and(|elapsed| elapsed < 2 * WINDOW) { self.now } else { 0 };
                (self.now, self.since) = (0, Some(now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_projector_is_at_work_while_many_profiles_come_and_for_a_while_after() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        assert!(!arrivals.are_many(start));
        for step in 0..100 {
            let now = start + step * Duration::from_millis(100);
            arrivals.add(now);
            assert_eq!(arrivals.are_many(now), step >= 4, "{step}");
        }
        let last = start + Duration::from_secs(10);
        assert!(arrivals.are_many(last + Duration::from_secs(1)));
        assert!(!arrivals.are_many(last + 2 * WINDOW));
    }

    #[test]
    fn a_profile_now_and_then_is_no_cold_start() {
        let (start, mut arrivals) = (Instant::now(), Arrivals::default());
        for step in 0..50 {
            arrivals.add(start + step * Duration::from_secs(1));
            assert!(!arrivals.are_many(start + step * Duration::from_secs(1)));
        }
    }
}
