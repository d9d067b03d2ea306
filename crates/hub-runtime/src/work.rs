//! A controller's work: the keys that have to be looked at, the workers that do, and the namespaces that are
//! left alone for a while.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::Namespace;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::info;

use crate::host::Host;
use crate::queue::{Outcome, Queue};
use crate::write::WriteError;

/// How long a namespace that takes nothing new is left alone.
const NAMESPACE_PAUSE: Duration = Duration::from_mins(1);

/// A queue of keys and the workers on it.
pub struct Work<K> {
    controller: &'static str,
    queue: Queue<K>,
    host: Arc<Host>,
    measuring: Mutex<()>,
}

impl<K: Clone + Ord + Hash + Send + 'static> Work<K> {
    /// An empty queue; `controller` names it in metrics.
    #[must_use]
    pub fn new(host: &Arc<Host>, controller: &'static str) -> Arc<Self> {
        host.metrics.declare_controller(controller);
        let host = Arc::clone(host);
        Arc::new(Self { controller, queue: Queue::default(), host, measuring: Mutex::default() })
    }

    /// Has a key looked at again.
    pub fn add(&self, key: K) {
        self.queue.add(key);
        self.measure();
    }

    /// Whether there is still something to do about a key, as far as is known.
    pub fn holds(&self, key: &K) -> bool {
        self.queue.holds(key)
    }

    /// Works on the queue until [`Self::stop`], on so many keys at a time; then returns when what is in flight
    /// is done.
    pub async fn run<F>(
        self: &Arc<Self>,
        workers: usize,
        reconcile: impl Fn(K) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = Outcome> + Send,
    {
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            let (this, reconcile) = (Arc::clone(self), reconcile.clone());
            tasks.spawn(async move {
                while let Some(key) = this.queue.next().await {
                    let outcome = reconcile(key.clone()).await;
                    this.queue.finish(key, outcome);
                    this.measure();
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            if ended.is_err() {
                self.host.miss("a worker");
                return;
            }
        }
    }

    /// Ends [`Self::run`].
    pub fn stop(&self) {
        self.queue.close();
    }

    /// One after the other, so that no older depth overwrites a newer one.
    fn measure(&self) {
        let _turn = self.measuring.lock();
        self.host.metrics.queue_depth(self.controller, self.queue.depth());
    }
}

/// Namespaces that take nothing new, because they are being deleted or are not there: nothing is tried in them
/// until some time has passed.
#[derive(Default)]
pub struct PausedNamespaces(Mutex<HashMap<Namespace, Instant>>);

impl PausedNamespaces {
    /// Leaves a namespace alone because of this answer to a create.
    pub fn pause(&self, namespace: &Namespace, why: &WriteError) -> Outcome {
        let until = Instant::now() + NAMESPACE_PAUSE;
        let before = self.0.lock().insert(namespace.clone(), until);
        if before.is_none_or(|before| before <= Instant::now()) {
            info!(%namespace, "the namespace takes nothing new, leaving it alone: {why}");
        }
        Outcome::RetryAfter(NAMESPACE_PAUSE)
    }

    /// Forgets that a namespace took nothing new: it may be another one by now.
    pub fn resume(&self, namespace: &Namespace) {
        self.0.lock().remove(namespace);
    }

    /// How long a create has to wait for its namespace. Repairs and deletes do not.
    pub fn pause_of(&self, namespace: &Namespace) -> Option<Duration> {
        let until = *self.0.lock().get(namespace)?;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}
