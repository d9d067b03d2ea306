//! Why a list or a watch ended, and what this means for the position of the next watch.

use kube::core::Status;

use crate::write::error::{Category, caused_by, summary};

/// The status code for a resourceVersion or continue token that is too old.
const GONE: u16 = 410;

/// The cause that the API server reports for a resourceVersion that it has not reached.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

/// Text that is not valid in a response of the API server.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub(super) String);

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    #[error("cannot list: {}", summary(.0))]
    List(kube::Error),
    #[error("cannot start a watch: {}", summary(.0))]
    Start(kube::Error),
    #[error("the watch stream failed: {}", summary(.0))]
    Stream(kube::Error),
    /// The API server ended a watch with this status.
    #[error("the API server ended the watch: {}", object_names::visible(&.0.message))]
    Status(Box<Status>),
    /// The API server sent nothing within the time limit.
    #[error("the API server sent no data in time")]
    Silent,
    /// The response is not a list or an object.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The watch showed an older version than before.
    #[error("the watch has gone back from resourceVersion {from} to {to}")]
    Rewound {
        /// The previous version.
        from: String,
        /// The version after it.
        to: String,
    },
}

impl WatchError {
    pub(super) fn category(&self) -> Category {
        match self {
            Self::List(error) | Self::Start(error) | Self::Stream(error) => Category::of(error),
            Self::Status(status) => Category::of_status(status),
            Self::Silent => Category::Timeout,
            Self::Rewound { .. } => Category::Expired,
            Self::Malformed(_) => Category::Other,
        }
    }

    /// Whether the API server does not serve the resource: its CRD is missing.
    pub(super) fn is_not_served(&self) -> bool {
        matches!(self, Self::List(_) | Self::Start(_)) && self.category() == Category::NotServed
    }

    /// Whether the requested history has expired. The API server requests a new list in this way, also if a list took
    /// so long that its continue token expired.
    pub(super) fn is_history_gone(&self) -> bool {
        match self {
            Self::Status(status)
            | Self::List(kube::Error::Api(status))
            | Self::Start(kube::Error::Api(status))
            | Self::Stream(kube::Error::Api(status)) => {
                status.code == GONE || caused_by(status, TOO_LARGE)
            }
            Self::Rewound { .. } => true,
            _ => false,
        }
    }

    /// Whether the response to a list did not arrive, or not as a whole.
    pub(super) fn is_cut_short(&self) -> bool {
        match self {
            Self::List(kube::Error::ReadEvents(_)) | Self::Silent => true,
            Self::List(_) => self.category() == Category::Timeout,
            _ => false,
        }
    }

    /// Whether the API server could not be reached. A failed stream does not show this, only the next request does.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::List(_) | Self::Start(_)) && self.category() == Category::Unavailable
    }
}
