//! Whether many profiles are being created or deleted: a copy without a profile then waits for it, or for the end of
//! its namespace.

use std::time::Duration;

use tokio::time::Instant;

/// The window in which profiles are counted.
const WINDOW: Duration = Duration::from_secs(3);
/// This many profiles in a window mean that a projector or the namespace controller is busy: a cold start creates about
/// a hundred a second.
const MANY: usize = 5;

/// The recently created and deleted profiles, counted apart: one profile that is replaced again and again is not many.
#[derive(Debug, Default)]
pub(crate) struct Churn {
    created: Recent,
    deleted: Recent,
}

#[derive(Debug, Default)]
struct Recent {
    since: Option<Instant>,
    now: usize,
    before: usize,
}

impl Churn {
    /// Records a profile that appears.
    pub(crate) fn created(&mut self, now: Instant) {
        self.created.add(now);
    }

    /// Records a profile that disappears.
    pub(crate) fn deleted(&mut self, now: Instant) {
        self.deleted.add(now);
    }

    /// Whether there have been many of either recently.
    pub(crate) fn is_high(&mut self, now: Instant) -> bool {
        self.created.are_many(now) || self.deleted.are_many(now)
    }
}

impl Recent {
    fn add(&mut self, now: Instant) {
        self.turn(now);
        self.now += 1;
    }

    fn are_many(&mut self, now: Instant) -> bool {
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
    fn it_is_high_while_many_profiles_come_or_go_and_for_a_while_after() {
        for record in [Churn::created, Churn::deleted] {
            let (start, mut churn) = (Instant::now(), Churn::default());
            assert!(!churn.is_high(start));
            for step in 0..100 {
                let now = start + step * Duration::from_millis(100);
                record(&mut churn, now);
                assert_eq!(churn.is_high(now), step >= 4, "{step}");
            }
            let last = start + Duration::from_secs(10);
            assert!(churn.is_high(last + Duration::from_secs(1)));
            assert!(!churn.is_high(last + 2 * WINDOW));
        }
    }

    #[test]
    fn many_in_one_window_count_until_the_end_of_the_next() {
        let start = Instant::now();
        let created = |times: &[Duration]| {
            let mut churn = Churn::default();
            for after in times {
                churn.created(start + *after);
            }
            churn
        };
        let many = [Duration::ZERO; MANY];
        assert!(created(&many).is_high(start + WINDOW));
        assert!(!created(&many).is_high(start + 2 * WINDOW));
        let spread = [[Duration::ZERO; 3], [WINDOW; 3]].concat();
        assert!(!created(&spread).is_high(start + WINDOW), "three in each of two windows");
    }

    #[test]
    fn a_profile_that_is_replaced_now_and_then_does_not_count() {
        let (start, mut churn) = (Instant::now(), Churn::default());
        for step in 0..50 {
            let now = start + step * Duration::from_secs(1);
            churn.deleted(now);
            churn.created(now);
            assert!(!churn.is_high(now));
        }
    }
}
