//! The state of the copy of one account in one namespace, for people and for metrics.

use strum::{EnumDiscriminants, EnumIter, EnumMessage, IntoEnumIterator as _, IntoStaticStr};

use crate::credential::source::Unusable;
use crate::token_names::{MAX, MAX_OF_A_CLUSTER};

/// The state of the copy of one account in one namespace. Its text is for people; a comment says more, for
/// `docs/reference.md`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    EnumDiscriminants,
    EnumIter,
    EnumMessage,
    IntoStaticStr,
    thiserror::Error,
)]
#[strum(const_into_str)]
#[strum_discriminants(
    name(Label),
    vis(),
    derive(IntoStaticStr),
    strum(serialize_all = "snake_case")
)]
pub enum State {
    /// The copy is up to date. The metric also counts a copy whose write is pending, which `explain` reports as
    /// `CredentialOutdated`.
    #[error("the copy exists")]
    Synced,
    /// The API server refuses to delete a copy that must not exist, or the deletion has failed for some seconds.
    #[error(
        "the API server refuses to delete the Secret, so the token remains; the Secret's \
         Event WriteRefused quotes the response"
    )]
    DeleteRefused,
    /// The ManagedServiceAccount does not exist, or does not opt in to copies.
    #[error("the ManagedServiceAccount does not opt in")]
    NotAsked,
    #[error("the ManagedServiceAccount opts in to other namespaces only")]
    OutOfScope,
    #[error("no ManagedClusterSetBinding grants the cluster")]
    NotGranted,
    #[error(
        "the namespace belongs to the hub or to a cluster and receives no credential \
         (--protected-namespaces)"
    )]
    ProtectedNamespace,
    #[error("whether the cluster is granted is unknown, so an existing copy is kept")]
    GrantUnknown,
    #[error(
        "the name of the ManagedServiceAccount is reserved for that of the user server, whose \
         token is copied nowhere"
    )]
    ReservedAccount,
    /// In the step `Account`: the names of cluster and account together are too long for a Secret.
    #[error("the names of cluster and account together are too long for a Secret")]
    NameTooLong,
    /// The ManagedServiceAccount cannot be read, its `status.conditions` are longer than 64 KiB, or the list of
    /// accounts is incomplete. An existing copy is kept.
    #[error("the account cannot be read, so an existing copy is kept")]
    AccountUnknown,
    #[error(
        "status.tokenSecretRef must name the Secret with the name of the account, and names \
         another"
    )]
    TokenElsewhere,
    #[error("no agent has reported a token yet")]
    NoToken,
    #[error("whether there is a token is unknown, so an existing copy is kept")]
    TokenUnknown,
    /// There are too many names of accounts to watch their tokens. Give accounts with the same purpose the same name in
    /// all clusters.
    #[error(
        "too many names of accounts to watch their tokens: the limits are {MAX_OF_A_CLUSTER} for a cluster and {MAX} in \
         total; give accounts with the same purpose the same name in all clusters"
    )]
    TooManyNames,
    #[error(
        "the agent did not create the Secret with the name of the account: it must have type \
         Opaque, the agent's label and an ownerReference to the account"
    )]
    ForeignToken,
    #[error(
        "the token was reported before the ManagedCluster was created, so it may belong to an \
                   earlier cluster of the same name; it is synced once the agent reports a new one"
    )]
    EarlierToken,
    /// The reported Secret contains no valid token. An existing copy is kept.
    #[error("the reported Secret cannot be copied: {0}; an existing copy is kept")]
    UnusableToken(Unusable),
    #[error("the syncer cannot read the Secrets of the namespace, so an existing copy is kept")]
    CopiesUnknown,
    /// In the step `Credential`: without a profile, the copy of the token has no owner and is not created.
    #[error("the cluster has no ClusterProfile in the namespace, which must own the copy")]
    NoProfile,
    /// ClusterProfiles could be neither listed nor watched for a minute. An existing copy is kept.
    #[error("whether there is a ClusterProfile is unknown, so an existing copy is kept")]
    ProfileUnknown,
    /// In the step `Credential`: the profile that should own the copy does not name our cluster manager in both its label
    /// and its spec.
    #[error("the ClusterProfile does not name our cluster manager in both its label and its spec")]
    ForeignProfile,
    #[error("another Secret has the name of the copy")]
    ForeignSecret,
    #[error("a copy for another account has the same name")]
    NameTaken,
    #[error("the Secret is being deleted and waits for a finalizer")]
    Terminating,
    /// The API server refuses to create or change the copy, or the write has failed for some seconds.
    #[error(
        "the API server refuses the write of the Secret because of a quota, a webhook, a \
         policy or a missing permission; the Secret's Event WriteRefused quotes the response"
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
            Self::ReservedAccount,
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
        !matches!(
            self,
            Self::NotAsked | Self::OutOfScope | Self::NotGranted | Self::ProtectedNamespace
        )
    }

    /// Whether it only waits for objects or lists that other controllers or new watches may be about to provide.
    #[must_use]
    pub fn is_missing(self) -> bool {
        matches!(self, Self::NoProfile | Self::TokenUnknown | Self::CopiesUnknown)
    }

    /// Whether it is a problem that lasts while its copy waits for another plan, as a refusal does. A token, a profile or a
    /// list that was missing at the last one may have come since.
    pub(super) fn is_lasting(self) -> bool {
        let may_have_come = [
            Self::Synced,
            Self::NoToken,
            Self::AccountUnknown,
            Self::ProfileUnknown,
            Self::GrantUnknown,
        ];
        !self.is_missing() && !may_have_come.contains(&self)
    }

    /// The state as a metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Label::from(self).into()
    }
}
