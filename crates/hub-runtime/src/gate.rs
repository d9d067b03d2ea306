//! One gate for every write of the process: it closes while the API server is failing.
//!
//! Each write reports its result here. A 429, a 503 or a failed connection closes the gate; so do timeouts and internal
//! errors, once requests in two namespaces failed that way without a success in between, because in one namespace a
//! webhook may be the cause. While the gate is closed, two writes a second pass as probes, and none before the
//! `Retry-After` of the API server; every other key keeps its position in its queue. The first response that is not one
//! of these failures opens the gate.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::error::{Category, WriteError};
use crate::metrics::Metrics;

/// Interval between two probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time without a probe, regardless of `Retry-After`: the end of a grant waits for it, too.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);
/// How long the API server must have recovered before another outage is logged: under load it has many short ones.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The gate. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct Gate {
    state: Arc<Mutex<GateState>>,
    changed: Arc<Notify>,
    metrics: Metrics,
}

#[derive(Default)]
struct GateState {
    outage: Option<Outage>,
    last_success: Option<Instant>,
    /// The namespace of a failure that may be limited to it, since the last success.
    suspect: Option<String>,
    last_logged_end: Option<Instant>,
}

struct Outage {
    since: Instant,
    next_probe: Instant,
    /// No probe before this moment: the end of the API server's `Retry-After`, and of the first interval.
    not_before: Instant,
    /// Passes that workers hold, and how many of them have not been used for a write.
    held: usize,
    unused: usize,
    is_logged: bool,
}

/// Permission for a worker to take a key. While the gate is closed, one write of the worker passes as a probe.
pub struct Pass {
    /// The closed gate, and since when it is closed.
    probe: Option<(Gate, Instant)>,
}

impl Gate {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { state: Arc::default(), changed: Arc::default(), metrics }
    }

    /// Whether the gate is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().outage.is_some()
    }

    /// Waits until a worker may take a key: immediately while the gate is open, else until the next probe is due.
    pub async fn admit(&self) -> Pass {
        loop {
            let changed = self.changed.notified();
            let next_probe = {
                let mut state = self.state.lock();
                let Some(outage) = &mut state.outage else { return Pass { probe: None } };
                let now = Instant::now();
                if outage.next_probe <= now {
                    outage.next_probe = now + PROBE_INTERVAL;
                    outage.held += 1;
                    outage.unused += 1;
                    return Pass { probe: Some((self.clone(), outage.since)) };
                }
                outage.next_probe
            };
            let _ = timeout_at(next_probe, changed).await;
        }
    }

    /// Waits until the gate is open.
    pub async fn opened(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// Whether a write may be sent now. While the gate is closed, this uses up a pass.
    pub(crate) fn lets_through(&self) -> bool {
        let mut state = self.state.lock();
        let Some(outage) = &mut state.outage else { return true };
        let may_pass = outage.unused > 0;
        outage.unused = outage.unused.saturating_sub(1);
        may_pass
    }

    /// Records the result of a write sent at `sent`.
    pub(crate) fn observe(&self, sent: Instant, namespace: Option<&str>, result: Result<(), &WriteError>) {
        let Err(error) = result else { return self.succeeded() };
        let mut state = self.state.lock();
        let is_outdated = state.last_success.is_some_and(|success| success >= sent);
        let closes = match error.category {
            Category::Throttled => true,
            Category::Unavailable => !is_outdated,
            Category::Timeout | Category::Internal => {
                let namespace = namespace.unwrap_or_default();
                let differs = state.suspect.as_deref().is_some_and(|suspect| suspect != namespace);
                if !is_outdated && !differs {
                    state.suspect = Some(namespace.to_owned());
                }
                !is_outdated && differs
            }
            _ => {
                drop(state);
                return self.succeeded();
            }
        };
        if state.outage.is_some() || closes {
            self.close(&mut state, error);
        }
    }

    fn close(&self, state: &mut GateState, error: &WriteError) {
        let now = Instant::now();
        let wait = error.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        if let Some(outage) = &mut state.outage {
            outage.not_before = outage.not_before.max(now + wait);
            outage.next_probe = outage.next_probe.max(outage.not_before);
            return;
        }
        let is_logged = state.last_logged_end.is_none_or(|end| now - end >= LOG_INTERVAL);
        if is_logged {
            warn!("the API server is failing, sending only probes: {error}");
        }
        let next_probe = now + wait.max(PROBE_INTERVAL);
        let outage = Outage { since: now, next_probe, not_before: next_probe, held: 0, unused: 0, is_logged };
        state.outage = Some(outage);
        self.metrics.outage(true);
    }

    fn succeeded(&self) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.last_success = Some(now);
        state.suspect = None;
        let Some(outage) = state.outage.take() else { return };
        if outage.is_logged {
            info!(lasted = ?(now - outage.since), "the API server accepts writes again");
            state.last_logged_end = Some(now);
        }
        self.metrics.outage(false);
        self.changed.notify_waiters();
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some((gate, since)) = &self.probe else { return };
        let mut state = gate.state.lock();
        // If the gate was open in between, the passes of the previous outage no longer count.
        let Some(outage) = state.outage.as_mut().filter(|outage| outage.since == *since) else { return };
        outage.held = outage.held.saturating_sub(1);
        if outage.unused > outage.held {
            // There was nothing to write: the next worker may probe immediately.
            outage.unused = outage.held;
            outage.next_probe = outage.not_before.max(Instant::now());
            gate.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        Gate::new(Metrics::new("0"))
    }

    fn fail(gate: &Gate, namespace: &str, category: Category, retry_after: Option<u64>) {
        let mut error = WriteError::new("create", "things", "name", category, "text");
        error.retry_after = retry_after.map(Duration::from_secs);
        gate.observe(Instant::now(), Some(namespace), Err(&error));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_gate_lets_two_probes_a_second_through() {
        let gate = gate();
        fail(&gate, "a", Category::Unavailable, None);
        assert!(!gate.lets_through());
        let begin = Instant::now();
        for _ in 0..10 {
            let _pass = gate.admit().await;
            assert!(gate.lets_through());
            assert!(!gate.lets_through(), "one write for one pass");
            fail(&gate, "a", Category::Unavailable, None);
        }
        assert!(begin.elapsed() >= PROBE_INTERVAL * 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_was_not_used_is_the_next_workers() {
        let gate = gate();
        fail(&gate, "a", Category::Unavailable, None);
        drop(gate.admit().await);
        let begin = Instant::now();
        let _pass = gate.admit().await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert!(gate.lets_through());
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_had_nothing_to_write_takes_no_pass_from_another() {
        let gate = gate();
        fail(&gate, "a", Category::Unavailable, None);
        let (unused, pass) = (gate.admit().await, gate.admit().await);
        drop(unused);
        assert!(gate.lets_through());
        drop(pass);
        assert!(!gate.lets_through());
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_honoured_and_the_first_success_opens() {
        let gate = gate();
        fail(&gate, "a", Category::Throttled, Some(7));
        let begin = Instant::now();
        let _pass = gate.admit().await;
        assert!(begin.elapsed() >= Duration::from_secs(7));
        assert!(gate.metrics.text().contains("hub_addons_api_server_outage 1"));
        gate.observe(Instant::now(), Some("a"), Ok(()));
        assert!(!gate.is_closed());
        assert!(gate.metrics.text().contains("hub_addons_api_server_outage 0"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_retry_after_counts() {
        let gate = gate();
        fail(&gate, "a", Category::Throttled, Some(2));
        fail(&gate, "a", Category::Throttled, Some(7));
        fail(&gate, "a", Category::Throttled, Some(3));
        let begin = Instant::now();
        let _pass = gate.admit().await;
        assert_eq!(begin.elapsed(), Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_soon_after_another_is_not_logged() {
        let gate = gate();
        for (wait, is_logged) in [(0, true), (59, false), (1, true)] {
            tokio::time::advance(Duration::from_secs(wait)).await;
            fail(&gate, "a", Category::Throttled, None);
            let outage = gate.state.lock().outage.as_ref().map(|outage| outage.is_logged);
            assert_eq!(outage, Some(is_logged), "after {wait} seconds");
            gate.observe(Instant::now(), None, Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_namespace_alone_fails_with_does_not_close_the_gate() {
        for category in [Category::Timeout, Category::Internal] {
            let gate = gate();
            fail(&gate, "a", category, None);
            fail(&gate, "a", category, None);
            assert!(!gate.is_closed());
            fail(&gate, "b", category, None);
            assert!(gate.is_closed(), "{category:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_of_a_write_that_is_older_than_a_success_is_not_news() {
        let gate = gate();
        let sent = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        gate.observe(sent, None, Ok(()));
        let error = WriteError::new("create", "things", "name", Category::Unavailable, "text");
        gate.observe(sent, None, Err(&error));
        assert!(!gate.is_closed());
        // Nor does it count as the failure of a first namespace.
        let error = WriteError::new("create", "things", "name", Category::Timeout, "text");
        gate.observe(sent, Some("a"), Err(&error));
        tokio::time::advance(Duration::from_secs(1)).await;
        fail(&gate, "b", Category::Timeout, None);
        assert!(!gate.is_closed());
    }
}
