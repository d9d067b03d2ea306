//! How long the machine has been suspended.
//!
//! `CLOCK_MONOTONIC`, by which tokio and `std::time::Instant` count, stands still meanwhile on Linux; `CLOCK_BOOTTIME`
//! does not (`clock_gettime(2)`). The difference between the two grows only when the machine is suspended.

use std::time::Duration;

/// The time that this machine has been suspended since it was booted.
#[cfg(target_os = "linux")]
pub(crate) fn so_far() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    // In this order the time in between makes the difference larger, by microseconds.
    let awake = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(awake)
}

/// Unknown, so taken to be none.
#[cfg(not(target_os = "linux"))]
pub(crate) fn so_far() -> Duration {
    Duration::ZERO
}
