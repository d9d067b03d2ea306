//! Why a list or a watch ended, and what that says about the place where the next watch would begin.

use kube::core::Status;

use crate::error::{Category, summary};

/// The code of an API server whose history no longer reaches back to where a watch or a continue token begins.
const GONE: u16 = 410;

/// The cause that the API server names when it is asked for a resourceVersion that it has not reached.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

/// A text that the API server never sends.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(String);

impl Malformed {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    /// A list failed.
    #[error("cannot list: {}", summary(.0))]
    List(kube::Error),
    /// A watch did not begin.
    #[error("cannot start a watch: {}", summary(.0))]
    Start(kube::Error),
    /// A watch broke off.
    #[error("the watch broke off: {}", summary(.0))]
    Stream(kube::Error),
    /// The API server ended a watch with this status.
    #[error("the API server ended the watch: {}", .0.message)]
    Status(Box<Status>),
    /// The API server sent nothing for longer than it may.
    #[error("the API server sent nothing in time")]
    Silent,
    /// The API server sent what is not a list or an object.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A list has no resourceVersion to watch from.
    #[error("the list has no resourceVersion to watch from")]
    NoVersion,
    /// The watch showed an older version than before.
    #[error("the watch has gone back from resourceVersion {from} to {to}")]
    Rewound {
        /// The version before.
        from: String,
        /// The version that was shown after it.
        to: String,
    },
}

impl WatchError {
    /// The category of the error.
    pub(super) fn category(&self) -> Category {
        match self {
            Self::List(error) | Self::Start(error) | Self::Stream(error) => Category::of(error),
            Self::Status(status) => Category::of_status(status),
            Self::Silent => Category::Timeout,
            Self::Rewound { .. } => Category::Expired,
            Self::Malformed(_) | Self::NoVersion => Category::Other,
        }
    }

    /// Whether the API server does not serve the resource: its CRD is missing.
    pub(super) fn is_not_served(&self) -> bool {
        matches!(self, Self::List(_) | Self::Start(_)) && self.category() == Category::NotServed
    }

    /// Whether the history that the watch followed is no longer there. This is the API server's ordinary way to ask for
    /// a new list, also where a list took so long that its continue token expired.
    pub(super) fn is_history_gone(&self) -> bool {
        let gone = |status: &Status| {
            let mut causes = status.details.iter().flat_map(|details| &details.causes);
            status.code == GONE || causes.any(|cause| cause.reason == TOO_LARGE)
        };
        match self {
            Self::Status(status)
            | Self::List(kube::Error::Api(status))
            | Self::Start(kube::Error::Api(status))
            | Self::Stream(kube::Error::Api(status)) => gone(status),
            Self::Rewound { .. } => true,
            _ => false,
        }
    }

    /// Whether there was no API server to talk to. A stream that breaks off does not say so: the next request will.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::List(_) | Self::Start(_)) && self.category() == Category::Unavailable
    }
}
