//! One breaker for every write of the process: it opens while the API server is failing.
//!
//! Each write reports its result here. A 429, a 501, 502 or 503, or a failed connection opens the breaker. Timeouts
//! (also a 504) and internal errors (500) neither open nor close it: a webhook may be the cause, and it may concern
//! only one namespace, resource and verb. While the breaker is open, two writes a second pass as probes, and none
//! before the `Retry-After` of the API server has passed; every other key keeps its position in its queue. The first
//! response that is none of these failures closes the breaker.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::observe::metrics::Metrics;
use crate::write::error::{Category, WriteError};

/// Interval between two probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Upper bound for `Retry-After`: revocations wait for it, too.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);
/// Shortest time from the end of a logged outage to the next that is logged: under load there are many short ones.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The breaker. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct CircuitBreaker {
    state: Arc<Mutex<BreakerState>>,
    changed: Arc<Notify>,
    metrics: Metrics,
}

#[derive(Default)]
struct BreakerState {
    outage: Option<Outage>,
    last_success: Option<Instant>,
    last_logged_end: Option<Instant>,
}

struct Outage {
    since: Instant,
    /// When the next write passes.
    next_probe: Instant,
    is_logged: bool,
}

impl CircuitBreaker {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { state: Arc::default(), changed: Arc::default(), metrics }
    }

    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state.lock().outage.is_some()
    }

    /// Waits until a worker may take a key: immediately while the breaker is closed, else until the next probe is due.
    pub async fn probe_is_due(&self) {
        loop {
            let changed = self.changed.notified();
            let next_probe = self.state.lock().outage.as_ref().map(|outage| outage.next_probe);
            let Some(next_probe) = next_probe.filter(|next| *next > Instant::now()) else { return };
            let _ = timeout_at(next_probe, changed).await;
        }
    }

    /// Waits until the breaker is closed.
    pub async fn closed(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.is_open() {
                return;
            }
            changed.await;
        }
    }

    /// Whether a write may be sent now. While the breaker is open, it is a probe, and the next one is due later.
    pub(crate) fn lets_through(&self) -> bool {
        let mut state = self.state.lock();
        let Some(outage) = &mut state.outage else { return true };
        let now = Instant::now();
        let is_due = outage.next_probe <= now;
        if is_due {
            outage.next_probe = now + PROBE_INTERVAL;
        }
        is_due
    }

    /// Records the result of a write sent at `sent`.
    pub(crate) fn observe(&self, sent: Instant, result: Result<(), &WriteError>) {
        let Err(error) = result else { return self.succeeded() };
        let mut state = self.state.lock();
        let is_outdated = state.last_success.is_some_and(|success| success >= sent);
        let opens = match error.category {
            Category::Throttled => true,
            Category::Unavailable => !is_outdated,
            // It may concern only one namespace, resource and verb.
            Category::Timeout | Category::Internal => return,
            _ => {
                drop(state);
                return self.succeeded();
            }
        };
        if state.outage.is_some() || opens {
            self.open(&mut state, error);
        }
    }

    fn open(&self, state: &mut BreakerState, error: &WriteError) {
        let now = Instant::now();
        let wait = error.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        if let Some(outage) = &mut state.outage {
            outage.next_probe = outage.next_probe.max(now + wait);
            return;
        }
        let is_logged = state.last_logged_end.is_none_or(|end| now - end >= LOG_INTERVAL);
        if is_logged {
            warn!("the API server is failing, sending only probes: {error}");
        }
        state.outage =
            Some(Outage { since: now, next_probe: now + wait.max(PROBE_INTERVAL), is_logged });
        self.metrics.api_server_outage.set(1);
    }

    fn succeeded(&self) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.last_success = Some(now);
        let Some(outage) = state.outage.take() else { return };
        if outage.is_logged {
            info!(lasted = ?(now - outage.since), "the API server accepts writes again");
            state.last_logged_end = Some(now);
        }
        self.metrics.api_server_outage.set(0);
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> CircuitBreaker {
        CircuitBreaker::new(Metrics::new("0"))
    }

    fn fail(breaker: &CircuitBreaker, category: Category, retry_after: Option<u64>) {
        let mut error = WriteError::new("create", "things", "name", category, "text");
        error.retry_after = retry_after.map(Duration::from_secs);
        breaker.observe(Instant::now(), Err(&error));
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_lets_two_probes_a_second_through() {
        let breaker = breaker();
        fail(&breaker, Category::Unavailable, None);
        assert!(!breaker.lets_through());
        let begin = Instant::now();
        for _ in 0..10 {
            breaker.probe_is_due().await;
            assert!(breaker.lets_through());
            assert!(!breaker.lets_through(), "one write in an interval");
            fail(&breaker, Category::Unavailable, None);
        }
        assert!(begin.elapsed() >= PROBE_INTERVAL * 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_has_nothing_to_write_delays_no_other() {
        let breaker = breaker();
        fail(&breaker, Category::Unavailable, None);
        breaker.probe_is_due().await;
        let begin = Instant::now();
        breaker.probe_is_due().await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert!(breaker.lets_through());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_retry_after_is_honoured_and_the_first_success_closes_it() {
        let breaker = breaker();
        for seconds in [2, 7, 3] {
            fail(&breaker, Category::Throttled, Some(seconds));
        }
        let begin = Instant::now();
        breaker.probe_is_due().await;
        assert_eq!(begin.elapsed(), Duration::from_secs(7));
        assert!(breaker.metrics.text().contains("hub_addons_api_server_outage 1"));
        breaker.observe(Instant::now(), Ok(()));
        assert!(!breaker.is_open());
        assert!(breaker.metrics.text().contains("hub_addons_api_server_outage 0"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_soon_after_another_is_not_logged() {
        let breaker = breaker();
        for (wait, is_logged) in [(0, true), (59, false), (1, true)] {
            tokio::time::advance(Duration::from_secs(wait)).await;
            fail(&breaker, Category::Throttled, None);
            let outage = breaker.state.lock().outage.as_ref().map(|outage| outage.is_logged);
            assert_eq!(outage, Some(is_logged), "after {wait} seconds");
            breaker.observe(Instant::now(), Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_concern_some_namespaces_alone_neither_opens_nor_closes_the_breaker() {
        for category in [Category::Timeout, Category::Internal] {
            let breaker = breaker();
            (0..10).for_each(|_| fail(&breaker, category, None));
            assert!(!breaker.is_open(), "{category:?}");
            fail(&breaker, Category::Unavailable, None);
            fail(&breaker, category, None);
            assert!(breaker.is_open(), "{category:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_of_a_write_that_is_older_than_a_success_is_not_news() {
        let breaker = breaker();
        let sent = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        breaker.observe(sent, Ok(()));
        let error = WriteError::new("create", "things", "name", Category::Unavailable, "text");
        breaker.observe(sent, Err(&error));
        assert!(!breaker.is_open());
    }
}
