//! What every controller of the process shares: the client, the probes, the metrics, the writer, and tasks
//! that are missed when they end.

use std::fmt::Debug;
use std::future::Future;

use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch as channel;
use tokio_util::task::AbortOnDropHandle;

use crate::health::{Health, Need, SyncState};
use crate::lease::Fence;
use crate::metrics::Metrics;
use crate::report::Reporter;
use crate::watch::{self, Sink, Watch};
use crate::write::Writer;

/// A watch that ends when this is dropped, and that nobody waits for any more. Drop it before another watch of
/// the same resource begins, unless both are [late](crate::health::Need::Late).
pub struct HeldWatch {
    health: Health,
    resource: Option<&'static str>,
    _task: AbortOnDropHandle<()>,
}

impl Drop for HeldWatch {
    fn drop(&mut self) {
        if let Some(resource) = self.resource {
            self.health.forget_sync(resource);
        }
    }
}

/// The process around the controllers.
pub struct Host {
    /// Talks to the API server.
    pub client: Client,
    /// What the probes report.
    pub health: Health,
    /// What operators measure.
    pub metrics: Metrics,
    /// Sends writes, while we lead.
    pub writer: Writer,
    /// Tells findings.
    pub reporter: Reporter,
    ended: channel::Sender<Option<&'static str>>,
}

impl Host {
    /// A host without controllers. Needs a tokio runtime around it.
    #[must_use]
    pub fn new(client: Client, health: Health, metrics: Metrics, fence: Fence) -> Self {
        let writer = Writer::new(fence.clone(), metrics.clone());
        let reporter = Reporter::new(client.clone(), "hub-addons", fence, metrics.clone());
        Self { client, health, metrics, writer, reporter, ended: channel::Sender::new(None) }
    }

    /// Starts to watch a kind, and makes readiness wait for it.
    pub fn watch<K>(&self, watch: Watch<K>, sink: impl Sink<K>)
    where
        K: Resource<DynamicType: Clone + Send + Sync> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (sync, metrics) = (self.expect(&watch), self.metrics.clone());
        let api = Api::all_with(self.client.clone(), watch.kind());
        self.spawn(watch.resource(), watch::objects(api, watch, sync, metrics, sink));
    }

    /// The same, for the metadata of the objects alone.
    pub fn watch_metadata<K>(&self, watch: Watch<K>, sink: impl Sink<PartialObjectMeta<K>>)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (sync, metrics) = (self.expect(&watch), self.metrics.clone());
        self.spawn(watch.resource(), watch::metadata(self.client.clone(), watch, sync, metrics, sink));
    }

    /// Starts a watch, in one namespace or in all, that ends when the handle is dropped: its place can change.
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
        let (sync, metrics) = (self.expect(&watch), self.metrics.clone());
        let api = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let resource = (watch.need() != Need::Late).then(|| watch.resource());
        let task = tokio::spawn(watch::objects(api, watch, sync, metrics, sink));
        HeldWatch { health: self.health.clone(), resource, _task: AbortOnDropHandle::new(task) }
    }

    fn expect<K: Resource>(&self, watch: &Watch<K>) -> SyncState {
        self.health.expect_sync(watch.resource(), watch.need(), &self.metrics)
    }

    /// Starts a task that ends only with the process. Where it ends all the same, by a panic, the process is
    /// no longer alive ([`Health`]) and [`Self::task_ended`] returns.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(task);
        let (health, ended) = (self.health.clone(), self.ended.clone());
        tokio::spawn(async move {
            let _ = task.await;
            health.task_failed(name);
            ended.send_replace(Some(name));
        });
    }

    /// A task has ended that never should.
    pub(crate) fn miss(&self, name: &'static str) {
        self.health.task_failed(name);
        self.ended.send_replace(Some(name));
    }

    /// Waits until a task has ended that never should, and answers its name.
    pub async fn task_ended(&self) -> &'static str {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(name)) => name,
            // The sender lives in `self`, so the wait cannot end otherwise.
            _ => "a task",
        }
    }
}
