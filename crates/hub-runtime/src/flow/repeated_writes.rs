//! The pace of a write that another client undoes again and again.
//!
//! Such a client can be OCM's controller of the same entry, a second process whose cache differs, a controller that
//! prunes what it does not know, or a webhook that changes what it admits. Each write is accepted, and each leads to an
//! event after which the same write is due again, so no backoff after failures applies. For a write of another content the
//! object's source has changed: only after many in a row is there a time between two, since whoever may change a source,
//! such as the agent of a cluster, may do so at any rate.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// Repetitions without a delay: a race may undo a few.
const FREE: u32 = 3;
/// The delay of the first repetition after these; each further one doubles it.
const MIN: Duration = Duration::from_secs(2);
const MAX: Duration = Duration::from_mins(5);
/// Writes of any content in a row without a delay: an object rarely takes more than three.
const BURST: u32 = 10;
/// How long after its delay a write counts as repeated.
const MEMORY: Duration = Duration::from_secs(10);

/// A write: its key, resource and verb.
type Write<'a, K> = (&'a K, &'a str, &'a str);

/// The latest writes, each by the hash of a [`Write`]: there are tens of thousands, and two of one hash share a pace.
#[derive(Default)]
pub(crate) struct RepeatedWrites {
    latest: HashMap<u64, LatestWrite>,
    hasher: RandomState,
    /// The number of writes at which those that no longer count are forgotten.
    forget_at: usize,
}

struct LatestWrite {
    content: u64,
    at: Instant,
    repetitions: u32,
    /// The number of writes before this one, of any content, each soon after the one before.
    in_a_row: u32,
}

impl LatestWrite {
    /// How long after this write the same may be sent again.
    fn delay(&self) -> Duration {
        let doublings = self.repetitions.checked_sub(FREE);
        doublings
            .map_or(Duration::ZERO, |doublings| MIN.saturating_mul(1 << doublings.min(16)).min(MAX))
    }

    fn counts_at(&self, now: Instant) -> bool {
        now <= self.at + self.delay() + MEMORY
    }
}

impl RepeatedWrites {
    /// Records a write that the API server has accepted; `content` distinguishes it from others of the same verb.
    pub(crate) fn wrote<K: Hash>(&mut self, write: Write<'_, K>, content: u64, now: Instant) {
        if self.latest.len() >= self.forget_at {
            self.latest.retain(|_, latest| latest.counts_at(now));
            self.forget_at = self.latest.len().saturating_mul(2).max(64);
            self.latest.shrink_to(self.forget_at);
        }
        if write.2 == "delete" {
            // Creating the object again repeats nothing that another client has undone.
            for verb in ["create", "patch"] {
                self.latest.remove(&self.hasher.hash_one((write.0, write.1, verb)));
            }
        }
        let first = LatestWrite { content, at: now, repetitions: 0, in_a_row: 0 };
        let latest = self.latest.entry(self.hasher.hash_one(write)).or_insert(first);
        let is_soon = latest.at < now && latest.counts_at(now);
        let is_repeated = is_soon && latest.content == content;
        let repetitions = if is_repeated { latest.repetitions + 1 } else { 0 };
        let in_a_row = if is_soon { latest.in_a_row + 1 } else { 0 };
        *latest = LatestWrite { content, at: now, repetitions, in_a_row };
    }

    /// How long a write must wait. The end of a grant waits for [`MIN`] at most.
    pub(crate) fn wait<K: Hash>(
        &self,
        write: Write<'_, K>,
        content: u64,
        revokes: bool,
        now: Instant,
    ) -> Option<Duration> {
        let latest = self.latest.get(&self.hasher.hash_one(write))?;
        if !latest.counts_at(now) {
            return None;
        }
        let delay = match latest.content == content {
            true if revokes => latest.delay().min(MIN),
            true => latest.delay(),
            false if latest.in_a_row >= BURST && !revokes => MIN,
            false => Duration::ZERO,
        };
        (latest.at + delay).checked_duration_since(now).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Write<'_, &str> = (&"key", "things", "patch");

    /// The delays before each of 20 writes that are undone at once.
    fn delays(revokes: bool) -> Vec<Duration> {
        let (mut writes, mut now) = (RepeatedWrites::default(), Instant::now());
        (0..20)
            .map(|_| {
                now += Duration::from_millis(1);
                let wait = writes.wait(KEY, 1, revokes, now).unwrap_or_default();
                now += wait;
                writes.wrote(KEY, 1, now);
                wait
            })
            .collect()
    }

    #[test]
    fn a_write_that_is_undone_again_and_again_is_sent_ever_more_rarely() {
        let waits = delays(false);
        assert!(waits[..4].iter().all(Duration::is_zero), "{waits:?}");
        assert!(waits[4..12].windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
        assert!(waits[12..].iter().all(|wait| MAX.saturating_sub(*wait) < MIN), "{waits:?}");
    }

    #[test]
    fn the_end_of_a_grant_waits_for_two_seconds_at_most() {
        assert!(delays(true).iter().all(|wait| *wait <= MIN));
    }

    #[test]
    fn many_writes_in_a_row_are_two_seconds_apart_whatever_they_contain_and_the_end_of_a_grant_waits_for_none()
     {
        let (mut writes, mut now) = (RepeatedWrites::default(), Instant::now());
        for content in 0..20 {
            now += Duration::from_millis(1);
            let wait = writes.wait(KEY, content, false, now).unwrap_or_default();
            assert_eq!(wait.is_zero(), content <= 10, "{content}: {wait:?}");
            assert_eq!(writes.wait(KEY, content, true, now), None);
            now += wait;
            writes.wrote(KEY, content, now);
        }
    }

    #[test]
    fn what_this_process_has_deleted_is_created_again_at_once() {
        let (mut writes, begin) = (RepeatedWrites::default(), Instant::now());
        let of = |verb| (&"key", "things", verb);
        for second in 0..8 {
            let now = begin + Duration::from_secs(second);
            assert_eq!(writes.wait(of("create"), 1, false, now), None);
            writes.wrote(of("create"), 1, now);
            writes.wrote(of("delete"), second, now);
        }
    }

    #[test]
    fn another_write_of_the_key_and_one_after_a_rest_do_not_wait_and_take_no_memory() {
        let (mut writes, begin) = (RepeatedWrites::default(), Instant::now());
        for second in 0..4 {
            writes.wrote(KEY, 1, begin + Duration::from_secs(second));
        }
        let now = begin + Duration::from_secs(3);
        assert_eq!(writes.wait(KEY, 1, false, now), Some(MIN));
        assert_eq!(writes.wait(KEY, 2, false, now), None, "its source has changed");
        assert_eq!(writes.wait((&"key", "things", "delete"), 1, false, now), None);
        let later = now + MIN + MEMORY + Duration::from_secs(1);
        assert_eq!(writes.wait(KEY, 1, false, later), None);
        writes.forget_at = 0;
        writes.wrote((&"another", "things", "patch"), 1, later);
        assert_eq!(writes.latest.len(), 1);
    }
}
