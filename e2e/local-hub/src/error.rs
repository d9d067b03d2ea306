//! Errors of hubs.

use std::error::Error as _;
use std::fmt;
use std::io;

pub use crate::supervisor::LogTail;

/// Why an operation on a hub failed.
///
/// Its `Debug` is for readers of a failed `unwrap` in a test: the message, its cause, and the end of the program's log.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// What the message says.
    #[error("{0}")]
    Failed(String),

    /// An operating system call failed.
    #[error("cannot {doing}")]
    Io {
        /// What failed.
        doing: String,
        /// The cause.
        source: io::Error,
    },

    /// A program of the hub has ended, or failed to start.
    #[error("{program} ended, {}; {log}", describe(*status))]
    Ended {
        /// Its name.
        program: &'static str,
        /// Its exit status; `None` if even its supervisor is gone.
        status: Option<i32>,
        /// The end of its log.
        log: LogTail,
    },

    /// A condition was not met in time.
    #[error(transparent)]
    TimedOut(#[from] crate::TimedOut),

    /// A call to the hub's API server failed.
    #[error("cannot {doing}")]
    Api {
        /// What failed.
        doing: String,
        /// The cause.
        source: Box<kube::Error>,
    },

    /// Creating certificates failed.
    #[error("cannot create certificates")]
    Certificates(#[from] rcgen::Error),
}

impl HubError {
    /// For the operating system: wraps its error with the failed operation.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Io { doing: doing.into(), source }
    }

    /// For `map_err`: wraps a client's error with the failed operation.
    pub fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { doing: doing.into(), source: Box::new(source) }
    }
}

impl fmt::Debug for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.to_string();
        f.write_str(&last)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            // kube's errors repeat their sources.
            let text = error.to_string();
            if !last.contains(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

fn describe(status: Option<i32>) -> String {
    match status {
        // Shells report a death by signal this way.
        Some(status) if status > 128 => format!("by signal {}", status - 128),
        Some(status) => format!("with exit status {status}"),
        None => "and so did its supervisor".to_owned(),
    }
}
