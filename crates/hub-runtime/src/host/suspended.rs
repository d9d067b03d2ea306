//! How long the machine has been suspended.
//!
//! On Linux, `CLOCK_MONOTONIC`, which tokio and `std::time::Instant` use, does not advance while the machine is
//! suspended; `CLOCK_BOOTTIME` does (`clock_gettime(2)`). The difference between the two is the time spent suspended.

use std::time::Duration;

/// The total time that this machine has been suspended since boot.
#[cfg(target_os = "linux")]
pub(crate) fn so_far() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    // In this order, the time between the two reads can make the result too large, by microseconds, but never too
    // small.
    let awake = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(awake)
}

/// Not available on this platform, so zero.
#[cfg(not(target_os = "linux"))]
pub(crate) fn so_far() -> Duration {
    Duration::ZERO
}
