//! Why a request ends at the entry.

use hub_api::names::{ClusterName, Namespace, ProfileKey};
use object_names::visible;
use serde_json::{Value, json};
use strum::{EnumMessage, IntoStaticStr, VariantArray};

/// How many characters of a message are shown.
const MESSAGE_LENGTH: usize = 1000;

/// Why a request is not sent to its cluster, or has no response of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The path does not begin with the name of a cluster.
    #[error("the path must begin with the name of a cluster, as in /CLUSTER/api/v1/namespaces")]
    NoCluster,
    /// The target is not the path of a URL that every program reads in the same way.
    #[error("the request target {0}")]
    Target(&'static str),
    /// A header would change who the caller is.
    #[error(
        "the header {0} is not accepted: the cluster sees the ServiceAccount that the token belongs to"
    )]
    Impersonation(String),
    #[error("there is more than one Authorization header")]
    SeveralCredentials,
    #[error(
        "a bearer token is required: the ServiceAccount token of the application, projected for the audience of the user \
         server"
    )]
    NoToken,
    /// The hub does not accept the token.
    #[error(
        "the hub does not accept the token for the audience {audience:?}: it must be a ServiceAccount token that is \
         projected for this audience and has not expired"
    )]
    InvalidToken {
        /// The audience of the user server.
        audience: String,
    },
    /// The hub has not reviewed the token.
    #[error("the hub cannot review the token at the moment")]
    ReviewUnknown,
    /// The hub reviews no more tokens for now.
    #[error(
        "too many tokens must be reviewed: from this address, of the namespace of this token, or in all; try again"
    )]
    TooManyReviews,
    /// The token is not that of a ServiceAccount.
    #[error(
        "the token is not that of a ServiceAccount: the grant is that of a ServiceAccount's namespace"
    )]
    NoServiceAccount,
    #[error(
        "the cluster {} is not granted to the namespace {}: kubectl clusterprofile explain names the reason",
        .0.cluster, .0.namespace
    )]
    NotGranted(ProfileKey),
    /// The caller's namespace is one of the hub itself.
    #[error("the namespace {0} is protected: no application reaches a cluster from there")]
    Protected(Namespace),
    #[error(
        "whether the cluster {} is granted to the namespace {} cannot be decided at the moment",
        .0.cluster, .0.namespace
    )]
    GrantUnknown(ProfileKey),
    #[error("the cluster {} is no longer granted to the namespace {}", .0.cluster, .0.namespace)]
    GrantEnded(ProfileKey),
    #[error("the namespace {namespace} has {limit} requests open, the limit for each namespace")]
    TooManyRequests { namespace: Namespace, limit: usize },
    #[error(
        "the namespace {} has {limit} requests open to the cluster {}, the limit for each of its clusters",
        .key.namespace, .key.cluster
    )]
    TooManyToCluster { key: ProfileKey, limit: usize },
    /// What it holds in memory is needed for other requests.
    #[error(
        "the user server holds too many bytes that were not read, and most of them of the namespace {}: this request \
         to the cluster {} ends",
        .0.namespace, .0.cluster
    )]
    TooSlow(ProfileKey),
    /// There is no token of the account that reaches the cluster.
    #[error(
        "the cluster {0} has not reported the token of the user server's ManagedServiceAccount yet"
    )]
    NoAccount(ClusterName),
    /// What identifies the user server to clusters and to the proxy server may be out of date.
    #[error("the user server can no longer read its {0}; try again")]
    SecretUnread(&'static str),
    /// The API server of the cluster cannot be told from that of another one.
    #[error(
        "the cluster {0} has a CA in common with another cluster, which the user server is configured to refuse"
    )]
    SharedAuthority(ClusterName),
    /// There is no connection to the cluster.
    #[error("the cluster {cluster} cannot be reached: {cause}")]
    Unreachable {
        cluster: ClusterName,
        /// The step that failed, without any part of a request.
        cause: String,
    },
    /// The cluster does not accept the account of the user server.
    #[error("the cluster {0} does not accept the token of the user server's ManagedServiceAccount")]
    AccountRefused(ClusterName),
    /// The cluster sends the client elsewhere.
    #[error(
        "the cluster {0} redirects to another server, or to a path that is not clearly one of its own"
    )]
    Redirect(ClusterName),
    /// The process is about to end.
    #[error("the user server is shutting down; try again")]
    ShuttingDown,
}

/// The reasons of refusals: a fixed set, so that each can be the label of a metric. The comments are the texts of
/// `docs/reference.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumMessage, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum RefusalReason {
    /// The path names no cluster or is ambiguous, there are several Authorization headers, or a header would change who
    /// the caller is.
    Malformed,
    /// The request has no bearer token.
    NoToken,
    /// The hub does not accept the token for the audience of the user server, or it is not that of a ServiceAccount.
    InvalidToken,
    /// The hub cannot review the token at the moment.
    ReviewUnknown,
    /// The cluster is not granted to the namespace of the caller, or the namespace is protected.
    NotGranted,
    /// Whether the cluster is granted cannot be decided at the moment.
    GrantUnknown,
    /// The grant ended while the request was open.
    GrantEnded,
    /// The namespace has too many open requests (`--max-requests-per-namespace`) in all or to the cluster, too many of its
    /// bytes were not read, or too many tokens must be reviewed: from the address of the client, of the namespace, or in
    /// all.
    Limit,
    /// The cluster has not reported the token of the user server's account yet.
    NoAccount,
    /// The Secrets of the accounts, of the client certificate or of the proxy server's CA could not be read for a minute.
    SecretUnread,
    /// The cluster has a CA in common with another one (`--refuse-shared-authorities`).
    SharedAuthority,
    /// The cluster cannot be reached.
    Unreachable,
    /// The cluster does not accept the token of the user server's account.
    AccountRefused,
    /// The cluster redirects to another server, or to a path that is not clearly one of its own.
    Redirect,
    /// The user server is shutting down.
    ShuttingDown,
}

impl RefusalReason {
    /// Every reason, for metrics that start at zero.
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

impl Refusal {
    /// The prefix of every message, so that it cannot be taken for one of a cluster.
    pub const PREFIX: &str = "hub-addons user server:";

    /// The reason as a label.
    #[must_use]
    pub fn reason(&self) -> RefusalReason {
        self.kind().0
    }

    /// The HTTP status code.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.kind().1
    }

    fn kind(&self) -> (RefusalReason, u16) {
        match self {
            Self::NoCluster => (RefusalReason::Malformed, 404),
            Self::Target(_) | Self::Impersonation(_) | Self::SeveralCredentials => {
                (RefusalReason::Malformed, 400)
            }
            Self::NoToken => (RefusalReason::NoToken, 401),
            Self::InvalidToken { .. } => (RefusalReason::InvalidToken, 401),
            Self::NoServiceAccount => (RefusalReason::InvalidToken, 403),
            Self::ReviewUnknown => (RefusalReason::ReviewUnknown, 503),
            Self::NotGranted(_) | Self::Protected(_) => (RefusalReason::NotGranted, 403),
            Self::GrantUnknown(_) => (RefusalReason::GrantUnknown, 503),
            Self::GrantEnded(_) => (RefusalReason::GrantEnded, 403),
            Self::TooManyRequests { .. }
            | Self::TooManyToCluster { .. }
            | Self::TooSlow(_)
            | Self::TooManyReviews => (RefusalReason::Limit, 429),
            Self::NoAccount(_) => (RefusalReason::NoAccount, 503),
            Self::SecretUnread(_) => (RefusalReason::SecretUnread, 503),
            Self::SharedAuthority(_) => (RefusalReason::SharedAuthority, 502),
            Self::Unreachable { .. } => (RefusalReason::Unreachable, 502),
            Self::AccountRefused(_) => (RefusalReason::AccountRefused, 502),
            Self::Redirect(_) => (RefusalReason::Redirect, 502),
            Self::ShuttingDown => (RefusalReason::ShuttingDown, 503),
        }
    }

    /// After how many seconds a client may try again, if that can help.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        matches!(self.code(), 429 | 503).then_some(1)
    }

    /// The message that clients show on terminals. A part of it can be the text of a cluster, such as of its certificate.
    #[must_use]
    pub fn message(&self) -> String {
        let text: String = self.to_string().chars().take(MESSAGE_LENGTH).collect();
        format!("{} {}", Self::PREFIX, visible(&text))
    }

    /// The body of the response: a `Status` of the Kubernetes API.
    #[must_use]
    pub fn status(&self) -> Value {
        let code = self.code();
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            _ => "InternalError",
        };
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message(), "reason": reason, "code": code,
        });
        if let Some(seconds) = self.retry_after() {
            status["details"] = json!({ "retryAfterSeconds": seconds });
        }
        status
    }
}
