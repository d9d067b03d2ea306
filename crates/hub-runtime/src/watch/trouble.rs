//! Consecutive failures of one watch: how long to wait, and one log line for each kind of failure and for the recovery,
//! however many watches it concerns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use super::error::WatchError;
use crate::flow::backoff;
use crate::observe::metrics::Metrics;
use crate::write::error::Category;

/// Backoff after a failed list or watch. The maximum also bounds how long the CRD of a kind that is needed goes
/// unnoticed.
const RECONNECT_MIN: Duration = Duration::from_millis(200);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// How long a watch must last without failure to count as recovered. A watch may be quiet for longer than any outage,
/// so an event cannot be the only criterion, and an API server that accepts a watch and ends it at once has not
/// recovered.
pub(super) const STEADY: Duration = RECONNECT_MAX;

/// What the watches of a process have logged and not recovered from, by resource and category.
pub(super) type Logged = Arc<Mutex<BTreeSet<(&'static str, Category)>>>;

/// Consecutive failures.
pub(super) struct Trouble {
    resource: &'static str,
    metrics: Metrics,
    logged: Logged,
    /// The category of the last failure.
    pub(super) category: Option<Category>,
    /// How often in a row the history has expired.
    expired: u32,
    backoff: ExponentialBackoff,
}

impl Trouble {
    pub(super) fn new(resource: &'static str, metrics: Metrics, logged: Logged) -> Self {
        Self { resource, metrics, logged, category: None, expired: 0, backoff: fresh() }
    }

    /// What failures of this category are logged as: those of an API server that cannot be reached as one.
    fn name(&self, category: Category) -> (&'static str, Category) {
        (if category == Category::Unavailable { "" } else { self.resource }, category)
    }

    /// Counts and logs a failure, and returns how long to wait.
    pub(super) fn meet(&mut self, error: &WatchError) -> Duration {
        let (category, resource) = (error.category(), self.resource);
        self.metrics.watch_error(resource, category);
        let is_repeated = self.category.replace(category) == Some(category);
        if error.is_history_gone() {
            self.expired += 1;
            if !is_repeated {
                // The API server responds, and only requests a new list: reset the backoff.
                self.backoff = fresh();
            }
            if self.expired == 2 {
                warn!(resource, %error, "the history of {resource} expired again before it was listed and watched");
            } else {
                debug!(resource, %error, "watch expired, listing again");
            }
            return self.pause();
        }
        self.expired = 0;
        if is_repeated || !self.logged.lock().insert(self.name(category)) {
            debug!(resource, category = category.as_str(), %error, "watch still failing");
        } else if error.is_not_served() {
            warn!(
                resource,
                "waiting for the CustomResourceDefinition of {resource}: the hub does not serve it"
            );
        } else {
            warn!(
                resource,
                category = category.as_str(),
                %error,
                "cannot watch {resource}, retrying"
            );
        }
        self.pause()
    }

    /// How long to wait after a watch that ended early without an error.
    pub(super) fn pause(&mut self) -> Duration {
        self.backoff.next().unwrap_or(RECONNECT_MAX)
    }

    /// The watch has recovered.
    pub(super) fn end(&mut self) {
        self.backoff = fresh();
        self.expired = 0;
        let Some(category) = self.category.take() else { return };
        let mut logged = self.logged.lock();
        let before = logged.len();
        // An outage of the API server is over for all.
        logged.retain(|(resource, _)| !resource.is_empty() && *resource != self.resource);
        if logged.len() < before {
            info!(
                resource = self.resource,
                after = category.as_str(),
                "watching {} again",
                self.resource
            );
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

    fn status(code: u16, reason: &str) -> WatchError {
        let status = json!({ "status": "Failure", "code": code, "reason": reason, "message": "" });
        WatchError::Status(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn a_history_that_is_gone_is_listed_soon_though_there_was_trouble_before() {
        let mut trouble = Trouble::new("things", Metrics::new("test"), Logged::default());
        let (unavailable, expired) = (status(503, "ServiceUnavailable"), status(410, "Expired"));
        let last = (0..10).map(|_| trouble.meet(&unavailable)).last().unwrap();
        assert!(last >= RECONNECT_MAX, "{last:?}");
        let soon = trouble.meet(&expired);
        assert!(soon <= 2 * RECONNECT_MIN, "{soon:?}");
        // But one after the other is trouble, too.
        let last = (0..10).map(|_| trouble.meet(&expired)).last().unwrap();
        assert!(last >= RECONNECT_MAX, "{last:?}");
    }

    #[test]
    fn an_outage_is_logged_once_and_another_failure_once_for_each_resource() {
        let logged = Logged::default();
        let of = |resource| Trouble::new(resource, Metrics::new("test"), Arc::clone(&logged));
        let mut watches: Vec<_> = (0..300).map(|number| of(["one", "two"][number % 2])).collect();
        for watch in &mut watches {
            watch.meet(&status(503, "ServiceUnavailable"));
        }
        assert_eq!(logged.lock().len(), 1);
        for watch in &mut watches {
            watch.meet(&status(403, "Forbidden"));
        }
        let resources: Vec<_> = logged.lock().iter().map(|(resource, _)| *resource).collect();
        assert_eq!(resources, ["", "one", "two"]);
        watches.iter_mut().for_each(Trouble::end);
        assert!(logged.lock().is_empty());
    }

    #[test]
    fn the_end_of_an_outage_is_logged_whatever_else_failed_after_it() {
        let logged = Logged::default();
        let mut watch = Trouble::new("things", Metrics::new("test"), Arc::clone(&logged));
        watch.meet(&status(503, "ServiceUnavailable"));
        // As a list from an API server that has just started: that is not logged as a failure of its own.
        watch.meet(&status(410, "Expired"));
        assert_eq!(logged.lock().len(), 1, "what `end` logs the end of");
        watch.end();
        assert!(logged.lock().is_empty());
    }
}
