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

    #[tokio::test(start_paused = true)]
    async fn calls_that_block_time_out_and_open_no_breaker_in_however_many_namespaces() {
        let metrics = Metrics::new("0");
        let writer = Writer::new(Claim::Always, metrics.clone());
        for namespace in ["ns", "ns", "other", "third"] {
            let target = Target::of::<ConfigMap>("clusterprofiles", &(), Some(namespace), "c");
            let blocks = std::future::pending::<Result<(), _>>();
            let error = writer.send("create", &target, blocks).await.unwrap_err();
            assert_eq!((error.category, error.took), (Category::Timeout, WRITE_TIMEOUT));
            let text = format!("cannot create clusterprofiles {namespace}/c: timed out");
            assert_eq!(error.to_string(), text);
            assert!(!writer.breaker.is_open(), "{namespace}");
        }
        assert!(metrics.text().contains("result=\"timeout\"} 4"));
    }
}
