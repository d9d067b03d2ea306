//! Every write to the API server passes here: only while we lead, under a timeout, counted, and through the gate that
//! closes while the API server is in trouble.

use std::future::Future;
use std::time::Duration;

use hub_core::version::Version;
use kube::api::{DeleteParams, Preconditions};
use tokio::time::{Instant, timeout};

use crate::error::{Category, retry_after, summary};
use crate::gate::Gate;
use crate::lease::Fence;
use crate::metrics::Metrics;

/// Longest wait for the answer to one write. kube's client itself waits for ever.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A write that did not come about, or whose answer did not come.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {verb} {resource} {name}: {text}")]
pub struct WriteError {
    /// The kind of failure.
    pub category: Category,
    /// What was tried.
    pub verb: &'static str,
    /// On which resource.
    pub resource: &'static str,
    /// On which object.
    pub name: String,
    /// What went wrong, in one line.
    pub text: String,
    /// How long the API server asks to be left alone, where it says so.
    pub retry_after: Option<Duration>,
}

impl WriteError {
    /// A write that failed.
    #[must_use]
    pub fn new(
        verb: &'static str,
        resource: &'static str,
        name: impl Into<String>,
        category: Category,
        text: impl Into<String>,
    ) -> Self {
        let (name, text) = (name.into(), text.into());
        Self { category, verb, resource, name, text, retry_after: None }
    }

    /// A patch that the API server accepted, and that changed nothing.
    #[must_use]
    pub fn ineffective(resource: &'static str, name: impl Into<String>) -> Self {
        let text = "the API server accepted the patch and did not keep it";
        Self::new("patch", resource, name, Category::Ineffective, text)
    }
}

/// One request: its verb and resource are the metric's labels.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `create`, `patch`, `patch status`, `delete` or `get`.
    pub verb: &'static str,
    /// The plural of the kind.
    pub resource: &'static str,
    /// The object, as `NAMESPACE/NAME` where it has a namespace.
    pub name: &'a str,
}

impl<'a> Request<'a> {
    fn namespace(self) -> Option<&'a str> {
        self.name.split_once('/').map(|(namespace, _)| namespace)
    }
}

/// Sends writes.
#[derive(Clone)]
pub struct Writer {
    fence: Fence,
    gate: Gate,
    metrics: Metrics,
}

impl Writer {
    /// A writer that writes while `fence` is open.
    #[must_use]
    pub fn new(fence: Fence, metrics: Metrics) -> Self {
        Self { fence, gate: Gate::new(metrics.clone()), metrics }
    }

    /// The gate for all writes.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Sends one request. Its time is bounded by ten seconds and by what is left of our claim, so
    /// that no write is under way when another process begins.
    pub async fn send<T>(
        &self,
        request: Request<'_>,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, WriteError> {
        let failed = |category, text: &str| {
            WriteError::new(request.verb, request.resource, request.name, category, text)
        };
        let Some(remaining) = self.fence.remaining() else {
            return Err(failed(Category::NotLeader, "this process does not lead"));
        };
        if !self.gate.lets_through() {
            return Err(failed(Category::Held, "not sent: the API server is in trouble"));
        }
        let begin = Instant::now();
        let result = match timeout(remaining.min(WRITE_TIMEOUT), call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(WriteError {
                retry_after: retry_after(&error),
                ..failed(Category::of(&error), &summary(&error))
            }),
            Err(_) => Err(failed(Category::Timeout, "no answer in time")),
        };
        let outcome = result.as_ref().map(|_| ()).map_err(|error| error.category);
        self.metrics.write(request.resource, request.verb, outcome, begin.elapsed());
        self.gate.observe(begin, request.namespace(), result.as_ref().map(|_| ()));
        result
    }
}

/// Deletes this very object, unchanged since it was read, or nothing.
#[must_use]
pub fn delete_exactly(version: &Version) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid: Some(version.uid.clone()),
        resource_version: Some(version.resource_version.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request<'_> = Request { verb: "create", resource: "clusterprofiles", name: "ns/c" };

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_is_given_up() {
        let metrics = Metrics::new("0");
        let writer = Writer::new(Fence::open(), metrics.clone());
        let error = writer.send(REQUEST, std::future::pending::<Result<(), _>>()).await.unwrap_err();
        assert_eq!(error.category, Category::Timeout);
        assert_eq!(error.to_string(), "cannot create clusterprofiles ns/c: no answer in time");
        assert!(metrics.text().contains("result=\"timeout\"} 1"));
    }
}
