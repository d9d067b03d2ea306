//! A deadline for everything.
//!
//! client-go holds a lock while a plugin runs: a plugin that blocks stalls every client that shares its configuration.
//! Name resolution has no timeout, a file may be on a mount that blocks, a server may send a byte a second. So the work
//! runs on a thread of its own, its caller waits until the deadline, and the process then ends with the work
//! unfinished.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The current step of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading environment, kubeconfig, and files of the ServiceAccount.
    Configuring,
    /// Resolving the hub's name.
    Resolving,
    /// Connecting over TCP.
    Connecting,
    /// The TLS handshake.
    Handshaking,
    /// Waiting for the response.
    Waiting,
}

impl Stage {
    const ALL: [Self; 5] =
        [Self::Configuring, Self::Resolving, Self::Connecting, Self::Handshaking, Self::Waiting];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuring => "reading the configuration",
            Self::Resolving => "resolving the API server's name",
            Self::Connecting => "connecting to the API server",
            Self::Handshaking => "in the TLS handshake with the API server",
            Self::Waiting => "waiting for the API server's response",
        })
    }
}

/// Records the current step of the work.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU8>);

impl Progress {
    /// A step begins.
    pub fn enter(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }

    fn stage(&self) -> Stage {
        Stage::ALL.get(usize::from(self.0.load(Ordering::Relaxed))).copied().unwrap_or(Stage::Waiting)
    }
}

/// Why the work has no result.
#[derive(Debug, thiserror::Error)]
pub enum DeadlineError {
    #[error("timed out after {timeout:?} while {stage}")]
    Passed {
        timeout: Duration,
        /// The step at the timeout.
        stage: Stage,
    },
    #[error("cannot start a thread")]
    NoThread(#[source] io::Error),
    /// It ended without a result, which is a bug.
    #[error("internal error while {0}")]
    Defect(Stage),
}

/// Runs the work until the timeout. Work that exceeds it continues until the process ends.
pub fn within<T, W>(timeout: Duration, work: W) -> Result<T, DeadlineError>
where
    T: Send + 'static,
    W: FnOnce(Instant, &Progress) -> T + Send + 'static,
{
    let begin = Instant::now();
    let progress = Progress::default();
    let seen = progress.clone();
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new()
        .spawn(move || {
            // Fails only if the caller has stopped waiting.
            let _ = sender.send(work(begin + timeout, &progress));
        })
        .map_err(DeadlineError::NoThread)?;
    receiver.recv_timeout(timeout.saturating_sub(begin.elapsed())).map_err(|error| match error {
        RecvTimeoutError::Timeout => DeadlineError::Passed { timeout, stage: seen.stage() },
        RecvTimeoutError::Disconnected => DeadlineError::Defect(seen.stage()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{DeadlineError, Stage, within};

    #[test]
    fn work_that_blocks_times_out_and_reports_its_step() {
        // A busy machine may start the thread only after the timeout: then a longer one is tried.
        let mut timeout = Duration::from_millis(20);
        let stage = loop {
            let (end, ended) = mpsc::channel();
            let result = within(timeout, move |_, progress| {
                progress.enter(Stage::Resolving);
                // Until the result is there and the other end is dropped.
                let _: Result<(), _> = ended.recv();
            });
            drop(end);
            let Err(DeadlineError::Passed { stage, .. }) = result else { panic!("{result:?}") };
            if stage != Stage::Configuring {
                break stage;
            }
            timeout *= 2;
        };
        assert_eq!(stage, Stage::Resolving);
    }

    #[test]
    fn work_that_ends_gives_its_result() {
        assert_eq!(within(Duration::from_mins(1), |_, _| 7).unwrap(), 7);
    }
}
