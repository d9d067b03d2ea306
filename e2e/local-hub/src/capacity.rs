//! Limits how many hubs run in this process at the same time, and how many of them start.
//!
//! Each uses up to half a gigabyte of memory, and two cores for some seconds while it starts. Tests mostly wait, so
//! more of them run at once than there are cores; if all of them started hubs at once, deadlines would be missed.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::HubError;

/// Overrides [`DEFAULT`].
const VARIABLE: &str = "LOCAL_HUB_MAX";
const DEFAULT: usize = 12;

/// How many hubs start concurrently.
const STARTING: usize = 2;

/// Longer than any test holds a hub. A test that waits longer waits for its own hub.
const PATIENCE: Duration = Duration::from_mins(20);

static PLACES: LazyLock<(usize, Arc<Semaphore>)> = LazyLock::new(|| {
    let set = std::env::var(VARIABLE).ok().and_then(|value| value.parse().ok());
    let limit = set.unwrap_or(DEFAULT).max(1);
    (limit, Arc::new(Semaphore::new(limit)))
});

static STARTS: Semaphore = Semaphore::const_new(STARTING);

/// Waits until one more hub may start, and blocks others until the permit is dropped. Its holder must not wait for
/// others.
pub(crate) async fn start() -> Option<SemaphorePermit<'static>> {
    STARTS.acquire().await.ok()
}

/// The permit for one hub; `None` if it shares the permits of those it was started with.
pub(crate) type HubPlace = Option<OwnedSemaphorePermit>;

/// Waits until `wanted` hubs may start, and takes all permits at once: two tests that took them one by one could each
/// hold what the other waits for.
///
/// More hubs than the limit start together when no others run.
pub(crate) async fn take(wanted: usize) -> Result<Vec<HubPlace>, HubError> {
    let (limit, places) = &*PLACES;
    let permits = u32::try_from(wanted.min(*limit)).unwrap_or(u32::MAX);
    let taken =
        tokio::time::timeout(PATIENCE, Arc::clone(places).acquire_many_owned(permits)).await;
    let Ok(Ok(mut permits)) = taken else {
        return Err(HubError::Failed(format!(
            "timed out after {PATIENCE:?} waiting to start {wanted} more hub(s): at most {limit} can run at once \
             (LOCAL_HUB_MAX). A test that needs several hubs must start them together, with LocalHub::start_many"
        )));
    };
    Ok((0..wanted).map(|_| permits.split(1)).collect())
}
