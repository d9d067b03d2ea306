//! Sends every write to the API server, and the reads that a write depends on: only while this process leads, with a
//! timeout, counted, and through a circuit breaker that opens while the API server is failing.

pub mod error;
pub mod execute;

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::flow::circuit_breaker::CircuitBreaker;
use crate::host::lease::Claim;
use crate::observe::metrics::Metrics;
use crate::write::error::{Category, WriteError, retry_after, summary};
use crate::write::execute::Target;

/// Timeout of one write. kube's client has none.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Writer {
    pub(crate) claim: Claim,
    /// Shared by all writers of the process.
    pub breaker: CircuitBreaker,
    metrics: Metrics,
}

impl Writer {
    /// A writer that is allowed to write while `claim` is valid.
    #[must_use]
    pub fn new(claim: Claim, metrics: Metrics) -> Self {
        Self { claim, breaker: CircuitBreaker::new(metrics.clone()), metrics }
    }

    /// Sends one request, with a timeout of ten seconds; its verb and the resource are labels of the metrics. One that was
    /// sent before the claim expires is not cancelled: the API server may execute it nevertheless, and its result would be
    /// unknown.
    pub(crate) async fn send<T>(
        &self,
        verb: &'static str,
        object: &Target,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, WriteError> {
        let failed = |category, text: &str| {
            WriteError::new(verb, object.resource, &object.full_name, category, text)
        };
        if !self.claim.is_valid() {
            return Err(failed(Category::NotLeader, "this process does not lead"));
        }
        if !self.breaker.lets_through() {
            return Err(failed(Category::Held, "not sent: the API server is failing"));
        }
        let begin = Instant::now();
        let result = match timeout(WRITE_TIMEOUT, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(WriteError {
                retry_after: retry_after(&error),
                ..failed(Category::of(&error), &summary(&error))
            }),
            Err(_) => Err(failed(Category::Timeout, "timed out")),
        };
        let result = result.map_err(|error| WriteError { took: begin.elapsed(), ..error });
        let outcome = result.as_ref().map(|_| ()).map_err(|error| error.category);
        self.metrics.write(object.resource, verb, outcome, begin.elapsed());
        self.breaker.observe(begin, result.as_ref().map(|_| ()));
        result
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn target(namespace: &str, name: &str) -> Target {
        Target::of::<ConfigMap>("clusterprofiles", &(), Some(namespace), name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_blocks_times_out() {
        let metrics = Metrics::new("0");
        let writer = Writer::new(Claim::Always, metrics.clone());
        let (target, blocks) = (target("ns", "c"), std::future::pending::<Result<(), _>>());
        let error = writer.send("create", &target, blocks).await.unwrap_err();
        assert_eq!(error.category, Category::Timeout);
        assert_eq!(error.to_string(), "cannot create clusterprofiles ns/c: timed out");
        assert!(metrics.text().contains("result=\"timeout\"} 1"));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_block_do_not_open_the_breaker_in_however_many_namespaces() {
        let writer = Writer::new(Claim::Always, Metrics::new("0"));
        for (namespace, name) in [("ns", "c"), ("ns", "d"), ("other", "c"), ("third", "c")] {
            let (target, blocks) =
                (target(namespace, name), std::future::pending::<Result<(), _>>());
            let error = writer.send("create", &target, blocks).await.unwrap_err();
            assert_eq!(error.took, WRITE_TIMEOUT);
            assert!(!writer.breaker.is_open(), "{namespace}/{name}");
        }
    }
}
