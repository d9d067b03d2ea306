//! Why a benchmark cannot be carried out.

use local_hub::{HubError, TimedOut};

/// Why there is no result. A result that misses a limit is not an error.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The hub does not start, or refuses an object.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A request of the benchmark fails.
    #[error("cannot {doing}: {source}")]
    Api {
        /// What was to be done.
        doing: String,
        /// The response.
        source: Box<kube::Error>,
    },
    /// A file, a socket or a process cannot be used.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was to be done.
        doing: String,
        /// The system's error.
        source: std::io::Error,
    },
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

impl BenchError {
    /// For a request.
    pub fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { doing: doing.into(), source: Box::new(source) }
    }

    /// For the system.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { doing: doing.into(), source }
    }
}
