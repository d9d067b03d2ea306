//! What every controller of the process shares: the client, the probes, the metrics, the writer, and tasks
//! that are missed when they end.

use std::fmt::Debug;
use std::future::Future;

use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch as channel;

use crate::health::Health;
use crate::lease::Fence;
use crate::metrics::Metrics;
use crate::report::Reporter;
use crate::watch::{self, Sink};
use crate::write::Writer;

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

    /// Starts to watch a kind, and makes readiness wait for its first list.
    pub fn watch<K>(&self, resource: &'static str, dynamic_type: K::DynamicType, sink: impl Sink<K>)
    where
        K: Resource<DynamicType: Clone + Send + Sync> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let sync = self.health.expect_sync(resource, &self.metrics);
        let watch = watch::watch(self.client.clone(), dynamic_type, sync, self.metrics.clone(), sink);
        self.spawn(resource, watch);
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
