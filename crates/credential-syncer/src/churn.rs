//! Whether many profiles are being created or deleted: a copy without a profile then waits for it, or for the end of
//! its namespace.

use std::time::Duration;

use hub_api::names::ProfileKey;
use tokio::time::Instant;

/// The window in which profiles are counted.
const WINDOW: Duration = Duration::from_secs(3);
/// This many profiles in a window mean that a projector or the namespace controller is busy: a cold start creates about
/// a hundred a second.
const MANY: usize = 5;

/// The recently created and deleted profiles. One that is replaced again and again counts once, and thus does not delay
/// what is reported to other tenants.
#[derive(Debug, Default)]
pub(crate) struct Churn {
    created: Recent,
    deleted: Recent,
}

#[derive(Debug, Default)]
struct Recent {
    since: Option<Instant>,
    /// The profiles of this window, up to [`MANY`].
    now: Vec<ProfileKey>,
    were_many: bool,
}

impl Churn {
    /// Records a profile that appears.
    pub(crate) fn created(&mut self, profile: &ProfileKey, now: Instant) {
        self.created.add(profile, now);
    }

    /// Records a profile that disappears.
    pub(crate) fn deleted(&mut self, profile: &ProfileKey, now: Instant) {
        self.deleted.add(profile, now);
    }

    /// Whether there have been many of either recently.
    pub(crate) fn is_high(&mut self, now: Instant) -> bool {
        self.created.are_many(now) || self.deleted.are_many(now)
    }
}

impl Recent {
    fn add(&mut self, profile: &ProfileKey, now: Instant) {
        self.turn(now);
        if self.now.len() < MANY && !self.now.contains(profile) {
            self.now.push(profile.clone());
        }
    }

    fn are_many(&mut self, now: Instant) -> bool {
        self.turn(now);
        self.now.len() >= MANY || self.were_many
    }

    fn turn(&mut self, now: Instant) {
        let elapsed = self.since.map(|since| now.saturating_duration_since(since));
        match elapsed {
            Some(elapsed) if elapsed < WINDOW => {}
            elapsed => {
                let is_next = elapsed.is_some_and(|elapsed| elapsed < 2 * WINDOW);
                self.were_many = is_next && self.now.len() >= MANY;
                self.now.clear();
                self.since = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(number: usize) -> ProfileKey {
        ProfileKey { namespace: "team".into(), cluster: format!("c{number}").as_str().into() }
    }

    #[test]
    fn it_is_high_while_many_profiles_come_or_go_and_for_a_while_after() {
        for record in [Churn::created, Churn::deleted] {
            let (start, mut churn) = (Instant::now(), Churn::default());
            assert!(!churn.is_high(start));
            let mut now = start;
            for step in 0..100 {
                now += Duration::from_millis(100);
                record(&mut churn, &profile(step), now);
                assert_eq!(churn.is_high(now), step >= 4, "{step}");
            }
            assert!(churn.is_high(now + Duration::from_secs(1)));
            assert!(!churn.is_high(now + 2 * WINDOW));
        }
    }

    #[test]
    fn many_in_one_window_count_until_the_end_of_the_next() {
        let start = Instant::now();
        let created = |times: &[Duration]| {
            let mut churn = Churn::default();
            for (number, after) in times.iter().enumerate() {
                churn.created(&profile(number), start + *after);
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
    fn a_profile_that_is_replaced_again_and_again_counts_once() {
        let (mut now, mut churn) = (Instant::now(), Churn::default());
        for _ in 0..50 {
            now += Duration::from_millis(100);
            churn.deleted(&profile(0), now);
            churn.created(&profile(0), now);
            assert!(!churn.is_high(now));
        }
    }
}
