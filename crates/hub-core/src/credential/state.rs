//! The state of the copy of one account in one namespace, for people and for metrics.

use strum::{EnumDiscriminants, EnumIter, IntoEnumIterator as _, IntoStaticStr};

use crate::credential::source::Unusable;
use crate::token_names::{MAX, MAX_OF_A_CLUSTER};

/// The state of the copy of one account in one namespace.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    thiserror::Error,
    EnumDiscriminants,
    EnumIter,
    IntoStaticStr,
)]
#[strum_discriminants(name(Label), vis(), derive(IntoStaticStr), strum(serialize_all = "snake_case"))]
pub enum State {
    /// The copy exists, or is about to.
    #[error("the copy exists")]
    Synced,
    /// The copy must not exist, and the API server refuses to delete it.
    #[error(
        "the API server refuses to delete the Secret, so the token remains; the Secret's Event \
         WriteRefused quotes the response"
    )]
    DeleteRefused,
    /// The account does not exist, or does not opt in.
    #[error("the ManagedServiceAccount does not opt in")]
    NotAsked,
    /// The account opts in to other namespaces only.
    #[error("the ManagedServiceAccount opts in to other namespaces only")]
    OutOfScope,
    /// The cluster is not granted to the namespace.
    #[error("no ManagedClusterSetBinding grants the cluster")]
    NotGranted,
    #[error(
        "the namespace belongs to the hub or to a cluster and receives no credential \
         (--protected-namespaces)"
    )]
    ProtectedNamespace,
    /// Whether the cluster is granted is unknown.
    #[error("whether the cluster is granted is unknown, so an existing copy is kept")]
    GrantUnknown,
    /// The names of cluster and account together exceed the length of a Secret's name.
    #[error("the names of cluster and account together are too long for a Secret")]
    NameTooLong,
    /// The account cannot be read, or the list of accounts is incomplete.
    #[error("the account cannot be read, so an existing copy is kept")]
    AccountUnknown,
    /// The account's status names a Secret with another name.
    #[error("status.tokenSecretRef must name the Secret with the name of the account, and names another")]
    TokenElsewhere,
    /// No agent has reported a token.
    #[error("no agent has reported a token yet")]
    NoToken,
    /// Whether an agent has reported a token is unknown.
    #[error("whether there is a token is unknown, so an existing copy is kept")]
    TokenUnknown,
    /// Tokens of the account's name are not watched, because there are too many names.
    #[error(
        "too many names of accounts to watch their tokens: the limits are {MAX_OF_A_CLUSTER} for a \
         cluster and {MAX} in total; give accounts with the same purpose the same name in all clusters"
    )]
    TooManyNames,
    /// The account's agent did not create the Secret.
    #[error(
        "the agent did not create the Secret with the name of the account: it must have type Opaque, the \
         agent's label and an ownerReference to the account"
    )]
    ForeignToken,
    /// The token was reported before the ManagedCluster was created.
    #[error(
        "the token was reported before the ManagedCluster was created, so it may belong to an earlier \
         cluster of the same name; it is synced once the agent reports a new one"
    )]
    EarlierToken,
    /// The Secret contains no valid token.
    #[error("the reported Secret cannot be copied: {0}; an existing copy is kept")]
    UnusableToken(Unusable),
    /// The Secrets of the namespace have not been read yet, or the permission for them has ended.
    #[error("the syncer cannot read the Secrets of the namespace, so an existing copy is kept")]
    CopiesUnknown,
    /// The namespace has no profile of the cluster.
    #[error("the cluster has no ClusterProfile in the namespace, which must own the copy")]
    NoProfile,
    /// The profile in the namespace does not name our cluster manager, in its label or in its spec.
    #[error("the ClusterProfile does not name our cluster manager in both its label and its spec")]
    ForeignProfile,
    /// Another Secret has the name.
    #[error("another Secret has the name of the copy")]
    ForeignSecret,
    /// The copy of another account has the name.
    #[error("a copy for another account has the same name")]
    NameTaken,
    /// The Secret is being deleted, and a finalizer delays it.
    #[error("the Secret is being deleted and waits for a finalizer")]
    Terminating,
    /// The API server refuses to create or change the copy.
    #[error(
        "the API server refuses the write of the Secret because of a quota, a webhook, a policy or a \
         missing permission; the Secret's Event WriteRefused quotes the response"
    )]
    WriteRefused,
}

impl State {
    /// Whether the namespace is meant to receive the token: the account opts in to it, and it is granted the cluster.
    #[must_use]
    pub fn is_offered(self) -> bool {
        let withheld = [
            Self::DeleteRefused,
            Self::NotAsked,
            Self::OutOfScope,
            Self::NotGranted,
            Self::ProtectedNamespace,
            Self::GrantUnknown,
        ];
        !withheld.contains(&self)
    }

    /// Every state, with one example of an unusable token.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// The states that are counted, for metrics that start at zero. The others are normal, and would be counted for
    /// every pair of account and namespace.
    pub fn counted() -> impl Iterator<Item = Self> {
        Self::all().filter(|state| state.is_counted())
    }

    #[must_use]
    pub fn is_counted(self) -> bool {
        !matches!(self, Self::NotAsked | Self::OutOfScope | Self::NotGranted | Self::ProtectedNamespace)
    }

    /// Whether it only waits for objects or lists that other controllers or new watches may be about to provide.
    #[must_use]
    pub fn is_missing(self) -> bool {
        matches!(self, Self::NoProfile | Self::TokenUnknown | Self::CopiesUnknown)
    }

    /// The state as a metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Label::from(self).into()
    }

    /// The state as a condition's reason.
    #[must_use]
    pub fn reason(self) -> &'static str {
        self.into()
    }
}
