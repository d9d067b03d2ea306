//! Consecutive failures of one watch: how long to wait, and one log line for each kind of failure and for the recovery.

use std::time::Duration;

use backon::ExponentialBackoff;
use tracing::{debug, info, warn};

use super::error::WatchError;
use crate::flow::backoff;
use crate::observe::metrics::Metrics;
use crate::write::error::Category;

/// Backoff after a failed list or watch. The maximum also bounds how long a new CRD goes unnoticed.
const RECONNECT_MIN: Duration = Duration::from_millis(200);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// How long a watch must last without failure to count as recovered. A watch may be quiet for longer than any outage,
/// so an event cannot be the only criterion, and an API server that accepts a watch and ends it at once has not
/// recovered.
pub(super) const STEADY: Duration = RECONNECT_MAX;

/// Consecutive failures.
pub(super) struct Trouble {
    resource: &'static str,
    metrics: Metrics,
    logged: Option<Category>,
    backoff: ExponentialBackoff,
}

impl Trouble {
    pub(super) fn new(resource: &'static str, metrics: Metrics) -> Self {
        Self { resource, metrics, logged: None, backoff: fresh() }
    }

    /// Counts and logs a failure, and returns how long to wait.
    pub(super) fn meet(&mut self, error: &WatchError) -> Duration {
        let category = error.category();
        self.metrics.watch_error(self.resource, category);
        let resource = self.resource;
        if self.logged == Some(category) {
            debug!(resource, category = category.as_str(), %error, "watch still failing");
        } else if error.is_not_served() {
            warn!(
                resource,
                "waiting for the CustomResourceDefinition of {resource}: the hub does not serve it"
            );
        } else if error.is_history_gone() {
            // The API server responds, and only requests a new list: reset the backoff.
            self.backoff = fresh();
            debug!(resource, %error, "watch expired, listing again");
        } else {
            warn!(
                resource,
                category = category.as_str(),
                %error,
                "cannot watch {resource}, retrying"
            );
        }
        self.logged = Some(category);
        self.pause()
    }

    /// How long to wait after a watch that ended early without an error.
    pub(super) fn pause(&mut self) -> Duration {
        self.backoff.next().unwrap_or(RECONNECT_MAX)
    }

    /// The watch has recovered.
    pub(super) fn end(&mut self) {
        self.backoff = fresh();
        if let Some(category) = self.logged.take() {
            info!(resource = self.resource, after = category.as_str(), "watching {} again", self.resource);
        }
    }
}

fn fresh() -> ExponentialBackoff {
    backoff::between(RECONNECT_MIN, RECONNECT_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_history_that_is_gone_is_listed_soon_though_there_was_trouble_before() {
        let status = |code, reason: &str| {
            let status = json!({ "status": "Failure", "code": code, "reason": reason, "message": "" });
            WatchError::Status(Box::new(serde_json::from_value(status).unwrap()))
        };
        let mut trouble = Trouble::new("things", Metrics::new("test"));
        let (unavailable, expired) = (status(503, "ServiceUnavailable"), status(410, "Expired"));
        let last = (0..10).map(|_| trouble.meet(&unavailable)).last().unwrap();
        assert!(last >= RECONNECT_MAX, "{last:?}");
        let soon = trouble.meet(&expired);
        assert!(soon <= 2 * RECONNECT_MIN, "{soon:?}");
        // But one after the other is trouble, too.
        let last = (0..10).map(|_| trouble.meet(&expired)).last().unwrap();
        assert!(last >= RECONNECT_MAX, "{last:?}");
    }
}
