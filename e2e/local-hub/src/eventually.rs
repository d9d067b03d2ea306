//! Waits for the effects of controllers, without sleeping for a fixed time.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use tokio::time::Instant;

/// Interval between checks. Short: a test should not add to what it measures.
const INTERVAL: Duration = Duration::from_millis(50);

/// Calls `check` until it succeeds, and returns its value.
///
/// `what` is the condition in the message of a timeout. `check` returns a `bool`, an `Option` (whose value is
/// returned), or a `Result` of one of these or of `()`: see [`Outcome`]. An error is not final; the last one is in the
/// message.
///
/// # Panics
///
/// After `within`, with `what`, the last outcome, and the caller's location.
#[track_caller]
#[allow(clippy::panic, reason = "this is an assertion")]
pub fn eventually<C, F>(
    what: &str,
    within: Duration,
    check: C,
) -> impl Future<Output = <F::Output as Outcome>::Value>
where
    C: FnMut() -> F,
    F: Future<Output: Outcome>,
{
    // An `async fn` would not know its caller.
    let caller = Location::caller();
    async move {
        match try_eventually(what, within, check).await {
            Ok(value) => value,
            Err(timed_out) => panic!("{timed_out}\n  asserted at {caller}"),
        }
    }
}

/// [`eventually`] that returns an error instead of panicking.
pub async fn try_eventually<C, F>(
    what: &str,
    within: Duration,
    mut check: C,
) -> Result<<F::Output as Outcome>::Value, TimedOut>
where
    C: FnMut() -> F,
    F: Future<Output: Outcome>,
{
    let deadline = Instant::now() + within;
    let mut last = "it was never checked".to_owned();
    loop {
        // The check is limited as well: a call to a hung server never returns.
        match tokio::time::timeout_at(deadline, check()).await.map(Outcome::into_result) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(not_yet)) => last = not_yet,
            Err(_) => last = format!("no response; before that, {last}"),
        }
        if Instant::now() + INTERVAL >= deadline {
            return Err(TimedOut { what: what.to_owned(), within, last });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// [`eventually`] has timed out.
#[derive(Clone, Debug, thiserror::Error)]
#[error("timed out after {within:?} waiting for: {what} (last: {last})")]
pub struct TimedOut {
    what: String,
    within: Duration,
    last: String,
}

/// The result of a check.
///
/// A `Result` counts by its value: `Ok(false)` and `Ok(None)` are not success. That is why it is not implemented for a
/// `Result` of any value.
pub trait Outcome {
    /// The value to return.
    type Value;

    /// The value, or the reason why there is none yet.
    fn into_result(self) -> Result<Self::Value, String>;
}

impl Outcome for () {
    type Value = ();

    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl Outcome for bool {
    type Value = ();

    fn into_result(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("it is false".to_owned()) }
    }
}

impl<T> Outcome for Option<T> {
    type Value = T;

    fn into_result(self) -> Result<T, String> {
        self.ok_or_else(|| "there is none".to_owned())
    }
}

impl<O: Outcome, E: fmt::Display> Outcome for Result<O, E> {
    type Value = O::Value;

    fn into_result(self) -> Result<O::Value, String> {
        self.map_err(|error| error.to_string())?.into_result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(120);

    #[tokio::test]
    async fn the_value_found_is_returned() {
        let mut looks = 0;
        let found = eventually("it is the third look", Duration::from_secs(5), || {
            looks += 1;
            std::future::ready(Ok::<_, String>((looks == 3).then_some(looks)))
        });
        assert_eq!(found.await, 3);
    }

    #[tokio::test]
    async fn ok_of_false_is_not_success() {
        let outcome = try_eventually("it is so", SHORT, async || Ok::<_, String>(false)).await;
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "timed out after 120ms waiting for: it is so (last: it is false)"
        );
    }

    #[tokio::test]
    async fn a_check_that_blocks_times_out() {
        let outcome = try_eventually("it answers", SHORT, std::future::pending::<bool>).await;
        assert!(outcome.unwrap_err().to_string().contains("no response"));
    }
}
