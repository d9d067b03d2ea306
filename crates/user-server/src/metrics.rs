//! The metrics of the user server. No label has a value that a client can choose.

use std::time::Duration;

use hub_core::entry::RefusalReason;
use hub_runtime::observe::metrics::{metric, register};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use strum::{IntoStaticStr, VariantArray};

/// Upper bounds of the latency histograms, in seconds.
const SECONDS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

/// A step on the way of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Hop {
    /// The review of the token, or the cached result.
    Review,
    /// The decision about the grant.
    Grant,
    /// The connection to the API server of the cluster, or an existing one.
    Tunnel,
    /// From the request to the head of the cluster's response.
    Cluster,
}

/// The kinds of open requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum StreamKind {
    /// An ordinary request or a watch, on a connection that it shares.
    Request,
    /// A connection that has switched protocols: exec, attach, port-forward.
    Upgraded,
}

/// Why open requests end.
const CUT: [RefusalReason; 6] = [
    RefusalReason::GrantEnded,
    RefusalReason::GrantUnknown,
    RefusalReason::Limit,
    RefusalReason::SecretUnread,
    RefusalReason::SharedAuthority,
    RefusalReason::ShuttingDown,
];

type Label = [(&'static str, &'static str); 1];

/// The metrics. Clones count together.
#[derive(Debug, Clone)]
pub struct UserServerMetrics {
    hops: Family<Label, Histogram, fn() -> Histogram>,
    pub(crate) forwarded: Counter,
    refused: Family<Label, Counter>,
    open: Family<Label, Gauge>,
    cut: Family<Label, Counter>,
    pub(crate) tunnels: Gauge,
    pub(crate) connections: Gauge,
}

impl UserServerMetrics {
    /// Registers every metric, with its series at zero.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        // `docs/reference.md` is generated from these calls.
        let metrics = Self {
            hops: register(
                registry,
                "user_server_hop_seconds",
                "Duration of each step on the way of a request, by hop: review of the token, grant, tunnel (a connection to \
                 the cluster, or one that exists), cluster (until the head of its response)",
                Family::new_with_constructor(|| Histogram::new(SECONDS)),
            ),
            forwarded: metric(
                registry,
                "user_server_forwarded",
                "Requests that a cluster has responded to",
            ),
            refused: metric(
                registry,
                "user_server_refused",
                "Requests that did not reach a cluster, or ended without its response, by reason",
            ),
            open: metric(
                registry,
                "user_server_open",
                "Open requests, by kind: request, or upgraded for exec, attach and port-forward",
            ),
            cut: metric(
                registry,
                "user_server_cut",
                "Open requests that the user server ended, by reason: one of those of refused requests",
            ),
            tunnels: metric(
                registry,
                "user_server_tunnels",
                "Connections to API servers of clusters",
            ),
            connections: metric(registry, "user_server_connections", "Connections of applications"),
        };
        for reason in RefusalReason::ALL {
            metrics.refused.get_or_create(&[("reason", reason.into_str())]).inc_by(0);
        }
        for reason in CUT {
            metrics.cut.get_or_create(&[("reason", reason.into_str())]).inc_by(0);
        }
        for kind in StreamKind::VARIANTS {
            metrics.open.get_or_create(&[("kind", kind.into())]).set(0);
        }
        metrics
    }

    pub(crate) fn hop(&self, hop: Hop, took: Duration) {
        self.hops.get_or_create(&[("hop", hop.into())]).observe(took.as_secs_f64());
    }

    pub(crate) fn refused(&self, reason: RefusalReason) {
        self.refused.get_or_create(&[("reason", reason.into_str())]).inc();
    }

    /// An open request ends.
    pub(crate) fn cut(&self, reason: RefusalReason) {
        self.cut.get_or_create(&[("reason", reason.into_str())]).inc();
    }

    /// The number of open requests.
    pub(crate) fn open(&self, kind: StreamKind) -> Gauge {
        self.open.get_or_create_owned(&[("kind", kind.into())])
    }
}

/// Counts one in a gauge until it is dropped.
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
