//! What every controller of the process shares: the client, the probes, the metrics, the writer, and supervised tasks.

pub mod lease;
pub mod tasks;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use kube::Client;
use tokio::task::AbortHandle;
use tracing::{Instrument as _, info_span};

use crate::host::lease::Claim;
use crate::host::tasks::Tasks;
use crate::observe::health::{Health, SyncState, WatchId};
use crate::observe::metrics::Metrics;
use crate::observe::report::{Clock, Publisher, References, Reporter};
use crate::watch::{Lists, Sink, Watch};
use crate::write::Writer;

/// The `reportingController` of Events.
const PROGRAM: &str = "hub-addons";

/// The process around the controllers.
pub struct Host {
    pub client: Client,
    /// The state that the probes report.
    pub health: Health,
    pub metrics: Metrics,
    /// Sends writes while this process leads.
    pub writer: Writer,
    reporter: Reporter,
    clock: Clock,
    lists: Lists,
    /// The supervised tasks of the process.
    pub tasks: Tasks,
    working: AtomicBool,
}

impl Host {
    /// A host without controllers. Requires a tokio runtime.
    #[must_use]
    pub fn new(
        client: Client,
        health: Health,
        metrics: Metrics,
        claim: Claim,
        clock: Clock,
        references: References,
    ) -> Self {
        let writer = Writer::new(claim, metrics.clone());
        let reporter = Reporter::new(PROGRAM, metrics.clone(), references);
        let publisher = Publisher {
            client: client.clone(),
            reporter: reporter.clone(),
            writer: writer.clone(),
            clock: Arc::clone(&clock),
        };
        let tasks = Tasks::new(health.clone());
        tasks.spawn("the Events", publisher.run());
        Self {
            client,
            health,
            metrics,
            writer,
            lists: Lists::new(Some((reporter.of("watches"), Arc::clone(&clock)))),
            reporter,
            clock,
            tasks,
            working: AtomicBool::new(false),
        }
    }

    /// The reporter for the findings of a controller.
    #[must_use]
    pub fn reporter(&self, controller: &'static str) -> Reporter {
        self.reporter.of(controller)
    }

    /// The current wall-clock time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The kinds that cannot be read, since when and why.
    #[must_use]
    pub fn unreadable(&self) -> Option<String> {
        self.lists.unreadable()
    }

    /// Whether every watch has its first list, so that an absent object does not exist.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.working.load(Ordering::Acquire)
    }

    /// Records that every watch has its first list.
    pub fn set_working(&self) {
        self.working.store(true, Ordering::Release);
    }
}

/// Starts the watches of one controller. Only the process creates it, after all controllers have been created, so that
/// none misses an event.
#[derive(Clone)]
pub struct Watches {
    host: Arc<Host>,
    controller: &'static str,
}

impl Watches {
    #[must_use]
    pub fn new(host: &Arc<Host>, controller: &'static str) -> Self {
        Self { host: Arc::clone(host), controller }
    }

    /// Watches for as long as the process runs, and makes readiness depend on it.
    pub fn watch<K: 'static>(&self, watch: Watch<K>, sink: impl Sink<K>) {
        self.start(watch, Box::new(sink));
    }

    /// Starts a watch that ends when the handle is dropped, so that it can be replaced.
    #[must_use]
    pub fn watch_while_held<K: 'static>(&self, watch: Watch<K>, sink: impl Sink<K>) -> HeldWatch {
        let (sync, task) = self.start(watch, Box::new(sink));
        HeldWatch { sync, task }
    }

    /// Spawns a task that runs as long as the process: see [`Tasks::spawn`].
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let span = info_span!("task", controller = self.controller, name);
        self.host.tasks.spawn(name, task.instrument(span));
    }

    fn start<K: 'static>(
        &self,
        watch: Watch<K>,
        sink: Box<dyn Sink<K>>,
    ) -> (SyncState, AbortHandle) {
        let (host, resource) = (&*self.host, watch.resource);
        let span = info_span!("watch", controller = self.controller, resource);
        let name = WatchId::new(self.controller, resource, watch.namespace.clone());
        let sync = host.health.expect_sync(name, watch.need, &host.metrics);
        let following = watch.follow(host.client.clone(), sync.clone(), host.lists.clone(), sink);
        let task = host.tasks.spawn(resource, following.instrument(span));
        (sync, task)
    }
}

/// A watch that ends when this is dropped, and then no longer affects readiness. Drop it before another watch of the
/// same controller and resource starts, unless both are [late](crate::observe::health::Need::Late).
pub struct HeldWatch {
    sync: SyncState,
    task: AbortHandle,
}

impl Drop for HeldWatch {
    fn drop(&mut self) {
        self.task.abort();
        self.sync.forget();
    }
}
