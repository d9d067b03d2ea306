//! How things stand with the copy of one account in one namespace, in words for people and for metrics.

use std::fmt;

use crate::credential::source::Unusable;
use crate::token_names::{MAX, MAX_OF_A_CLUSTER};

/// How things stand with the copy of one account in one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The copy is there, or about to be.
    Synced,
    /// The copy may not be there, and the API server refuses to delete it.
    DeleteRefused,
    /// The account does not exist, or asks for no copies.
    NotAsked,
    /// The account asks for copies in other namespaces only.
    OutOfScope,
    /// The cluster is not granted to the namespace.
    NotGranted,
    /// The namespace is one of the hub's own.
    ProtectedNamespace,
    /// It is not known whether the cluster is granted.
    GrantUnknown,
    /// The names of cluster and account together are too long for a Secret's.
    NameTooLong,
    /// The account cannot be read, or it is not known which accounts there are.
    AccountUnknown,
    /// The account says that its token is in a Secret of another name.
    TokenElsewhere,
    /// No agent has reported a token.
    NoToken,
    /// It is not known whether an agent has.
    TokenUnknown,
    /// Tokens of the account's name are not watched, because there are too many names.
    TooManyNames,
    /// The Secret is not the one that the account's agent has made.
    ForeignToken,
    /// The token was reported before the ManagedCluster was created.
    EarlierToken,
    /// The Secret holds no token that could be copied.
    UnusableToken(Unusable),
    /// The Secrets of the namespace cannot be read yet.
    CopiesUnknown,
    /// The namespace has no profile of the cluster.
    NoProfile,
    /// The profile in the namespace is not labelled as our cluster manager's.
    ForeignProfile,
    /// A Secret that we did not make has the name.
    ForeignSecret,
    /// The copy of another account has the name.
    NameTaken,
    /// The Secret is being deleted, and something holds it.
    Terminating,
    /// The API server refuses to create or to change the copy.
    WriteRefused,
}

impl State {
    /// Every state that is counted, for metrics that start at zero: those that are not are no
    /// news, and would be counted for every pair of an account and a namespace.
    pub const COUNTED: [Self; 19] = [
        Self::Synced,
        Self::GrantUnknown,
        Self::NameTooLong,
        Self::AccountUnknown,
        Self::TokenElsewhere,
        Self::NoToken,
        Self::TokenUnknown,
        Self::TooManyNames,
        Self::ForeignToken,
        Self::EarlierToken,
        Self::UnusableToken(Unusable::NoToken),
        Self::CopiesUnknown,
        Self::NoProfile,
        Self::ForeignProfile,
        Self::ForeignSecret,
        Self::NameTaken,
        Self::Terminating,
        Self::WriteRefused,
        Self::DeleteRefused,
    ];

    /// Whether it is counted.
    #[must_use]
    pub fn is_counted(self) -> bool {
        !matches!(self, Self::NotAsked | Self::OutOfScope | Self::NotGranted | Self::ProtectedNamespace)
    }

    /// Whether something is not there or not known yet that other controllers, or watches that have begun, may be about
    /// to supply.
    #[must_use]
    pub fn is_missing(self) -> bool {
        matches!(self, Self::NoProfile | Self::TokenUnknown | Self::CopiesUnknown)
    }

    /// The state as a metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// The state as a condition's reason.
    #[must_use]
    pub fn reason(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Synced => ("synced", "Synced"),
            Self::NotAsked => ("not_asked", "NotAsked"),
            Self::OutOfScope => ("out_of_scope", "OutOfScope"),
            Self::NotGranted => ("not_granted", "NotGranted"),
            Self::ProtectedNamespace => ("protected_namespace", "ProtectedNamespace"),
            Self::GrantUnknown => ("grant_unknown", "GrantUnknown"),
            Self::NameTooLong => ("name_too_long", "NameTooLong"),
            Self::AccountUnknown => ("account_unknown", "AccountUnknown"),
            Self::TokenElsewhere => ("token_elsewhere", "TokenElsewhere"),
            Self::NoToken => ("no_token", "NoToken"),
            Self::TokenUnknown => ("token_unknown", "TokenUnknown"),
            Self::TooManyNames => ("too_many_names", "TooManyNames"),
            Self::ForeignToken => ("foreign_token", "ForeignToken"),
            Self::EarlierToken => ("earlier_token", "EarlierToken"),
            Self::UnusableToken(_) => ("unusable_token", "UnusableToken"),
            Self::CopiesUnknown => ("copies_unknown", "CopiesUnknown"),
            Self::NoProfile => ("no_profile", "NoProfile"),
            Self::ForeignProfile => ("foreign_profile", "ForeignProfile"),
            Self::ForeignSecret => ("foreign_secret", "ForeignSecret"),
            Self::NameTaken => ("name_taken", "NameTaken"),
            Self::Terminating => ("terminating", "Terminating"),
            Self::WriteRefused => ("write_refused", "WriteRefused"),
            Self::DeleteRefused => ("delete_refused", "DeleteRefused"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Synced => "the copy is there",
            Self::NotAsked => "no copies are asked for",
            Self::OutOfScope => "copies are asked for in other namespaces",
            Self::NotGranted => "no ManagedClusterSetBinding grants the cluster",
            Self::ProtectedNamespace => {
                "the namespace belongs to the hub or to a cluster and receives no credential (--protected-namespaces)"
            }
            Self::GrantUnknown => {
                "it is not known whether the cluster is granted, so a copy that is there stays"
            }
            Self::NameTooLong => "the names of cluster and account together are too long for a Secret",
            Self::AccountUnknown => "the account cannot be read, so a copy that is there stays",
            Self::TokenElsewhere => {
                "status.tokenSecretRef names another Secret than the one of the account's own name, and that is refused"
            }
            Self::NoToken => "no agent has reported a token yet",
            Self::TokenUnknown => "it is not known whether there is a token, so a copy that is there stays",
            Self::TooManyNames => {
                return write!(
                    f,
                    "there are too many names of accounts to watch their tokens, of which {MAX_OF_A_CLUSTER} count for a \
                     cluster and {MAX} altogether; give accounts of one purpose one name in all clusters"
                );
            }
            Self::ForeignToken => {
                "the Secret of the account's name was not made for it: it has to be Opaque, to carry the agent's label \
                 and to have an ownerReference to the account"
            }
            Self::EarlierToken => {
                "the token was reported before the ManagedCluster was created, so it may be that of another cluster of \
                 the same name; it is synced once the agent reports one again"
            }
            Self::UnusableToken(why) => {
                return write!(
                    f,
                    "the reported Secret cannot be copied, since {why}; a copy that is there stays"
                );
            }
            Self::CopiesUnknown => {
                "the Secrets of the namespace cannot be read yet, so a copy that is there stays"
            }
            Self::NoProfile => "there is no ClusterProfile of the cluster that the copy could hang on",
            Self::ForeignProfile => "the ClusterProfile does not carry the label of our cluster manager",
            Self::ForeignSecret => "a Secret that is no copy has the name",
            Self::NameTaken => "the copy of another account has the name",
            Self::Terminating => "the Secret is being deleted, and a finalizer holds it",
            Self::WriteRefused => {
                "the API server refuses to write the Secret, because of a quota, a webhook, a policy or a missing \
                 permission; the Secret's Event WriteRefused quotes the response"
            }
            Self::DeleteRefused => {
                "the API server refuses to delete the Secret, so the token is still there; the Secret's Event \
                 WriteRefused quotes the response"
            }
        };
        f.write_str(text)
    }
}
