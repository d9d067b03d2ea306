//! The metrics of the process. Every label has a small, fixed set of values, and the series in alerts exist from the
//! start, at zero.

use std::sync::Arc;
use std::time::Duration;

use hub_core::finding::Reason;
use jiff::Timestamp;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

use crate::write::error::Category;

/// Upper bounds of the write-latency histogram, in seconds.
pub const WRITE_SECONDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Registers a metric, whose clones count together.
pub fn register<M: Metric + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// Registers a metric that begins empty.
pub fn metric<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    register(registry, name, help, M::default())
}

/// The metrics of the process. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    queue_depth: Family<Labels<1>, Gauge>,
    reconcile_errors: Family<Labels<2>, Counter>,
    writes: Family<Labels<3>, Counter>,
    write_seconds: Family<Labels<2>, Histogram, fn() -> Histogram>,
    conflicts: Family<Labels<1>, Counter>,
    connections_refused: Family<Labels<2>, Counter>,
    watch_errors: Family<Labels<2>, Counter>,
    watch_synced: Family<Labels<2>, Gauge>,
    unread_watches: Family<Labels<2>, Gauge>,
    unread_since: Family<Labels<2>, Gauge>,
    findings: Family<Labels<1>, Gauge>,
    findings_total: Family<Labels<1>, Counter>,
    events: Family<Labels<1>, Counter>,
    leader: Family<Labels<0>, Gauge>,
    /// 1 while the circuit breaker is open.
    pub api_server_outage: Gauge,
}

impl Metrics {
    /// Registers every metric of the process, with its version.
    #[must_use]
    pub fn new(version: &'static str) -> Self {
        Self::with(version, |_| {}).0
    }

    /// Like [`Self::new`], with further metrics, whose names get the same prefix; returns them.
    #[must_use]
    #[allow(clippy::too_many_lines, reason = "it registers each metric")]
    pub fn with<T>(version: &'static str, further: impl FnOnce(&mut Registry) -> T) -> (Self, T) {
        let mut all = Registry::with_prefix("hub_addons");
        let registry = &mut all;
        registry.register("build", "Version of the program", Info::new([("version", version)]));
        // `docs/reference.md` is generated from these calls.
        let mut metrics = Self {
            registry: Arc::default(),
            queue_depth: metric(
                registry,
                "queue_depth",
                "Keys in the queue, by controller: ready, in progress, or waiting for a retry",
            ),
            reconcile_errors: metric(
                registry,
                "reconcile_errors",
                "Failed reconciles, by controller and category",
            ),
            writes: metric(
                registry,
                "writes",
                "Writes sent to the API server, by resource, verb and result: ok, or a category",
            ),
            write_seconds: register(
                registry,
                "write_duration_seconds",
                "Duration of writes, by resource and verb",
                Family::new_with_constructor(|| Histogram::new(WRITE_SECONDS)),
            ),
            conflicts: metric(
                registry,
                "conflicts",
                "Writes that failed with a conflict, by resource",
            ),
            connections_refused: metric(
                registry,
                "connections_refused",
                "Connections to the ports of probes and metrics that were closed without a response, by server and reason: limit \
                 (64 are open, and the oldest is closed), timeout, invalid, handshake",
            ),
            watch_errors: metric(
                registry,
                "watch_errors",
                "Failed lists and watches, by resource and category",
            ),
            watch_synced: metric(
                registry,
                "watch_synced",
                "1 after the first list is complete, by controller and resource, and 0 while they are unread; fleet and \
                 clusterprofiles are the watches that controllers share",
            ),
            unread_watches: metric(
                registry,
                "unread_watches",
                "Watches whose kind could be neither listed nor watched for a minute, so that what depends on it is \
                 unknown, by controller and resource",
            ),
            unread_since: metric(
                registry,
                "unread_since_timestamp_seconds",
                "Since when the first of these watches cannot be read, in Unix time, by controller and resource; absent \
                 if all can be",
            ),
            findings: metric(
                registry,
                "findings",
                "Current findings on objects that need attention, by reason",
            ),
            findings_total: metric(
                registry,
                "findings_reported",
                "Findings reported since the start, by reason",
            ),
            events: metric(
                registry,
                "events",
                "Attempts to publish an Event, by result: published or failed",
            ),
            api_server_outage: metric(
                registry,
                "api_server_outage",
                "1 while the API server fails or throttles writes and only probes are sent",
            ),
            leader: metric(registry, "leader", "1 while this process holds its Lease"),
        };
        let further = further(registry);
        for reason in Reason::ALL {
            let labels = [("reason", reason.into_str())];
            metrics.findings.get_or_create(&labels).set(0);
            metrics.findings_total.get_or_create(&labels).inc_by(0);
        }
        for result in ["published", "failed"] {
            metrics.events.get_or_create(&[("result", result)]).inc_by(0);
        }
        metrics.registry = Arc::new(all);
        (metrics, further)
    }

    /// Whether this process leads. The series begins with the first call: a process without an election has none.
    pub fn leads(&self, leads: bool) {
        self.leader.get_or_create(&[]).set(i64::from(leads));
    }

    /// Initializes the series of a controller, so that an alert on their increase sees the first one.
    pub fn declare_controller(&self, controller: &'static str) {
        self.queue_depth.get_or_create(&[("controller", controller)]).set(0);
        for category in Category::ALL.iter().copied() {
            let labels = [("controller", controller), ("category", category.as_str())];
            self.reconcile_errors.get_or_create(&labels).inc_by(0);
        }
    }

    /// Initializes the series of a written resource.
    pub fn declare_written(&self, resource: &'static str) {
        self.conflicts.get_or_create(&[("resource", resource)]).inc_by(0);
    }

    /// Sets the length of a controller's queue.
    pub fn queue_depth(&self, controller: &'static str, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.queue_depth.get_or_create(&[("controller", controller)]).set(depth);
    }

    pub fn reconcile_error(&self, controller: &'static str, category: Category) {
        let labels = [("controller", controller), ("category", category.as_str())];
        self.reconcile_errors.get_or_create(&labels).inc();
    }

    /// Counts a write and its duration.
    pub fn write(
        &self,
        resource: &'static str,
        verb: &'static str,
        result: Result<(), Category>,
        took: Duration,
    ) {
        let outcome = result.map_or_else(Category::as_str, |()| "ok");
        self.writes
            .get_or_create(&[("resource", resource), ("verb", verb), ("result", outcome)])
            .inc();
        let labels = [("resource", resource), ("verb", verb)];
        self.write_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        if result == Err(Category::Conflict) {
            self.conflicts.get_or_create(&[("resource", resource)]).inc();
        }
    }

    /// Counts a connection to one of the process's servers that got no response.
    pub(crate) fn connection_refused(&self, server: &'static str, reason: &'static str) {
        self.connections_refused.get_or_create(&[("server", server), ("reason", reason)]).inc();
    }

    pub fn watch_error(&self, resource: &'static str, category: Category) {
        let labels = [("resource", resource), ("category", category.as_str())];
        self.watch_errors.get_or_create(&labels).inc();
    }

    /// Sets whether the first list of a watch is complete.
    pub(crate) fn watch_synced(
        &self,
        (controller, resource): (&'static str, &'static str),
        synced: bool,
    ) {
        let labels = [("controller", controller), ("resource", resource)];
        self.watch_synced.get_or_create(&labels).set(i64::from(synced));
    }

    /// Initializes the series of a watch.
    pub(crate) fn declare_watch(&self, (controller, resource): (&'static str, &'static str)) {
        let labels = [("controller", controller), ("resource", resource)];
        self.unread_watches.get_or_create(&labels).inc_by(0);
    }

    /// Sets how many watches cannot be read, and since when.
    pub(crate) fn unread(
        &self,
        (controller, resource): (&'static str, &'static str),
        count: i64,
        since: Option<Timestamp>,
    ) {
        let labels = [("controller", controller), ("resource", resource)];
        self.unread_watches.get_or_create(&labels).set(count);
        if let Some(since) = since {
            self.unread_since.get_or_create(&labels).set(since.as_second());
        } else {
            self.unread_since.remove(&labels);
        }
    }

    /// Counts a new finding, or a resolved one.
    pub fn finding(&self, reason: Reason, is_new: bool) {
        let labels = [("reason", reason.into_str())];
        if is_new {
            self.findings.get_or_create(&labels).inc();
            self.findings_total.get_or_create(&labels).inc();
        } else {
            self.findings.get_or_create(&labels).dec();
        }
    }

    /// Counts an attempt to publish an Event: `published` or `failed`.
    pub fn event(&self, result: &'static str) {
        self.events.get_or_create(&[("result", result)]).inc();
    }

    /// All metrics in the OpenMetrics text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        // A family without labels.
        text.replace("{} ", " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_that_alerts_name_begin_at_zero() {
        let metrics = Metrics::new("1.2.3");
        assert!(!metrics.text().contains("\nhub_addons_leader"), "no election");
        metrics.leads(false);
        metrics.declare_controller("profiles");
        metrics.declare_written("clusterprofiles");
        let text = metrics.text();
        for line in [
            "hub_addons_build_info{version=\"1.2.3\"} 1",
            "hub_addons_leader 0",
            "hub_addons_findings{reason=\"ForeignProfile\"} 0",
            "hub_addons_reconcile_errors_total{controller=\"profiles\",category=\"conflict\"} 0",
            "hub_addons_conflicts_total{resource=\"clusterprofiles\"} 0",
            "hub_addons_queue_depth{controller=\"profiles\"} 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn what_is_recorded_is_in_the_text() {
        let metrics = Metrics::new("0");
        metrics.queue_depth("profiles", 5);
        metrics.reconcile_error("profiles", Category::Denied);
        metrics.write("secrets", "create", Err(Category::Conflict), Duration::from_secs(2));
        metrics.write("secrets", "patch", Err(Category::Denied), Duration::from_secs(2));
        metrics.write("secrets", "patch", Ok(()), Duration::from_secs(2));
        metrics.watch_error("secrets", Category::Timeout);
        metrics.watch_synced(("syncer", "secrets"), true);
        metrics.event("published");
        metrics.api_server_outage.set(1);
        metrics.leads(true);
        let text = metrics.text();
        for line in [
            "queue_depth{controller=\"profiles\"} 5",
            "reconcile_errors_total{controller=\"profiles\",category=\"denied\"} 1",
            "writes_total{resource=\"secrets\",verb=\"create\",result=\"conflict\"} 1",
            "writes_total{resource=\"secrets\",verb=\"patch\",result=\"ok\"} 1",
            "write_duration_seconds_sum{resource=\"secrets\",verb=\"patch\"} 4.0",
            "conflicts_total{resource=\"secrets\"} 1",
            "watch_errors_total{resource=\"secrets\",category=\"timeout\"} 1",
            "watch_synced{controller=\"syncer\",resource=\"secrets\"} 1",
            "events_total{result=\"published\"} 1",
            "api_server_outage 1",
            "leader 1",
        ] {
            let has = text.contains(&format!("\nhub_addons_{line}\n"));
            assert!(has, "{line} is missing in\n{text}");
        }
    }
}
