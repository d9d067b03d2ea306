//! The keyed work queue: each key at most once, and never with two workers.
//!
//! kube's own `Controller` reconciles only objects in its root store, while a projector creates objects that do not
//! exist yet; and its concurrency is unlimited by default. This queue takes any key, limits the number of workers, and
//! lets a failing key back off without delaying the others. Work that ends a grant goes first, and no namespace
//! occupies all workers ([`crate::flow::workers`]).

mod ready;
pub mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use backon::ExponentialBackoff;
use hub_api::names::Namespace;
use hub_core::priority::Priority;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::flow::backoff;
use crate::flow::workers::{Busy, Occupation};
use crate::queue::ready::Ready;

/// First delay after a failure.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest delay between two attempts; jitter can double it.
const RETRY_MAX: Duration = Duration::from_secs(15);
/// First delay after a refusal: a permission or policy that has just changed takes effect a moment later.
const REFUSED_MIN: Duration = Duration::from_secs(2);
/// Longest delay between two refused attempts; jitter can double it.
const REFUSED_MAX: Duration = Duration::from_mins(5);

/// The result of reconciling a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The key is up to date.
    Done,
    /// The attempt failed: retry with backoff.
    Retry,
    /// The attempt had no effect, and may have none until a person changes something: retry with a longer backoff.
    Refused,
    /// The attempt failed: retry with backoff, after this delay at the earliest.
    RetryNotBefore(Duration),
    /// The write fails like others of its failure group, which decides when it is retried.
    Parked,
    /// Nothing was sent: the key is queued again, behind the others of its priority and namespace.
    Held,
    /// Retry after this delay, unless something changes.
    RetryAfter(Duration),
}

/// A queue of keys. All operations are short and under one lock; waiting is outside it.
pub struct Queue<K> {
    state: Mutex<QueueState<K>>,
    wake: Notify,
    /// A key that a worker holds is queued again.
    again: Notify,
}

struct QueueState<K> {
    namespace_of: fn(&K) -> Namespace,
    workers: usize,
    ready: Ready<K>,
    running: BTreeMap<K, Running>,
    /// The lane from which the next key is taken first.
    turn: usize,
    waiting: BTreeSet<(Instant, K)>,
    /// The keys that wait, each with its due time (`None` for a parked key) and its priority.
    due: BTreeMap<K, (Option<Instant>, Priority)>,
    failing: HashMap<K, ExponentialBackoff>,
    refused: HashMap<K, ExponentialBackoff>,
    closed: bool,
}

/// A key that a worker holds.
struct Running {
    busy: Busy,
    /// The priority with which it was added again, if it was.
    again: Option<Priority>,
}

impl<K: Clone + Ord + Hash> Queue<K> {
    /// A queue for this many workers, which the namespaces of objects share; the namespace is empty if cluster-scoped.
    #[must_use]
    pub fn new(workers: usize, namespace_of: fn(&K) -> Namespace) -> Self {
        let state = QueueState {
            namespace_of,
            workers,
            ready: Ready::default(),
            running: BTreeMap::new(),
            turn: 0,
            waiting: BTreeSet::new(),
            due: BTreeMap::new(),
            failing: HashMap::new(),
            refused: HashMap::new(),
            closed: false,
        };
        Self { state: Mutex::new(state), wake: Notify::new(), again: Notify::new() }
    }

    pub fn set_workers(&self, workers: usize) {
        self.state.lock().workers = workers;
    }

    /// Queues a key. A key that waits for a retry is queued immediately; one that a worker holds is queued again when
    /// the worker has finished it; one that is already queued keeps its position unless the new priority is higher.
    pub fn add(&self, key: K, priority: Priority) {
        if self.state.lock().add(key, priority) {
            self.wake.notify_one();
        } else {
            self.again.notify_waiters();
        }
    }

    /// Queues a key after this delay, unless it is queued, or waits for an earlier time. One that a worker holds is queued
    /// again when the worker has finished it.
    pub fn add_within(&self, key: K, priority: Priority, delay: Duration) {
        let mut state = self.state.lock();
        let due = Instant::now() + delay;
        if state.running.contains_key(&key) {
            state.add(key, priority);
            self.again.notify_waiters();
        } else if !state.ready.places.contains_key(&key) {
            let before = state.due.get(&key).copied();
            let at = before.and_then(|(at, _)| at);
            if at.is_some_and(|at| at <= due) {
                return;
            }
            if let Some(at) = at {
                state.waiting.remove(&(at, key.clone()));
            }
            state.wait(key, due, before.map_or(priority, |(_, before)| before.min(priority)));
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Waits until a key that a worker holds is queued again.
    pub async fn queued_again(&self, key: &K) {
        loop {
            let again = self.again.notified();
            if self.state.lock().running.get(key).is_some_and(|running| running.again.is_some()) {
                return;
            }
            again.await;
        }
    }

    /// Waits until a worker can take a key; returns `false` once the queue is closed.
    pub async fn ready(&self) -> bool {
        loop {
            let notified = self.wake.notified();
            let due = {
                let mut state = self.state.lock();
                if state.closed {
                    // One notification may have to reach every worker: pass it on.
                    self.wake.notify_one();
                    return false;
                }
                let now = Instant::now();
                state.ripen(now);
                if state.peek(now).is_some() {
                    return true;
                }
                let retry = state.waiting.first().map(|(due, _)| *due);
                let is_ready = !state.ready.places.is_empty();
                let free = state.occupation(now).changes_at().filter(|_| is_ready);
                retry.into_iter().chain(free).min()
            };
            match due {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, notified).await;
                }
                None => notified.await,
            }
        }
    }

    /// Records that a request for a key begins.
    pub fn request(&self, key: &K) {
        if let Some(Running { busy, .. }) = self.state.lock().running.get_mut(key) {
            busy.since = Instant::now();
        }
    }

    /// The worker that holds a key plans it again now, which covers what has queued it since: it keeps the most urgent
    /// priority, and is not queued again for that.
    pub fn replan(&self, key: &K) {
        if let Some(Running { busy, again }) = self.state.lock().running.get_mut(key) {
            busy.priority = again.take().map_or(busy.priority, |again| again.min(busy.priority));
        }
    }

    /// The priority of a key that a worker holds, or with which it has been added again since.
    pub fn priority(&self, key: &K) -> Option<Priority> {
        let state = self.state.lock();
        let Running { busy, again } = state.running.get(key)?;
        Some(again.map_or(busy.priority, |again| again.min(busy.priority)))
    }

    /// The next key that a worker can take. The caller holds the key until it calls [`Self::finish`]. Probes take the
    /// priorities in turn, so that keys that always fail do not keep those of other priorities waiting.
    pub fn take(&self, is_probe: bool) -> Option<K> {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.turn = if is_probe { state.turn + 1 } else { 0 };
        let key = if state.closed { None } else { state.take(now) };
        if !state.ready.places.is_empty() {
            self.wake.notify_one();
        }
        key
    }

    /// Returns a key with its result.
    pub fn finish(&self, key: K, outcome: Outcome) {
        let (mut state, now) = (self.state.lock(), Instant::now());
        if outcome == Outcome::Done {
            state.failing.remove(&key);
            state.refused.remove(&key);
        }
        let Some(Running { busy, again }) = state.running.remove(&key) else { return };
        if outcome == Outcome::Held {
            let priority = again.map_or(busy.priority, |again| again.min(busy.priority));
            state.add(key, priority);
        } else if let Some(priority) = again {
            // A key that has not succeeded keeps its priority.
            let priority =
                if outcome == Outcome::Done { priority } else { priority.min(busy.priority) };
            state.add(key, priority);
        } else {
            let delay = match outcome {
                Outcome::Done | Outcome::Held => None,
                Outcome::Parked => {
                    state.due.insert(key, (None, busy.priority));
                    return self.wake.notify_one();
                }
                Outcome::Retry => Some(wait(&mut state.failing, &key, RETRY_MIN, RETRY_MAX)),
                Outcome::RetryNotBefore(least) => {
                    Some(wait(&mut state.failing, &key, RETRY_MIN, RETRY_MAX).max(least))
                }
                Outcome::Refused => Some(wait(&mut state.refused, &key, REFUSED_MIN, REFUSED_MAX)),
                Outcome::RetryAfter(delay) => Some(delay),
            };
            if let Some(delay) = delay {
                state.wait(key, now + delay, busy.priority);
            }
        }
        self.wake.notify_one();
    }

    /// Closes the queue: [`Self::take`] returns `None` from now on, even if keys are left.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }

    /// Whether a key is queued, waits for a retry, or is with a worker.
    pub fn holds(&self, key: &K) -> bool {
        let state = self.state.lock();
        state.ready.places.contains_key(key)
            || state.due.contains_key(key)
            || state.running.contains_key(key)
    }

    /// The keys from this one on, while they satisfy a condition, that are queued, wait for a retry, or are with a worker.
    pub fn held_from(&self, from: &K, is_wanted: impl Fn(&K) -> bool) -> Vec<K> {
        let state = self.state.lock();
        let ready =
            state.ready.places.range(from..).map(|(key, _)| key).take_while(|key| is_wanted(key));
        let due = state.due.range(from..).map(|(key, _)| key).take_while(|key| is_wanted(key));
        let running =
            state.running.range(from..).map(|(key, _)| key).take_while(|key| is_wanted(key));
        ready.chain(due).chain(running).cloned().collect()
    }

    /// The number of keys that are queued, wait for a retry, or are with a worker.
    pub fn depth(&self) -> usize {
        let state = self.state.lock();
        state.ready.places.len() + state.due.len() + state.running.len()
    }
}

/// The next delay of a key.
fn wait<K: Clone + Eq + Hash>(
    keys: &mut HashMap<K, ExponentialBackoff>,
    key: &K,
    min: Duration,
    max: Duration,
) -> Duration {
    keys.entry(key.clone()).or_insert_with(|| backoff::between(min, max)).next().unwrap_or(max)
}

impl<K: Clone + Ord + Hash> QueueState<K> {
    /// Returns whether there is new work for a worker.
    fn add(&mut self, key: K, mut priority: Priority) -> bool {
        if let Some(running) = self.running.get_mut(&key) {
            running.again = Some(running.again.map_or(priority, |again| again.min(priority)));
            return false;
        }
        if let Some((due, before)) = self.due.remove(&key) {
            if let Some(due) = due {
                self.waiting.remove(&(due, key.clone()));
            }
            priority = priority.min(before);
        }
        let namespace = (self.namespace_of)(&key);
        self.ready.add(key, &namespace, priority)
    }

    fn wait(&mut self, key: K, due: Instant, priority: Priority) {
        self.due.insert(key.clone(), (Some(due), priority));
        self.waiting.insert((due, key));
    }

    fn ripen(&mut self, now: Instant) {
        while self.waiting.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.waiting.pop_first()
                && let Some((_, priority)) = self.due.remove(&key)
            {
                self.add(key, priority);
            }
        }
    }

    fn peek(&self, now: Instant) -> Option<(K, Priority)> {
        if self.ready.places.is_empty() {
            return None;
        }
        let occupation = self.occupation(now);
        let next = self.ready.peek(self.turn, |priority| occupation.admits(priority));
        next.map(|(key, priority)| (key.clone(), priority))
    }

    fn occupation(&self, now: Instant) -> Occupation<'_> {
        Occupation::new(self.workers, self.running.values().map(|running| &running.busy), now)
    }

    fn take(&mut self, now: Instant) -> Option<K> {
        let (key, priority) = self.peek(now)?;
        let namespace = (self.namespace_of)(&key);
        self.ready.remove(&key, &namespace);
        let busy = Busy { namespace, priority, since: now };
        self.running.insert(key.clone(), Running { busy, again: None });
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::flow::failure_groups::SLOW;

    fn queue(workers: usize) -> Queue<&'static str> {
        Queue::new(workers, |key| (*key).into())
    }

    impl<K: Clone + Ord + Hash> Queue<K> {
        async fn next(&self) -> Option<K> {
            while self.ready().await {
                if let Some(key) = self.take(false) {
                    return Some(key);
                }
            }
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_twice_is_handed_out_once() {
        let queue = queue(8);
        queue.add("a", Priority::Update);
        queue.add("b", Priority::Update);
        queue.add("a", Priority::Update);
        assert_eq!((queue.next().await, queue.next().await), (Some("a"), Some("b")));
        assert_eq!(queue.depth(), 2, "no more than those with a worker");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_a_worker_has_it_comes_again_afterwards() {
        let queue = queue(8);
        queue.add("a", Priority::Update);
        let key = queue.next().await.unwrap();
        queue.add("a", Priority::Update);
        assert_eq!(queue.depth(), 1, "no second worker gets it");
        queue.finish(key, Outcome::Done);
        assert_eq!(queue.next().await, Some("a"));
        queue.add("a", Priority::End);
        queue.replan(&"a");
        assert_eq!(queue.priority(&"a"), Some(Priority::End));
        queue.finish("a", Outcome::Done);
        assert_eq!(queue.depth(), 0, "the worker has planned it again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_key_waits_longer_each_time_up_to_a_bound_and_success_ends_the_waiting() {
        let queue = queue(8);
        let mut waits = Vec::new();
        let retries = [Outcome::Retry; 20];
        for outcome in retries.into_iter().chain([Outcome::Done, Outcome::Retry, Outcome::Done]) {
            if !queue.holds(&"a") {
                queue.add("a", Priority::Update);
            }
            let begin = Instant::now();
            let key = queue.next().await.unwrap();
            waits.push(begin.elapsed());
            queue.finish(key, outcome);
        }
        assert!(waits[1] >= RETRY_MIN);
        assert!(waits[5] > waits[1]);
        assert!(waits.iter().all(|wait| *wait <= RETRY_MAX * 2), "{waits:?}");
        assert!((RETRY_MIN..=RETRY_MIN * 2).contains(&waits[22]), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_does_not_wait_for_the_next_attempt() {
        let queue = queue(8);
        queue.add("a", Priority::Update);
        let key = queue.next().await.unwrap();
        queue.finish(key, Outcome::RetryAfter(Duration::from_hours(1)));
        let begin = Instant::now();
        queue.add("a", Priority::Update);
        assert_eq!(queue.next().await, Some("a"));
        assert_eq!(begin.elapsed(), Duration::ZERO);
        queue.finish("a", Outcome::Done);
        assert_eq!(queue.depth(), 0, "the planned retry is cancelled");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_may_wait_waits_no_longer_than_it_was_first_to() {
        let queue = queue(8);
        let secs = Duration::from_secs;
        queue.add("refused", Priority::End);
        let key = queue.next().await.unwrap();
        queue.finish(key, Outcome::RetryAfter(secs(60)));
        queue.add_within("refused", Priority::End, secs(2));
        queue.add_within("new", Priority::Start, secs(1));
        tokio::time::advance(secs(1)).await;
        queue.add_within("new", Priority::Start, secs(1));
        queue.add_within("refused", Priority::End, secs(2));
        let begin = Instant::now();
        assert_eq!((queue.next().await, begin.elapsed()), (Some("new"), secs(0)));
        assert_eq!((queue.next().await, begin.elapsed()), (Some("refused"), secs(1)));
        queue.add_within("new", Priority::Start, secs(1));
        queue.finish("new", Outcome::Done);
        assert_eq!(queue.next().await, Some("new"), "it was with a worker");
        assert_eq!(queue.depth(), 2, "neither waits any longer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_held_until_it_is_done() {
        let queue = queue(8);
        assert!(!queue.holds(&"a"));
        queue.add("a", Priority::Update);
        assert!(queue.holds(&"a"), "ready");
        let key = queue.next().await.unwrap();
        assert!(queue.holds(&"a"), "with a worker");
        queue.finish(key, Outcome::Retry);
        assert!(queue.holds(&"a"), "waiting");
        assert_eq!(queue.depth(), 1);
        let key = queue.next().await.unwrap();
        queue.finish(key, Outcome::Done);
        assert!(!queue.holds(&"a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_keeps_its_priority_until_it_succeeds() {
        for (outcome, next) in
            [(Outcome::Retry, "ends"), (Outcome::Held, "ends"), (Outcome::Done, "starts")]
        {
            let queue = queue(8);
            queue.add("ends", Priority::End);
            let key = queue.next().await.unwrap();
            queue.add("ends", Priority::Update);
            queue.add("starts", Priority::Start);
            queue.finish(key, outcome);
            assert_eq!(queue.next().await, Some(next), "{outcome:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_request_leaves_its_worker_to_another_key() {
        let queue = queue(2);
        queue.add("slow", Priority::Update);
        queue.add("other", Priority::Update);
        assert_eq!(queue.next().await, Some("slow"));
        let begin = Instant::now();
        assert_eq!(queue.next().await, Some("other"));
        assert_eq!(begin.elapsed(), SLOW);
        assert_eq!(queue.depth(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_key_has_no_timer_and_keeps_its_priority() {
        let queue = queue(8);
        queue.add("parked", Priority::End);
        let key = queue.next().await.unwrap();
        queue.finish(key, Outcome::Parked);
        assert!(queue.holds(&"parked"));
        assert_eq!(queue.depth(), 1);
        assert!(tokio::time::timeout(Duration::from_hours(1), queue.ready()).await.is_err());
        queue.add("other", Priority::Start);
        queue.add("parked", Priority::Update);
        assert_eq!(queue.next().await, Some("parked"));
    }

    #[tokio::test(start_paused = true)]
    async fn closing_wakes_every_worker() {
        let queue = Arc::new(queue(8));
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in workers {
            assert_eq!(worker.await.unwrap(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_tried_soon_and_then_seldom_until_it_is_done() {
        let queue = queue(8);
        queue.add("key", Priority::Update);
        let mut waits = Vec::new();
        for outcome in [Outcome::Refused; 12].into_iter().chain([Outcome::Done]) {
            let since = Instant::now();
            let key = queue.next().await.unwrap();
            waits.push(since.elapsed());
            queue.finish(key, outcome);
        }
        // The jitter is at most the delay itself.
        let secs = |range: std::ops::Range<u64>| {
            Duration::from_secs(range.start)..Duration::from_secs(range.end)
        };
        assert!(secs(2..5).contains(&waits[1]), "{waits:?}");
        assert!(secs(300..601).contains(&waits[12]), "{waits:?}");
        queue.add("key", Priority::Update);
        let key = queue.next().await.unwrap();
        queue.finish(key, Outcome::Refused);
        let since = Instant::now();
        queue.next().await;
        assert!(secs(2..5).contains(&since.elapsed()), "the backoff starts again");
    }
}
