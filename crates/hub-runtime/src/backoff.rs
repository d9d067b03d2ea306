//! How long to wait after a failure: twice as long each time between two bounds, with jitter, for ever.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// Waits that begin at `min` and never end. The jitter comes on top, so that one can last twice `max`.
pub(crate) fn between(min: Duration, max: Duration) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(min)
        .with_max_delay(max)
        .with_jitter()
        .without_max_times()
        .build()
}
