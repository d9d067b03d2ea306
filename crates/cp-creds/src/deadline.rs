//! A deadline for everything.
//!
//! client-go holds a lock while a plugin runs: a plugin that blocks stalls every client that shares its configuration.
//! Name resolution has no timeout, a file may be on a mount that blocks, a server may send a byte a second. So the work
//! runs on a thread of its own, its caller waits until the deadline, and the process then ends with the work
//! unfinished.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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

/// Why the work has no result.
#[derive(Debug, thiserror::Error)]
pub enum DeadlineError {
    #[error("timed out after {timeout:?} while {step}")]
    Passed { timeout: Duration, step: &'static str },
    #[error("cannot start a thread")]
    NoThread(#[source] io::Error),
    /// It ended without a result, which is a bug.
    #[error("internal error while {0}")]
    Defect(&'static str),
}

/// Runs the work until the timeout. Work that exceeds it continues until the process ends.
pub fn within<T, W>(timeout: Duration, work: W) -> Result<T, DeadlineError>
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
        .map_err(DeadlineError::NoThread)?;
    receiver.recv_timeout(timeout.saturating_sub(begin.elapsed())).map_err(|error| match error {
        RecvTimeoutError::Timeout => DeadlineError::Passed { timeout, step: seen.step() },
        RecvTimeoutError::Disconnected => DeadlineError::Defect(seen.step()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{CONFIGURING, DeadlineError, within};

    #[test]
    fn work_that_blocks_times_out_and_reports_its_step() {
        // A busy machine may start the thread only after the timeout: then a longer one is tried.
        let mut timeout = Duration::from_millis(20);
        let step = loop {
            let (end, ended) = mpsc::channel();
            let result = within(timeout, move |_, progress| {
                progress.enter("resolving");
                // Until the result is there and the other end is dropped.
                let _: Result<(), _> = ended.recv();
            });
            drop(end);
            let Err(DeadlineError::Passed { step, .. }) = result else { panic!("{result:?}") };
            if step != CONFIGURING {
                break step;
            }
            timeout *= 2;
        };
        assert_eq!(step, "resolving");
    }

    #[test]
    fn work_that_ends_gives_its_result() {
        assert_eq!(within(Duration::from_mins(1), |_, _| 7).unwrap(), 7);
    }
}
