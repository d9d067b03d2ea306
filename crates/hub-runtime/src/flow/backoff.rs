//! Exponential backoff between two bounds, with jitter and without end.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// Delays that double from `min` to `max` and never end. Jitter is added, so a delay can be twice `max`.
pub(crate) fn between(min: Duration, max: Duration) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(min)
        .with_max_delay(max)
        .with_jitter()
        .without_max_times()
        .build()
}
