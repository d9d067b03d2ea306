//! What can go wrong with a hub.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::time::Duration;

use kube::config::KubeconfigError;

pub use crate::supervisor::LogTail;

/// Why a hub did not do what it was asked for.
///
/// Its `Debug` is written for whoever reads the output of a failed `unwrap` in a test: the message, what
/// caused it, and the program's last words.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// etcd and the rest were not found and could not be built.
    #[error("the control plane's programs are not available: {0}")]
    Programs(String),

    /// The operating system said no.
    #[error("could not {doing}")]
    Io {
        /// What was tried.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },

    /// A program of the hub is not running any more, or never came up.
    #[error("{program} ended, {}; {log}", describe(*status))]
    Ended {
        /// Its name.
        program: &'static str,
        /// Its exit status; none if not even its supervisor is there.
        status: Option<i32>,
        /// Its last words.
        log: LogTail,
    },

    /// A program of the hub runs, and did not do in time what it should.
    #[error("{program} did not {what} within {within:?} (last: {last}); {log}")]
    NotReady {
        /// Its name.
        program: &'static str,
        /// What it did not do.
        what: String,
        /// How long we waited.
        within: Duration,
        /// How the last attempt ended.
        last: String,
        /// Its last words.
        log: LogTail,
    },

    /// Something on the hub did not come to be in time.
    #[error(transparent)]
    TimedOut(#[from] crate::TimedOut),

    /// A call to the hub's API server failed.
    #[error("could not {doing}")]
    Api {
        /// What was tried.
        doing: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },

    /// A user that the hub was not started with.
    #[error("the hub has no user {user:?}; it has {known}. Others are named at the start: HubBuilder::user")]
    UnknownUser {
        /// The name asked for.
        user: String,
        /// The names there are.
        known: String,
    },

    /// A name that can be neither a user nor a file.
    #[error("{0:?} cannot be a user: use letters, digits and any of . - _ : inside the name")]
    UserName(String),

    /// A CRD that the hub does not know.
    #[error("no CRD is called {name:?}; there are {known}")]
    UnknownCrd {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },

    /// A file that should hold a CRD and does not.
    #[error("{path} is not a CustomResourceDefinition: {reason}")]
    NotACrd {
        /// The file.
        path: String,
        /// What the parser says.
        reason: String,
    },

    /// Certificates could not be made.
    #[error("could not make certificates")]
    Certificates(#[from] rcgen::Error),

    /// A certificate or key that cannot be read.
    #[error("{what} is not PEM that can be used: {reason}")]
    Pem {
        /// What it should be.
        what: &'static str,
        /// What the parser says.
        reason: String,
    },

    /// A certificate or key that TLS cannot be spoken with.
    #[error("could not {doing}")]
    Tls {
        /// What was tried.
        doing: String,
        /// Why it failed.
        source: rustls::Error,
    },

    /// A kubeconfig that leads nowhere.
    #[error("could not use the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Why not.
        source: Box<KubeconfigError>,
    },

    /// Nothing can run Pods here.
    #[error("Pods cannot run here: {0}")]
    Pods(String),

    /// An image that containers cannot be made of.
    #[error("{path} is no image: {reason}")]
    Image {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },

    /// An API server that a proxy cannot lead to.
    #[error("{server:?} cannot be led to: {reason}")]
    Upstream {
        /// Its URL.
        server: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A name that can be no cluster's.
    #[error("{0:?} cannot be a cluster: its name has to be a part of a path")]
    ClusterName(String),

    /// The directory for the hub holds something already.
    #[error("{0} is not empty: the hub's directory is removed with the hub, so it must be its own")]
    DirectoryNotEmpty(String),

    /// Too many hubs were running for too long.
    #[error(
        "no place for {wanted} more hub(s) within {within:?}: {limit} may run at once (LOCAL_HUB_MAX). \
         A test that needs several hubs must ask for them together, with LocalHub::start_many"
    )]
    NoPlace {
        /// How many were asked for.
        wanted: usize,
        /// How many may run.
        limit: usize,
        /// How long we waited.
        within: Duration,
    },

    /// A line of the audit log is not an audit event.
    #[error("could not read the audit log: {reason} in {line}")]
    AuditLog {
        /// What the parser says.
        reason: String,
        /// The line.
        line: String,
    },
}

impl HubError {
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Io { doing: doing.into(), source }
    }

    /// For `map_err`: wraps a client's error with what was tried.
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
        // How a shell tells of a death by signal.
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
        assert_eq!(format!("{error:?}"), "could not open a port: the address is taken");
        assert_eq!(error.to_string(), "could not open a port");
    }

    #[test]
    fn a_death_by_signal_is_told_from_an_exit() {
        assert_eq!(describe(Some(137)), "by signal 9");
        assert_eq!(describe(Some(1)), "with exit status 1");
    }
}
