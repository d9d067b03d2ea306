//! How often one key is written: a bound on the effort against a client that undoes every write.
//!
//! Such a client can be a second process without Leases whose cache differs, another controller that prunes what it
//! does not know, or a webhook that changes what it admits. Each write is accepted, and each leads to an event after
//! which the next one is due, so no backoff after failures applies.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The keys with recent writes.
pub struct KeyRateLimit<K> {
    /// Writes in a row without a delay.
    burst: u32,
    /// The time between two writes after a burst.
    interval: Duration,
    /// When each key's burst allowance is full again.
    rested: HashMap<K, Instant>,
    /// The number of keys at which those whose burst allowance is full are forgotten.
    forget_at: usize,
}

impl<K: Eq + Hash> KeyRateLimit<K> {
    #[must_use]
    pub fn new(burst: u32, interval: Duration) -> Self {
        Self { burst, interval, rested: HashMap::new(), forget_at: 0 }
    }

    /// Counts a write that the API server has accepted.
    pub fn wrote(&mut self, key: K, now: Instant) {
        if self.rested.len() >= self.forget_at {
            self.rested.retain(|_, rested| *rested > now);
            self.forget_at = self.rested.len().saturating_mul(2).max(64);
        }
        let rested = self.rested.entry(key).or_insert(now);
        *rested = (*rested).max(now) + self.interval;
    }

    /// How long the next write of a key must wait.
    #[must_use]
    pub fn wait(&self, key: &K, now: Instant) -> Option<Duration> {
        let left = self.rested.get(key)?.checked_duration_since(now)?;
        left.checked_sub(self.interval * (self.burst - 1)).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);

    #[test]
    fn a_key_that_is_written_again_and_again_is_written_every_two_seconds() {
        let (mut limit, begin) = (KeyRateLimit::new(10, INTERVAL), Instant::now());
        let mut now = begin;
        for _ in 0..40 {
            now += limit.wait(&"key", now).unwrap_or_default();
            limit.wrote("key", now);
        }
        assert_eq!(now - begin, INTERVAL * 30);
        assert_eq!(limit.wait(&"another", now), None);
    }

    #[test]
    fn a_key_that_rests_has_a_burst_again_and_takes_no_memory() {
        let (mut limit, begin) = (KeyRateLimit::new(10, INTERVAL), Instant::now());
        for key in 0..1000 {
            limit.wrote(key, begin);
        }
        (0..30).for_each(|_| limit.wrote(1, begin));
        let later = begin + INTERVAL;
        limit.forget_at = 0;
        limit.wrote(0, later);
        assert_eq!((limit.rested.len(), limit.wait(&0, later)), (2, None));
        assert!(limit.wait(&1, later).is_some(), "this one has not rested");
    }
}
