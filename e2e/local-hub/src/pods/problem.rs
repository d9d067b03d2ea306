//! Why a container does not run, as its status shows it.

use std::fmt;
use std::io;

/// What keeps a container from running, in the words of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// A word for programs.
    pub(crate) reason: &'static str,
    /// A sentence for people.
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The description of a container cannot be followed.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new("CreateContainerConfigError", message)
    }

    /// A field that a Pod may have and this runner does not know.
    pub(crate) fn unsupported(what: impl fmt::Display) -> Self {
        Self::config(format!("local-hub does not know {what}"))
    }

    /// For `map_err`: the machine said no.
    pub(crate) fn io(doing: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new("CreateContainerError", format!("could not {doing}: {error}"))
    }

    /// For `map_err`: the API server said no.
    pub(crate) fn api(doing: impl fmt::Display) -> impl FnOnce(kube::Error) -> Self {
        move |error| Self::config(format!("could not {doing}: {error}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}
