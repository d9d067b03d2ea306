//! A controller's work: its queue of keys, and its workers.

use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::Namespace;
use hub_core::priority::Priority;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info_span, warn};

use crate::flow::failure_groups::{FailureGroups, LASTING, Operation, Parked};
use crate::flow::repeated_writes::RepeatedWrites;
use crate::flow::retry_policy::NextStep;
use crate::host::Host;
use crate::host::lease::Claim;
use crate::queue::{Outcome, Queue};
use crate::write::error::{Category, WriteError};
use crate::written::Written;

/// A queue of keys and its workers.
pub struct Work<K> {
    controller: &'static str,
    namespace_of: fn(&K) -> Namespace,
    queue: Queue<K>,
    host: Arc<Host>,
    repeated: Mutex<RepeatedWrites>,
    failure_groups: Mutex<FailureGroups<K>>,
    /// What our own writes have left and the watch has not shown yet. Lock order: last.
    pub written: Written<K>,
    /// The failure groups have changed.
    regrouped: Notify,
    measuring: Mutex<()>,
}

/// What follows for a key whose write failed, and what its controller has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    pub outcome: Outcome,
    /// Whether the object is gone, so that the controller must forget it.
    pub gone: bool,
    /// Whether the write was refused, or has failed for some time, so that the controller must report it.
    pub refused: bool,
}

/// A write that must wait.
#[derive(Debug)]
pub struct Delayed {
    pub outcome: Outcome,
    /// The error that the controller must report, if any: that of others in the failure group.
    pub error: Option<WriteError>,
}

impl<K: Clone + Ord + Hash + Display + Send + Sync + 'static> Work<K> {
    /// An empty queue; `controller` is its name in logs and metrics, and `namespace_of` returns the namespace of an object,
    /// empty if cluster-scoped.
    #[must_use]
    pub fn new(
        host: &Arc<Host>,
        controller: &'static str,
        namespace_of: fn(&K) -> Namespace,
    ) -> Arc<Self> {
        if !matches!(host.writer.claim, Claim::Never) {
            host.metrics.declare_controller(controller);
        }
        let queue = Queue::new(1, namespace_of);
        let host = Arc::clone(host);
        Arc::new(Self {
            controller,
            namespace_of,
            queue,
            host,
            repeated: Mutex::default(),
            failure_groups: Mutex::default(),
            written: Written::default(),
            regrouped: Notify::new(),
            measuring: Mutex::default(),
        })
    }

    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Queues a key as an update.
    pub fn add(&self, key: K) {
        self.add_with(key, Priority::Update);
    }

    pub fn add_with(&self, key: K, priority: Priority) {
        self.queue.add(key, priority);
        self.measure();
    }

    /// Queues a key after this time, unless it is queued earlier.
    pub fn add_within(&self, key: K, priority: Priority, delay: Duration) {
        self.queue.add_within(key, priority, delay);
        self.measure();
    }

    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        for key in keys {
            self.queue.add(key, Priority::Update);
        }
        self.measure();
    }

    /// Whether a key is queued, waits for a retry, or is with a worker.
    pub fn holds(&self, key: &K) -> bool {
        self.queue.holds(key)
    }

    /// The keys from this one on that [`Self::holds`], while they satisfy a condition.
    pub fn held_from(&self, from: &K, is_wanted: impl Fn(&K) -> bool) -> Vec<K> {
        self.queue.held_from(from, is_wanted)
    }

    /// The worker that holds a key plans it again now, which covers what has queued it since.
    pub fn replan(&self, key: &K) {
        self.queue.replan(key);
    }

    /// Waits until a key that a worker holds is queued again.
    pub async fn queued_again(&self, key: &K) {
        self.queue.queued_again(key).await;
    }

    /// Processes the queue until `stop` with this many workers, then returns when all writes in flight have finished.
    pub async fn run<F>(
        self: &Arc<Self>,
        workers: usize,
        stop: CancellationToken,
        reconcile: impl Fn(K) -> F,
    ) where
        F: Future<Output = Outcome> + Send + 'static,
    {
        self.queue.set_workers(workers);
        let stopped = async {
            stop.cancelled().await;
            self.queue.close();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = stopped => {}
            () = self.probe() => {}
            () = self.work(&stop, reconcile) => {}
        }
    }

    async fn work<F>(self: &Arc<Self>, stop: &CancellationToken, reconcile: impl Fn(K) -> F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        loop {
            let key = tokio::select! {
                biased;
                Some(ended) = tasks.join_next() => {
                    if ended.is_err() {
                        return self.host.tasks.miss("a worker");
                    }
                    continue;
                }
                next = self.next(stop) => match next {
                    Some(next) => next,
                    None => break,
                },
            };
            let this = Arc::clone(self);
            let span = info_span!("reconcile", controller = self.controller, %key);
            let reconciling = reconcile(key.clone()).instrument(span);
            // Once each worker has a task, other tasks run, even if no key needs a write.
            tasks.spawn(async move {
                let outcome = reconciling.await;
                let (namespace, is_done) = ((this.namespace_of)(&key), outcome == Outcome::Done);
                this.failure_groups.lock().finished(&key, &namespace, is_done, Instant::now());
                this.regrouped.notify_one();
                this.queue.finish(key, outcome);
                this.measure();
            });
            if self.host.writer.breaker.is_open() {
                // The next probe is due once this one is sent.
                yield_now().await;
            }
        }
        while let Some(ended) = tasks.join_next().await {
            if ended.is_err() {
                return self.host.tasks.miss("a worker");
            }
        }
    }

    /// The next key that a worker can take; `None` when the queue is closed.
    async fn next(&self, stop: &CancellationToken) -> Option<K> {
        let breaker = &self.host.writer.breaker;
        while self.queue.ready().await {
            stop.run_until_cancelled(breaker.probe_is_due()).await?;
            if let Some(key) = self.queue.take(breaker.is_open()) {
                return Some(key);
            }
        }
        None
    }

    /// Queues the keys of each failure group one after the other, as probes.
    async fn probe(&self) {
        loop {
            let next = self.failure_groups.lock().next_probe();
            tokio::select! {
                biased;
                () = self.regrouped.notified() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    let probes = self.failure_groups.lock().take_probes(Instant::now());
                    self.add_all(probes);
                }
            }
        }
    }

    /// Decides what follows from a failed write of `key`, counts it, and logs it unless the controller reports it.
    pub fn failed(&self, key: &K, error: &WriteError) -> Failed {
        if error.category != Category::Held {
            self.host.metrics.reconcile_error(self.controller, error.category);
        }
        let plain = |outcome| Failed { outcome, gone: false, refused: false };
        match NextStep::after(error) {
            NextStep::Replan => {
                debug!(%key, %error, "conflict: the object has changed");
                plain(Outcome::Retry)
            }
            NextStep::Hold => plain(Outcome::Held),
            NextStep::Forget => {
                debug!(%key, %error, "the object is gone");
                Failed { gone: true, ..plain(Outcome::Retry) }
            }
            NextStep::Report => Failed { refused: true, ..plain(Outcome::Refused) },
            // The breaker has logged one line for all of them.
            NextStep::TryAgain(_) if self.host.writer.breaker.is_open() => {
                debug!(%key, %error, "the API server is failing");
                plain(Outcome::Held)
            }
            NextStep::JoinGroup => self.join_group(key, error),
            NextStep::TryAgain(outcome) => {
                warn!(%key, category = error.category.as_str(), "{error}; retrying");
                plain(outcome)
            }
        }
    }

    fn join_group(&self, key: &K, error: &WriteError) -> Failed {
        let now = Instant::now();
        let operation = self.operation(key, error.resource, error.verb);
        let revokes = self.revokes(key, error.verb);
        let unreported = self.failure_groups.lock().failed(key, &operation, revokes, error, now);
        self.regrouped.notify_one();
        if unreported.is_some() {
            warn!(%key, category = error.category.as_str(), "{error}; retrying");
        }
        let outcome = unreported.map_or(Outcome::Parked, Outcome::RetryAfter);
        Failed { outcome, gone: false, refused: unreported.is_none() && !is_expected(error) }
    }

    /// Why a write must wait, if it must: others of its failure group fail, or another client undoes it again and again.
    #[must_use]
    pub fn delays(
        &self,
        key: &K,
        resource: &'static str,
        verb: &'static str,
        content: u64,
    ) -> Option<Delayed> {
        let now = Instant::now();
        let revokes = self.revokes(key, verb);
        if let Some(left) = self.repeated.lock().wait((key, resource, verb), content, revokes, now)
        {
            let error =
                (left > LASTING).then(|| WriteError::undone(resource, verb, key.to_string()));
            return Some(Delayed { outcome: Outcome::RetryAfter(left), error });
        }
        let operation = self.operation(key, resource, verb);
        let parked = self.failure_groups.lock().admit(key, &operation, revokes, now);
        if let Some(Parked { unreported, error }) = parked {
            self.regrouped.notify_one();
            let error = WriteError { name: key.to_string(), ..error };
            return Some(Delayed {
                outcome: unreported.map_or(Outcome::Parked, Outcome::RetryAfter),
                error: (unreported.is_none() && !is_expected(&error)).then_some(error),
            });
        }
        self.queue.request(key);
        None
    }

    fn operation(&self, key: &K, resource: &'static str, verb: &'static str) -> Operation {
        Operation { namespace: (self.namespace_of)(key), resource, verb }
    }

    /// Whether the end of a grant waits for this write of a key that a worker holds.
    fn revokes(&self, key: &K, verb: &'static str) -> bool {
        verb == "delete" || self.queue.priority(key) == Some(Priority::End)
    }

    /// The API server accepted a write of a resource for `key`: what has failed like this write may succeed now.
    pub fn accepted(&self, key: &K, resource: &'static str, verb: &'static str, content: u64) {
        let now = Instant::now();
        self.repeated.lock().wrote((key, resource, verb), content, now);
        let released =
            self.failure_groups.lock().succeeded(key, &self.operation(key, resource, verb), now);
        self.add_all(released);
    }

    /// Records that an object was read by a get or by a list: reads take part in what is parked as writes do.
    pub fn read(&self, key: &K, resource: &'static str, verb: &'static str) {
        let operation = self.operation(key, resource, verb);
        let released = self.failure_groups.lock().succeeded(key, &operation, Instant::now());
        self.add_all(released);
    }

    /// One at a time, so that an older depth never overwrites a newer one.
    fn measure(&self) {
        let _turn = self.measuring.lock();
        self.host.metrics.queue_depth(self.controller, self.queue.depth());
    }
}

/// Whether a failure is not reported on its object: its namespace or its kind is going, or gone.
fn is_expected(error: &WriteError) -> bool {
    match error.category {
        Category::NamespaceTerminating | Category::NamespaceNotFound => error.verb == "create",
        category => category == Category::NotServed,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hub_api::names::ProfileKey;
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ObjectReference;
    use kube::Client;
    use kube::client::Body;

    use super::*;
    use crate::observe::health::Health;
    use crate::observe::metrics::Metrics;

    fn work() -> Arc<Work<ProfileKey>> {
        let no_answer = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let client = Client::new(no_answer, "default");
        let (health, metrics, clock) =
            (Health::default(), Metrics::new("0"), Arc::new(Timestamp::now));
        let about = Arc::new(|_: &_| ObjectReference::default());
        let host = Host::new(client, health, metrics, Claim::Always, clock, about);
        Work::new(&Arc::new(host), "keys", |key| key.namespace.clone())
    }

    fn key(cluster: &str) -> ProfileKey {
        ProfileKey { namespace: "app".into(), cluster: cluster.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_succeeds_releases_the_keys_whose_reads_have_failed() {
        for verb in ["get", "list"] {
            let (work, keys) = (work(), ["c1", "c2", "c3"].map(key));
            let error = |key: &ProfileKey| {
                WriteError::new(verb, "things", key.to_string(), Category::Internal, "on purpose")
            };
            for _ in 0..20 {
                for key in &keys {
                    work.failed(key, &error(key));
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert!(!work.holds(&keys[1]));
            work.read(&keys[0], "things", verb);
            assert!(work.holds(&keys[1]), "{verb}");
        }
    }

    #[tokio::test]
    async fn keys_that_need_no_write_leave_every_other_task_its_turn() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let work = work();
        work.add_all((0..1000).map(|number| key(&number.to_string())));
        let running = work.run(4, CancellationToken::new(), |_| {
            TAKEN.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Outcome::Done)
        });
        let other = async {
            let mut turn = 1;
            while TAKEN.load(Ordering::Relaxed) < 1000 {
                turn += 1;
                yield_now().await;
                assert!((turn..=4 * turn).contains(&TAKEN.load(Ordering::Relaxed)), "{turn}");
            }
        };
        tokio::select! { biased; () = running => {} () = other => {} }
    }
}
