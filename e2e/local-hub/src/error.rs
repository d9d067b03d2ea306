//! Errors of hubs.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::time::Duration;

use kube::config::KubeconfigError;

pub use crate::supervisor::LogTail;

/// Why an operation on a hub failed.
///
/// Its `Debug` is for readers of a failed `unwrap` in a test: the message, its cause, and the end of the program's log.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The programs of the control plane were not found and could not be built.
    #[error("the control plane's programs are not available: {0}")]
    Programs(String),

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

    /// A program of the hub runs, but did not become ready in time.
    #[error("{program} did not {what} within {within:?} (last: {last}); {log}")]
    NotReady {
        /// Its name.
        program: &'static str,
        /// What it did not do.
        what: String,
        /// The timeout.
        within: Duration,
        /// The result of the last attempt.
        last: String,
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

    /// The hub was not started with this user.
    #[error("the hub has no user {user:?}, only {known}; add users with HubBuilder::user")]
    UnknownUser {
        /// The requested name.
        user: String,
        /// The known names.
        known: String,
    },

    /// A name that is not valid for a user and a file.
    #[error("{0:?} is not a valid user name: must have letters, digits and, inside the name, any of . - _ :")]
    UserName(String),

    #[error("unknown CRD {name:?}; known are {known}")]
    UnknownCrd {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },

    /// A file does not contain a valid CRD.
    #[error("{path} is not a CustomResourceDefinition: {reason}")]
    NotACrd {
        /// The file.
        path: String,
        /// The parser's message.
        reason: String,
    },

    /// Creating certificates failed.
    #[error("cannot create certificates")]
    Certificates(#[from] rcgen::Error),

    /// A certificate or key is not readable.
    #[error("{what} is not valid PEM: {reason}")]
    Pem {
        /// The kind of the input.
        what: &'static str,
        /// The parser's message.
        reason: String,
    },

    /// TLS rejects a certificate or key.
    #[error("cannot {doing}")]
    Tls {
        /// What failed.
        doing: String,
        /// The cause.
        source: rustls::Error,
    },

    /// A kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// The cause.
        source: Box<KubeconfigError>,
    },

    /// This machine cannot run Pods.
    #[error("Pods cannot run here: {0}")]
    Pods(String),

    /// Upstream's programs cannot be built, installed or used.
    #[error("upstream's programs: {0}")]
    Field(String),

    /// An image that containers cannot use.
    #[error("{path} is not a valid image: {reason}")]
    Image {
        /// The file.
        path: String,
        /// The cause.
        reason: String,
    },

    /// A proxy cannot forward to an API server.
    #[error("cannot forward to {server:?}: {reason}")]
    Upstream {
        /// Its URL.
        server: String,
        /// The cause.
        reason: String,
    },

    /// A name that is not valid for a cluster.
    #[error("{0:?} is not a valid cluster name: must be a path segment")]
    ClusterName(String),

    /// The directory for the hub is not empty.
    #[error(
        "{0} is not empty: the hub removes its directory when it ends, so it must not contain other files"
    )]
    DirectoryNotEmpty(String),

    /// Too many hubs ran for too long.
    #[error(
        "timed out after {within:?} waiting to start {wanted} more hub(s): at most {limit} can run at once \
         (LOCAL_HUB_MAX). A test that needs several hubs must start them together, with LocalHub::start_many"
    )]
    NoPlace {
        /// How many were requested.
        wanted: usize,
        /// How many can run.
        limit: usize,
        /// The timeout.
        within: Duration,
    },

    /// A line of the audit log is not an audit event.
    #[error("cannot read the audit log: {reason} in {line}")]
    AuditLog {
        /// The parser's message.
        reason: String,
        line: String,
    },
}

impl HubError {
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Io { doing: doing.into(), source }
    }

    /// For `map_err`: wraps a client's error with the failed operation.
    pub(crate) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unwrap_prints_names_the_cause_and_repeats_nothing() {
        let source = io::Error::new(io::ErrorKind::AddrInUse, "the address is taken");
        let error = HubError::io("open a port", source);
        assert_eq!(format!("{error:?}"), "cannot open a port: the address is taken");
        assert_eq!(error.to_string(), "cannot open a port");
    }

    #[test]
    fn a_death_by_signal_is_distinguished_from_an_exit() {
        assert_eq!(describe(Some(137)), "by signal 9");
        assert_eq!(describe(Some(1)), "with exit status 1");
    }
}
