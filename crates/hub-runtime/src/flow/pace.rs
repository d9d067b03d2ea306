//! A burst, and then a rate.

use std::time::Duration;

use tokio::time::Instant;

/// This many in a burst, and one in each interval after it.
#[derive(Debug, Clone)]
pub struct Pace {
    pub burst: u32,
    interval: Duration,
    /// When a whole burst is possible again, if any was taken.
    rested: Option<Instant>,
}

impl Pace {
    #[must_use]
    pub const fn new(burst: u32, interval: Duration) -> Self {
        Self { burst, interval, rested: None }
    }

    /// How long until the next one.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Duration {
        let rested = self.rested.unwrap_or(now).saturating_duration_since(now);
        rested.saturating_sub(self.interval * (self.burst - 1))
    }

    /// Whether a whole burst is possible.
    #[must_use]
    pub fn is_rested(&self, now: Instant) -> bool {
        self.rested.is_none_or(|rested| rested <= now)
    }

    /// Takes the next one, due or not.
    pub fn took(&mut self, now: Instant) {
        self.rested = Some(self.rested.map_or(now, |rested| rested.max(now)) + self.interval);
    }

    /// Takes the next one, if it is due. Returns whether it was.
    pub fn take(&mut self, now: Instant) -> bool {
        let is_due = self.wait(now).is_zero();
        if is_due {
            self.took(now);
        }
        is_due
    }

    /// One that was taken does not count.
    pub fn give_back(&mut self) {
        self.rested = self.rested.and_then(|rested| rested.checked_sub(self.interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_followed_by_one_in_each_interval_and_possible_again_after_a_rest() {
        let (mut pace, begin) = (Pace::new(3, Duration::from_secs(10)), Instant::now());
        for (second, takes) in [
            (0, vec![true, true, true, false]),
            (9, vec![false]),
            (10, vec![true, false]),
            (30, vec![true, true, false]),
            (70, vec![true, true, true, false]),
        ] {
            let now = begin + Duration::from_secs(second);
            let taken: Vec<_> = takes.iter().map(|_| pace.take(now)).collect();
            assert_eq!(taken, takes, "{second}");
        }
        let now = begin + Duration::from_secs(70);
        assert_eq!(pace.wait(now), Duration::from_secs(10));
        pace.took(now);
        assert_eq!(pace.wait(now), Duration::from_secs(20), "taken before it is due");
        pace.give_back();
        pace.give_back();
        assert!(pace.take(now), "one that does not count leaves its place");
        assert!(!pace.is_rested(now + Duration::from_secs(29)));
        assert!(pace.is_rested(now + Duration::from_secs(30)));
    }
}
