//! Why a container does not run, for its status.

use std::fmt;
use std::io;

/// The reason and message of a waiting container, as a kubelet writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The CamelCase reason.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The container's specification is not valid.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new("CreateContainerConfigError", message)
    }

    /// A field that this runner does not support.
    pub(crate) fn unsupported(what: impl fmt::Display) -> Self {
        Self::config(format!("local-hub does not support {what}"))
    }

    /// For `map_err`: an operating system call failed.
    pub(crate) fn io(doing: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new("CreateContainerError", format!("cannot {doing}: {error}"))
    }

    /// For `map_err`: a request to the API server failed.
    pub(crate) fn api(doing: impl fmt::Display) -> impl FnOnce(kube::Error) -> Self {
        move |error| Self::config(format!("cannot {doing}: {error}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}
