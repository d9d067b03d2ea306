//! How things stand with the copy of one account in one namespace, in words for people and for metrics.

use std::fmt;

use crate::credential::source::Unusable;

/// How things stand with the copy of one account in one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The copy is there, or about to be.
    Synced,
    /// The account does not exist, or asks for no copies.
    NotAsked,
    /// The account asks for copies in other namespaces only.
    OutOfScope,
    /// The cluster is not granted to the namespace.
    NotGranted,
    /// It is not known whether it is.
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
    /// The Secret is not the one that the account's agent has made.
    ForeignToken,
    /// The Secret holds no token that could be copied.
    UnusableToken(Unusable),
    /// The Secrets of the namespace cannot be read yet.
    CopiesUnknown,
    /// The namespace has no profile of the cluster.
    NoProfile,
    /// The profile in the namespace is another cluster manager's.
    ForeignProfile,
    /// A Secret that we did not make has the name.
    ForeignSecret,
    /// The copy of another account has the name.
    NameTaken,
    /// The Secret is being deleted, and something holds it.
    Terminating,
}

impl State {
    /// Every state that is counted, for metrics that start at zero: the first three after [`Self::Synced`] are no
    /// news, and would be counted for every pair of an account and a namespace.
    pub const COUNTED: [Self; 15] = [
        Self::Synced,
        Self::GrantUnknown,
        Self::NameTooLong,
        Self::AccountUnknown,
        Self::TokenElsewhere,
        Self::NoToken,
        Self::TokenUnknown,
        Self::ForeignToken,
        Self::UnusableToken(Unusable::NoToken),
        Self::CopiesUnknown,
        Self::NoProfile,
        Self::ForeignProfile,
        Self::ForeignSecret,
        Self::NameTaken,
        Self::Terminating,
    ];

    /// Whether it is counted.
    #[must_use]
    pub fn is_counted(self) -> bool {
        !matches!(self, Self::NotAsked | Self::OutOfScope | Self::NotGranted)
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
            Self::GrantUnknown => ("grant_unknown", "GrantUnknown"),
            Self::NameTooLong => ("name_too_long", "NameTooLong"),
            Self::AccountUnknown => ("account_unknown", "AccountUnknown"),
            Self::TokenElsewhere => ("token_elsewhere", "TokenElsewhere"),
            Self::NoToken => ("no_token", "NoToken"),
            Self::TokenUnknown => ("token_unknown", "TokenUnknown"),
            Self::ForeignToken => ("foreign_token", "ForeignToken"),
            Self::UnusableToken(_) => ("unusable_token", "UnusableToken"),
            Self::CopiesUnknown => ("copies_unknown", "CopiesUnknown"),
            Self::NoProfile => ("no_profile", "NoProfile"),
            Self::ForeignProfile => ("foreign_profile", "ForeignProfile"),
            Self::ForeignSecret => ("foreign_secret", "ForeignSecret"),
            Self::NameTaken => ("name_taken", "NameTaken"),
            Self::Terminating => ("terminating", "Terminating"),
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
            Self::ForeignToken => {
                "the Secret of the account's name was not made for it: it has to be Opaque, to carry the agent's label \
                 and to have an ownerReference to the account"
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
            Self::ForeignProfile => "the ClusterProfile is another cluster manager's",
            Self::ForeignSecret => "a Secret that is no copy has the name",
            Self::NameTaken => "the copy of another account has the name",
            Self::Terminating => "the Secret is being deleted, and a finalizer holds it",
        };
        f.write_str(text)
    }
}
