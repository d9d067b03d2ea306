//! A controller's work: its queue of keys, its workers, and pauses for namespaces and kinds.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::Namespace;
use hub_core::priority::Priority;
use parking_lot::Mutex;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info, info_span, warn};

use crate::error::{Category, WriteError};
use crate::flow::key_rate_limit::KeyRateLimit;
use crate::flow::pauses::{KIND_PAUSE, NAMESPACE_PAUSE, Pauses};
use crate::flow::refusals::{Cause, LASTING, ProbeState, Refusals};
use crate::flow::retry_policy::NextStep;
use crate::host::Host;
use crate::queue::{Key, Outcome, Queue};

/// A queue of keys and its workers.
pub struct Work<K> {
    controller: &'static str,
    queue: Queue<K>,
    host: Arc<Host>,
    pauses: Mutex<Pauses>,
    key_rate_limit: Mutex<KeyRateLimit<K>>,
    refusals: Mutex<Refusals<K>>,
    measuring: Mutex<()>,
}

/// What follows for a key whose write failed, and what its controller has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// What follows for the key.
    pub outcome: Outcome,
    /// Whether the object is gone, so that the controller must forget it.
    pub gone: bool,
    /// Whether the write was refused, or has failed for some time, so that the controller must report it.
    pub refused: bool,
}

impl<K: Key + Display + Send + Sync + 'static> Work<K> {
    /// An empty queue; `controller` is its name in logs and metrics.
    #[must_use]
    pub fn new(host: &Arc<Host>, controller: &'static str) -> Arc<Self> {
        host.metrics.declare_controller(controller);
        let queue = Queue::new(1).limited_by(host.writer.limit().clone());
        let host = Arc::clone(host);
        Arc::new(Self {
            controller,
            queue,
            host,
            pauses: Mutex::default(),
            key_rate_limit: Mutex::default(),
            refusals: Mutex::default(),
            measuring: Mutex::default(),
        })
    }

    /// Queues a key as an update.
    pub fn add(&self, key: K) {
        self.add_with(key, Priority::Update);
    }

    /// Queues a key with a priority.
    pub fn add_with(&self, key: K, priority: Priority) {
        self.queue.add(key, priority);
        self.measure();
    }

    /// Queues keys as updates.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) {
        for key in keys {
            self.add(key);
        }
    }

    /// Whether a key is queued, waits for a retry, or is with a worker.
    pub fn holds(&self, key: &K) -> bool {
        self.queue.holds(key)
    }

    /// Processes the queue until `stop` with this many workers, then returns when all writes in flight have finished.
    pub async fn run<F>(
        self: &Arc<Self>,
        workers: usize,
        stop: CancellationToken,
        reconcile: impl Fn(K) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = Outcome> + Send,
    {
        self.queue.set_workers(workers);
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            let (this, reconcile, stop) = (Arc::clone(self), reconcile.clone(), stop.clone());
            tasks.spawn(async move {
                while this.queue.ready().await {
                    let breaker = this.host.writer.breaker();
                    let Some(pass) = stop.run_until_cancelled(breaker.admit()).await else { return };
                    let Some(key) = this.queue.take(pass.is_probe()) else { continue };
                    let span = info_span!("reconcile", controller = this.controller, %key);
                    let outcome = reconcile(key.clone()).instrument(span).await;
                    if outcome == Outcome::Done {
                        let released = this.refusals.lock().done(&key);
                        this.add_all(released);
                    }
                    this.queue.finish(key, outcome);
                    this.measure();
                    // A key without a write has not waited for anything, and thousands may follow it.
                    yield_now().await;
                }
            });
        }
        let stopped = async {
            stop.cancelled().await;
            self.queue.close();
            std::future::pending::<()>().await;
        };
        let ended = async {
            while let Some(ended) = tasks.join_next().await {
                if ended.is_err() {
                    self.host.tasks().miss("a worker");
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = stopped => {}
            () = ended => {}
        }
    }

    /// Decides what follows from a failed write of `key`, counts it, and logs it unless the controller reports it.
    pub fn failed(&self, key: &K, namespace: Option<&Namespace>, error: &WriteError) -> Failed {
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
            NextStep::PauseNamespace => plain(match namespace {
                Some(namespace) => self.pause_namespace(namespace, error),
                None => Outcome::Refused,
            }),
            NextStep::PauseKind => plain(self.pause_kind(error)),
            NextStep::Report(outcome) => {
                let outcome = self.wait_for_probes(key, namespace, error).unwrap_or(outcome);
                Failed { refused: true, ..plain(outcome) }
            }
            // The breaker has logged one line for all of them.
            NextStep::TryAgain(_) if self.host.writer.breaker().is_open() => {
                debug!(%key, %error, "the API server is failing");
                plain(Outcome::Held)
            }
            NextStep::ReportIfLasting(outcome) => {
                let sent = Instant::now().checked_sub(error.took).unwrap_or_else(Instant::now);
                let refused = self.refusals.lock().is_lasting(key, sent);
                // Before it lasts, what does not probe is retried once.
                let outcome = match self.wait_for_probes(key, namespace, error) {
                    Some(_) if !refused => Outcome::RetryAfter(LASTING),
                    parked => parked.unwrap_or(outcome),
                };
                if !refused {
                    warn!(%key, category = error.category.as_str(), "{error}; retrying");
                }
                Failed { refused, ..plain(outcome) }
            }
            NextStep::TryAgain(outcome) => {
                warn!(%key, category = error.category.as_str(), "{error}; retrying");
                plain(outcome)
            }
        }
    }

    /// How long a failing key waits for others with the same cause, unless it is a probe.
    fn wait_for_probes(&self, key: &K, namespace: Option<&Namespace>, error: &WriteError) -> Option<Outcome> {
        let (place, released) = self.refusals.lock().refused(key, &Cause::new(namespace, error));
        self.add_all(released);
        match place {
            ProbeState::Probing => None,
            ProbeState::Parked(wait) => Some(Outcome::RetryAfter(wait)),
        }
    }

    /// How long a write of a resource must wait because its kind, or for a create its namespace, is paused, or because
    /// the key was written many times in a row.
    pub fn pause(&self, key: &K, resource: &'static str, creates: bool) -> Option<Duration> {
        let now = Instant::now();
        let namespace = creates.then(|| key.namespace());
        let left = self.pauses.lock().wait(resource, namespace.as_ref(), now);
        let left = left.max(self.key_rate_limit.lock().wait(key, now));
        if left.is_none() {
            self.queue.request(key, false);
        }
        left
    }

    /// Ends the pause of a namespace, since it may have been recreated.
    pub fn resume(&self, namespace: &Namespace) {
        self.pauses.lock().resume_namespace(namespace);
    }

    /// The API server accepted a write of a resource for `key`: it serves the kind.
    pub fn written(&self, key: &K, resource: &'static str) {
        self.queue.request(key, true);
        self.key_rate_limit.lock().wrote(key.clone(), Instant::now());
        if self.pauses.lock().resume_kind(resource) {
            info!(controller = self.controller, "the hub serves {resource} again, resuming writes");
        }
    }

    fn pause_namespace(&self, namespace: &Namespace, why: &WriteError) -> Outcome {
        if self.pauses.lock().pause_namespace(namespace, Instant::now()) {
            info!(%namespace, "pausing creates in the namespace: {why}");
        }
        Outcome::RetryAfter(NAMESPACE_PAUSE)
    }

    fn pause_kind(&self, why: &WriteError) -> Outcome {
        if self.pauses.lock().pause_kind(why.resource, Instant::now()) {
            let resource = why.resource;
            warn!(
                controller = self.controller,
                "the hub does not serve {resource}, pausing writes of it: {why}"
            );
        }
        Outcome::RetryAfter(KIND_PAUSE)
    }

    /// Serialized, so that an older depth never overwrites a newer one.
    fn measure(&self) {
        let _turn = self.measuring.lock();
        self.host.metrics.queue_depth(self.controller, self.queue.depth());
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hub_api::names::ProfileKey;
    use kube::Client;
    use kube::client::Body;

    use super::*;
    use crate::process::{Process, Setup};

    #[tokio::test]
    async fn keys_that_need_no_write_leave_every_other_task_its_turn() {
        const KEYS: usize = 1000;
        let no_answer = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let process = Process::builder(Setup::new(Client::new(no_answer, "default"))).build();
        let work = Work::<ProfileKey>::new(&process.shared().host, "keys");
        work.add_all((0..KEYS).map(|number| ProfileKey {
            namespace: "app".into(),
            cluster: format!("c{number}").as_str().into(),
        }));
        let (done, turns) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let count = Arc::clone(&done);
        let running = work.run(4, CancellationToken::new(), move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Outcome::Done)
        });
        let other = async {
            while done.load(Ordering::Relaxed) < KEYS {
                turns.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        };
        tokio::select! {
            () = running => {}
            () = other => {}
        }
        let turns = turns.into_inner();
        assert!(turns >= KEYS / 8, "{turns} turns beside {KEYS} keys");
    }
}
