//! Why there is no credential, on one line.

use std::iter::successors;

use crate::deadline::DeadlineError;
use crate::exec_info::ExecInfoError;
use crate::fetch::FetchError;
use crate::in_cluster::InClusterError;
use crate::kubeconfig::KubeconfigError;
use crate::names::InvalidName;
use crate::own_token::OwnTokenError;
use crate::proxy::InvalidProxy;
use crate::synced_secret::SecretError;

/// Why there is no credential.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is not valid.
    #[error(transparent)]
    ExecInfo(#[from] ExecInfoError),
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The pod's ServiceAccount cannot be used.
    #[error(transparent)]
    InCluster(#[from] InClusterError),
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The environment does not name a proxy that can be used.
    #[error("HTTPS_PROXY cannot be used: {0}; NO_PROXY excepts hosts from it")]
    Proxy(#[from] InvalidProxy),
    /// The hub did not return the Secret. Consumers' documentation quotes the beginning of this message.
    #[error("failed to get synced credential secret {secret} from {server}")]
    Fetch {
        /// Namespace and name.
        secret: String,
        /// The URL of the hub, and that of the proxy to it.
        server: String,
        source: FetchError,
    },
    /// The Secret is refused.
    #[error("synced credential secret {secret} is refused: {why}")]
    Refused {
        /// Namespace and name.
        secret: String,
        why: SecretError,
    },
    /// The own token is not returned.
    #[error(transparent)]
    OwnToken(#[from] OwnTokenError),
    /// It took too long.
    #[error(transparent)]
    Deadline(#[from] DeadlineError),
}

/// An error and its causes on one line: escapes them, since they may contain text from elsewhere.
#[must_use]
pub fn in_one_line(error: &dyn std::error::Error) -> String {
    let causes = successors(Some(error), |error| error.source());
    object_names::visible(&causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}
