//! The metrics of copies of tokens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hub_core::credential::state::State as CopyState;
use hub_runtime::observe::metrics::{WRITE_SECONDS, metric, register};
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The metrics of the syncer. Clones count together.
#[derive(Debug, Clone)]
pub struct CredentialMetrics {
    copies: Family<[(&'static str, &'static str); 1], Gauge>,
    unscoped: Gauge,
    sync_seconds: Histogram,
    expiry: TokenExpiry,
}

/// The earliest expiry of the copied tokens. A scrape shows how long it takes until then.
#[derive(Debug, Clone, Default)]
struct TokenExpiry(Arc<Mutex<Option<Timestamp>>>);

impl Collector for TokenExpiry {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let encoder = encoder.encode_descriptor(
            "next_token_expiry_seconds",
            "Time until the first of the copied tokens expires, negative if it has; absent if there is none",
            None,
            MetricType::Gauge,
        )?;
        let Some(at) = *self.0.lock() else { return Ok(()) };
        ConstGauge::new(at.as_second() - Timestamp::now().as_second()).encode(encoder)
    }
}

impl Default for CredentialMetrics {
    fn default() -> Self {
        Self::register(&mut Registry::default())
    }
}

impl CredentialMetrics {
    /// Registers the metrics, and initializes the series of the states of copies.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            copies: metric(
                registry,
                "credentials",
                "Copies of tokens, by state: synced, or the reason why not",
            ),
            unscoped: metric(
                registry,
                "credentials_unscoped",
                "Tokens that more than one namespace receives although their ManagedServiceAccount has no annotation \
                 sync-to-namespaces",
            ),
            sync_seconds: register(
                registry,
                "credential_sync_seconds",
                "Time from observing a changed token to the last write of a copy",
                Histogram::new(WRITE_SECONDS),
            ),
            expiry: TokenExpiry::default(),
        };
        registry.register_collector(Box::new(metrics.expiry.clone()));
        metrics
    }

    /// Initializes the series of the states of copies.
    pub(crate) fn declare(&self) {
        for state in CopyState::counted() {
            self.count(state, 0);
        }
    }

    /// Counts a copy that has entered or left a state.
    pub(crate) fn count(&self, state: CopyState, difference: i64) {
        self.copies.get_or_create(&[("state", state.as_str())]).inc_by(difference);
    }

    /// Sets how many tokens more than one namespace receives although their account names no namespaces.
    pub(crate) fn set_unscoped(&self, accounts: usize) {
        self.unscoped.set(i64::try_from(accounts).unwrap_or(i64::MAX));
    }

    /// Observes how long copying a token took.
    pub(crate) fn synced(&self, took: Duration) {
        self.sync_seconds.observe(took.as_secs_f64());
    }

    /// Sets the earliest expiry of the copied tokens.
    pub(crate) fn set_next_expiry(&self, at: Option<Timestamp>) {
        *self.expiry.0.lock() = at;
    }
}

#[cfg(test)]
mod tests {
    use hub_runtime::observe::metrics::Metrics;

    use super::*;

    #[test]
    fn the_time_until_the_first_token_expires_is_absent_without_a_token() {
        let (metrics, copies) = Metrics::with("0", CredentialMetrics::register);
        let left = || {
            let (text, series) = (metrics.text(), "hub_addons_next_token_expiry_seconds");
            let line = text.lines().find(|line| line.starts_with(series))?;
            line.rsplit(' ').next()?.parse::<i64>().ok()
        };
        assert_eq!(left(), None);
        copies.set_next_expiry(Timestamp::now().checked_add(Duration::from_hours(1)).ok());
        assert!(left().is_some_and(|seconds| (3500..=3600).contains(&seconds)));
        copies.set_next_expiry(None);
        assert_eq!(left(), None);
    }
}
