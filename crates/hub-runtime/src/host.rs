//! What every controller of the process shares: the client, the probes, the metrics, the writer, and supervised tasks.

pub mod lease;
mod suspended;
pub mod tasks;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;
use tracing::{Instrument as _, Span, info_span};

use crate::flow::write_limit::WriteLimit;
use crate::host::lease::Fence;
use crate::host::tasks::Tasks;
use crate::observe::health::{Health, Need, SyncState, WatchId};
use crate::observe::metrics::Metrics;
use crate::observe::report::{Clock, Publisher, Reporter};
use crate::watch::served::{self, ServedVersion};
use crate::watch::{self, Lists, Sink, Watch};
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
    /// The version of ClusterProfile in use.
    pub served: ServedVersion,
    clock: Clock,
    lists: Lists,
    tasks: Tasks,
    working: AtomicBool,
}

impl Host {
    /// A host without controllers. Requires a tokio runtime.
    #[must_use]
    pub fn new(
        client: Client,
        health: Health,
        metrics: Metrics,
        fence: Fence,
        limit: WriteLimit,
        clock: Clock,
    ) -> Self {
        let writer = Writer::new(fence.clone(), limit, metrics.clone());
        let served = ServedVersion::default();
        let reporter = Reporter::new(PROGRAM, metrics.clone(), served.clone());
        let publisher = Publisher {
            client: client.clone(),
            controller: PROGRAM,
            reporter: reporter.clone(),
            fence,
            breaker: writer.breaker().clone(),
            clock: Arc::clone(&clock),
        };
        let tasks = Tasks::new(health.clone());
        tasks.spawn("the Events", publisher.run());
        Self {
            client,
            health,
            metrics,
            writer,
            reporter,
            served,
            clock,
            lists: Lists::default(),
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

    /// Whether every watch has its first list, so that an absent object does not exist.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.working.load(Ordering::Acquire)
    }

    /// Records that every watch has its first list.
    pub fn set_working(&self) {
        self.working.store(true, Ordering::Release);
    }

    /// Spawns a task that runs as long as the process: see [`Tasks::spawn`].
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(name, task);
    }

    /// Spawns a task that may end.
    pub fn spawn_once(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_once(name, task);
    }

    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
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

    /// Watches a kind for as long as the process runs, and makes readiness depend on it.
    pub fn watch<K>(&self, watch: Watch<K>, sink: impl Sink<K>)
    where
        K: Resource<DynamicType: Clone + Send + Sync> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (api, resource) = (Api::all_with(self.host.client.clone(), watch.kind()), watch.resource());
        self.host.spawn(resource, self.objects(api, watch, sink));
    }

    /// Like [`Self::watch`], in one namespace.
    pub fn watch_in<K>(&self, namespace: &str, watch: Watch<K>, sink: impl Sink<K>)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let (api, resource) = (Api::namespaced(self.host.client.clone(), namespace), watch.resource());
        self.host.spawn(resource, self.objects(api, watch, sink));
    }

    /// Like [`Self::watch_in`], for a kind that is known only at run time: one instance of the generic code serves all
    /// such kinds.
    pub fn watch_dynamic_in(
        &self,
        namespace: &str,
        watch: Watch<DynamicObject>,
        sink: impl Sink<DynamicObject>,
    ) {
        let client = self.host.client.clone();
        let (api, resource) = (Api::namespaced_with(client, namespace, watch.kind()), watch.resource());
        self.host.spawn(resource, self.objects(api, watch, sink));
    }

    /// Like [`Self::watch`], for the metadata of the objects only.
    pub fn watch_metadata<K>(&self, watch: Watch<K>, sink: impl Sink<PartialObjectMeta<K>>)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (span, resource) = (self.span(&watch), watch.resource());
        let (sync, metrics) = (self.expect(&watch), self.host.metrics.clone());
        let api = Api::<K>::all(self.host.client.clone());
        let watching = watch::metadata(api, watch, sync, metrics, self.host.lists.clone(), sink);
        self.host.spawn(resource, watching.instrument(span));
    }

    /// The version of ClusterProfile in use. The first call starts the watch on the CRD.
    #[must_use]
    pub fn served_version(&self) -> ServedVersion {
        if let Some((watch, sink)) = served::crd::begin(&self.host.served) {
            self.watch(watch, sink);
        }
        self.host.served.clone()
    }

    /// Starts a watch, in one namespace or in all, that ends when the handle is dropped, so that it can be replaced.
    #[must_use]
    pub fn watch_while_held<K>(
        &self,
        namespace: Option<&str>,
        watch: Watch<K>,
        sink: impl Sink<K>,
    ) -> HeldWatch
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let (resource, need) = (watch.resource(), watch.need());
        let api = match namespace {
            Some(namespace) => Api::namespaced(self.host.client.clone(), namespace),
            None => Api::all(self.host.client.clone()),
        };
        let task = self.host.tasks.spawn(resource, self.objects(api, watch, sink));
        let name = (need != Need::Late).then_some((self.controller, resource));
        HeldWatch { health: self.host.health.clone(), name, task }
    }

    /// Spawns a task that runs as long as the process: see [`Tasks::spawn`].
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let span = info_span!("task", controller = self.controller, name);
        self.host.spawn(name, task.instrument(span));
    }

    /// The task that watches whole objects.
    fn objects<K, S>(
        &self,
        api: Api<K>,
        watch: Watch<K>,
        sink: S,
    ) -> impl Future<Output = ()> + Send + use<K, S>
    where
        K: Resource<DynamicType: Clone + Send + Sync> + DeserializeOwned + Send + 'static,
        S: Sink<K>,
    {
        let (span, sync) = (self.span(&watch), self.expect(&watch));
        let (metrics, lists) = (self.host.metrics.clone(), self.host.lists.clone());
        watch::objects(api, watch, sync, metrics, lists, sink).instrument(span)
    }

    fn expect<K: Resource>(&self, watch: &Watch<K>) -> SyncState {
        self.host.health.expect_sync((self.controller, watch.resource()), watch.need(), &self.host.metrics)
    }

    fn span<K: Resource>(&self, watch: &Watch<K>) -> Span {
        info_span!("watch", controller = self.controller, resource = watch.resource())
    }
}

/// A watch that ends when this is dropped, and then no longer affects readiness. Drop it before another watch of the
/// same controller and resource starts, unless both are [late](crate::observe::health::Need::Late).
pub struct HeldWatch {
    health: Health,
    name: Option<WatchId>,
    task: AbortHandle,
}

impl Drop for HeldWatch {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(name) = self.name {
            self.health.forget_sync(name);
        }
    }
}
