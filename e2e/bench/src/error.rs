//! Why a benchmark cannot be carried out.

use local_hub::{HubError, TimedOut};

/// Why there is no result. A result that misses a limit is not an error.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The hub does not start, or refuses an object. This shows the cause as well.
    #[error("{0:?}")]
    Hub(#[from] HubError),
    /// The controllers do not converge.
    #[error("{scenario}: {timed_out}; the end of the controllers' logs:\n{logs}")]
    NotConverged {
        scenario: String,
        /// What was expected, and how far the hub is.
        timed_out: TimedOut,
        /// The last lines of every program.
        logs: String,
    },
    /// The benchmark's own watch was interrupted, so that its events cannot be counted.
    #[error("{0}: the watch that counts changes was interrupted")]
    WatchInterrupted(String),
    /// A program cannot be started or has ended.
    #[error("controllers {command:?}: {problem}")]
    Program {
        command: String,
        /// What is wrong.
        problem: String,
    },
}
