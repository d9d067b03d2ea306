//! The results of steps, as codes for scripts and texts for people.

use serde::{Serialize, Serializer};
use strum::{EnumDiscriminants, EnumIter, EnumMessage, IntoStaticStr};

use super::Status;
use crate::access::Withheld;
use crate::credential::state::State;
use crate::finding::Reason;
use crate::grant::Verdict;

/// The result of a step. The codes are an API for scripts: codes can be added, and never change. If a controller
/// reports the same as an Event or a condition, the code is that reason.
///
/// Its text is for people; a comment says more, for `docs/reference.md`. If a variant has a value, the codes
/// and texts are those of the value.
#[derive(
    Debug, Clone, PartialEq, Eq, EnumDiscriminants, EnumIter, EnumMessage, thiserror::Error,
)]
#[strum_discriminants(name(Variant), vis(), derive(IntoStaticStr))]
pub enum Code {
    /// You do not have permission to read an object of the step, or the hub does not serve its kind.
    #[error("you are not allowed to read it, or the hub does not serve it")]
    NotReadable,
    #[error("the object reports nothing that is missing on the cluster")]
    AccessReady,
    #[error("the object does not report that the application reaches the cluster")]
    AccessNotReady,
    #[error("the object, or a part of it, is not accepted")]
    AccessNotAccepted,
    /// The cluster is granted, and the object does not select it: its labels do not match the selector, or no
    /// PlacementDecision for the Placement contains it.
    #[error("the object does not select the cluster")]
    AccessNotSelected,
    #[error("a process holds the Lease")]
    ControllerLeads,
    /// No Lease names the controller in its annotation `hub-addons/controllers`. This is a problem if one of its writes is pending, or if no controller has a
    /// Lease and the hub has no profile of the cluster manager.
    #[error("no controller of the hub addons runs: none has a Lease")]
    ControllerNotFound,
    /// No process holds the Lease, or the holder no longer renews it.
    #[error("no process leads, so no changes are written")]
    ControllerNotLeading,
    /// The process that holds the Lease could neither list nor watch a kind for a minute: what depends on it is kept as
    /// it is, and nothing is created.
    #[error(
        "the process that leads cannot read a kind, so what depends on it is unknown: what exists stays, \
         and nothing is created"
    )]
    KindUnreadable,
    #[error("another program overwrites what the profile projector writes")]
    OtherWriter,
    #[error("the namespace has no ManagedClusterSetBinding")]
    NoBinding,
    #[error("the bindings of the namespace grant no cluster")]
    NothingSelected,
    /// The decision of a binding about the cluster, or about every cluster.
    #[strum(disabled)]
    #[error("{0}")]
    Grant(Verdict),
    #[error("the profile shows the cluster")]
    ProfileUpToDate,
    #[error("the namespace has no profile of the cluster")]
    NoProfile,
    #[error("the profile differs from what the profile projector writes")]
    ProfileOutdated,
    /// The finding of the projector on the profile.
    #[strum(disabled)]
    #[error("{}", .0.into_str())]
    Profile(Reason),
    #[error("the profile publishes how to reach the cluster")]
    AccessPublished,
    /// The access provider differs from what the provisioner writes, such as an entry of cluster-proxy's own
    /// controller. It is `unknown` where the flags of the provisioner cannot be read: state them after `--`.
    #[error("the access provider differs from what the access-provider provisioner writes")]
    AccessOutdated,
    #[error("a published trust anchor has expired")]
    TrustAnchorExpired,
    /// Why the profile has no access provider.
    #[strum(disabled)]
    #[error("{0}")]
    Withheld(Withheld),
    /// The ManagedServiceAccount opts in to copies of its token in the namespace.
    #[error("the account asks for copies of its token in the namespace")]
    AccountAsks,
    /// No ManagedServiceAccount of the cluster opts in to copies in the namespace.
    #[error("no ManagedServiceAccount of the cluster asks for copies in the namespace")]
    NoAccount,
    /// The account of a ClusterAccess or the copy of a token exists, although it has to be deleted: the cluster is no
    /// longer granted, or the account is gone or does not opt in. The API server refuses to delete it, a finalizer holds
    /// it, or its controller does not run.
    #[error(
        "access that has ended still exists: its deletion is refused, a finalizer holds it, or \
         its controller does not run"
    )]
    NotWithdrawn,
    #[error("the agent has reported the token")]
    TokenReported,
    /// The state of the copy.
    #[strum(disabled)]
    #[error("{0}")]
    Credential(State),
    /// The copy is missing or differs from what the credential syncer writes.
    #[error("the copy differs from what the credential syncer writes")]
    CredentialOutdated,
    /// The syncer's report on the account.
    #[strum(disabled)]
    #[error("{0}")]
    Reported(String),
    #[error("the token has expired: the agent does not report a new one")]
    TokenExpired,
    #[error(
        "the cluster accepts applications of the namespace by their own identity, if the \
         roles exist there, which only a test shows"
    )]
    OwnIdentityAccepted,
    /// cluster-proxy runs with `enableKubeApiProxy: false`, as the multicluster engine does, so the user server cannot
    /// reach a cluster. Use copies of tokens.
    #[error(
        "the user server cannot reach the clusters, since the agents of cluster-proxy do not \
         connect under their names (enableKubeApiProxy=false, as the multicluster engine \
         sets): use copies of tokens"
    )]
    OwnIdentityUnsupported,
    #[error(
        "applications have permissions for their own identity, and the profile does not \
         show the user server: the provisioner for own identities does not run"
    )]
    OwnIdentityNotPublished,
}

impl Code {
    /// The code as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Grant(verdict) => verdict_code(verdict),
            Self::Profile(reason) => reason.into_str(),
            Self::Withheld(why) => withheld_code(*why),
            Self::Credential(state) => state.into_str(),
            Self::Reported(reason) => reason,
            own => Variant::from(own).into(),
        }
    }

    /// The status of this result, unless the step sets another with `marked`.
    pub(super) fn mark(&self) -> Status {
        match self {
            Self::AccessNotSelected => Status::Info,
            Self::AccessReady
            | Self::ControllerLeads
            | Self::Grant(Verdict::Granted)
            | Self::ProfileUpToDate
            | Self::AccessPublished
            | Self::AccountAsks
            | Self::TokenReported
            | Self::Credential(State::Synced)
            | Self::OwnIdentityAccepted => Status::Ok,
            // Only what depends on an object that cannot be read is unknown.
            Self::NotReadable
            | Self::Withheld(Withheld::ConfigurationUnknown | Withheld::AddonsUnknown)
            | Self::Credential(
                State::GrantUnknown
                | State::AccountUnknown
                | State::TokenUnknown
                | State::CopiesUnknown
                | State::ProfileUnknown,
            ) => Status::Unknown,
            _ => Status::Problem,
        }
    }
}

fn verdict_code(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Granted => "Granted",
        Verdict::Refused(refusal) => refusal.into_str(),
        Verdict::Doubtful(doubt) => doubt.into_str(),
    }
}

fn withheld_code(why: Withheld) -> &'static str {
    match why {
        Withheld::NoConfiguration => Reason::NoProxyConfiguration.into_str(),
        Withheld::ConfigurationUnknown => "ProxyConfigurationUnknown",
        Withheld::NoAddon => "NoAddon",
        Withheld::AddonsUnknown => "AddonsUnknown",
        Withheld::NoTrustAnchor => Reason::NoTrustAnchor.into_str(),
        Withheld::InvalidClusterName => "InvalidClusterName",
        Withheld::NameNotRoutable => Reason::ClusterNameNotRoutable.into_str(),
        Withheld::NoCluster => "NoSuchCluster",
        Withheld::NoEndpoint => "NoEndpoint",
        Withheld::NoRoom => Reason::TooManyAccessProviders.into_str(),
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
