//! A deadline for everything.
//!
//! client-go holds a lock while a plugin runs: a plugin that blocks stalls every client that shares its configuration.
//! Name resolution has no timeout, a file may be on a mount that blocks, a server may send a byte a second. So the work
//! runs on a thread of its own, its caller waits until the deadline, and the process then ends with the work
//! unfinished.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

/// The first step of the work.
const CONFIGURING: &str = "reading the configuration";

/// The current step of the work, as an error names it.
#[derive(Clone, Debug)]
pub struct Progress(Arc<Mutex<&'static str>>);

impl Progress {
    /// A step begins.
    pub fn enter(&self, step: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    fn step(&self) -> &'static str {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the work until the timeout. Work that exceeds it continues until the process ends.
pub fn within<T, W>(timeout: Duration, work: W) -> Result<T>
where
    T: Send + 'static,
    W: FnOnce(Instant, &Progress) -> T + Send + 'static,
{
    let begin = Instant::now();
    let progress = Progress(Arc::new(Mutex::new(CONFIGURING)));
    let seen = progress.clone();
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new()
        .spawn(move || {
            // Fails only if the caller has stopped waiting.
            let _ = sender.send(work(begin + timeout, &progress));
        })
        .context("cannot start a thread")?;
    receiver.recv_timeout(timeout.saturating_sub(begin.elapsed())).map_err(|error| match error {
        RecvTimeoutError::Timeout => anyhow!("timed out after {timeout:?} while {}", seen.step()),
        // The work ended without a result, which is a bug.
        RecvTimeoutError::Disconnected => anyhow!("internal error while {}", seen.step()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{CONFIGURING, within};

    #[test]
    fn work_that_blocks_times_out_and_reports_its_step() {
        // A busy machine may start the thread only after the timeout: then a longer one is tried.
        let mut timeout = Duration::from_millis(20);
        let error = loop {
            let (end, ended) = mpsc::channel();
            let result = within(timeout, move |_, progress| {
                progress.enter("resolving");
                // Until the result is there and the other end is dropped.
                let _: Result<(), _> = ended.recv();
            });
            drop(end);
            let error = result.unwrap_err().to_string();
            if !error.ends_with(CONFIGURING) {
                break error;
            }
            timeout *= 2;
        };
        assert_eq!(error, format!("timed out after {timeout:?} while resolving"));
    }

    #[test]
    fn work_that_ends_gives_its_result() {
        assert_eq!(within(Duration::from_mins(1), |_, _| 7).unwrap(), 7);
    }
}
