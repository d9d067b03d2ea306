//! The optional limit of writes per second of this process, for a hub without effective API Priority and Fairness,
//! which is the only limit otherwise.
//!
//! Work that ends a grant is not delayed, only counted. All other work waits in its queue, not in the client as with
//! client-go's QPS, so that the most urgent key is written next.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The burst after a time without writes: the writes of one second.
const BURST: Duration = Duration::from_secs(1);

/// Longest delay of other work by work that ends grants: the revocation of thousands of grants must not delay a rotated
/// token until the old one expires.
const DEBT: Duration = Duration::from_secs(10);

/// The limit. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct WriteLimit(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    /// The time between two writes at the limit.
    interval: Duration,
    /// When all writes counted so far would be done at this interval.
    due: Mutex<Option<Instant>>,
}

impl WriteLimit {
    /// At most this many writes per second; `None` means no limit.
    #[must_use]
    pub fn per_second(writes: Option<NonZeroU32>) -> Self {
        let shared = |writes: NonZeroU32| Shared {
            interval: Duration::from_secs(1) / writes.get(),
            due: Mutex::default(),
        };
        Self(writes.map(|writes| Arc::new(shared(writes))))
    }

    /// Counts a write that is sent.
    pub(crate) fn count(&self) {
        let Some(shared) = &self.0 else { return };
        let (mut due, now) = (shared.due.lock(), Instant::now());
        let next = due.map_or(now, |due| due.max(now)) + shared.interval;
        *due = Some(next.min(now + BURST + DEBT));
    }

    /// Until when only revocations may run, if that is later than `now`.
    pub(crate) fn reached_until(&self, now: Instant) -> Option<Instant> {
        let due = (*self.0.as_ref()?.due.lock())?;
        due.checked_sub(BURST).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_of_writes_is_free_and_the_next_ones_take_their_time() {
        let limit = WriteLimit::per_second(NonZeroU32::new(10));
        for _ in 0..10 {
            assert_eq!(limit.reached_until(Instant::now()), None);
            limit.count();
        }
        let begin = Instant::now();
        for _ in 0..25 {
            limit.count();
            if let Some(until) = limit.reached_until(Instant::now()) {
                tokio::time::sleep_until(until).await;
            }
        }
        assert_eq!(begin.elapsed(), Duration::from_millis(2500));
    }

    #[tokio::test(start_paused = true)]
    async fn thousands_of_writes_that_end_grants_delay_the_others_for_seconds() {
        let limit = WriteLimit::per_second(NonZeroU32::new(5));
        (0..6000).for_each(|_| limit.count());
        let now = Instant::now();
        assert_eq!(limit.reached_until(now), Some(now + DEBT));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_number_nothing_waits() {
        let limit = WriteLimit::default();
        (0..1000).for_each(|_| limit.count());
        assert_eq!(limit.reached_until(Instant::now()), None);
    }
}
