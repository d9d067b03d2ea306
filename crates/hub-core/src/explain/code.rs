//! The results of steps, as codes for scripts and texts for people.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Serialize, Serializer};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::access::Withheld;
use crate::credential::report::INVALID_NAMESPACE;
use crate::credential::state::State;
use crate::finding::Reason;
use crate::grant::{Doubt, Refusal, Verdict};

/// The result of a step. The codes are an API for scripts: codes can be added, and never change. If a controller
/// reports the same as an Event or a condition, the code is that reason.
#[derive(Debug, Clone, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(name(Kind), vis(), derive(IntoStaticStr, VariantArray))]
pub enum Code {
    /// The objects that the step depends on cannot be read.
    NotReadable,
    ControllerLeads,
    /// The controller has no Lease, or none of them has.
    ControllerNotFound,
    /// No process holds the Lease of the controller.
    ControllerNotLeading,
    /// A feature gate of OCM is enabled whose controller writes the same objects as one of ours.
    OcmGateEnabled,
    /// Another field manager overwrites the profile.
    OtherWriter,
    /// The namespace does not exist.
    NoNamespace,
    /// The namespace has no ManagedClusterSetBinding.
    NoBinding,
    /// The bindings of the namespace are in effect and grant no cluster.
    NothingSelected,
    /// The decision of a binding about the cluster, or about every cluster.
    Grant(Verdict),
    /// The profile shows its cluster.
    ProfileUpToDate,
    /// The namespace has no profile of the cluster.
    NoProfile,
    /// The projector has a pending write.
    ProfileOutdated,
    /// The finding of the projector on the profile.
    Profile(Reason),
    /// The profile publishes how to reach the cluster.
    AccessPublished,
    /// The provisioner has a pending write.
    AccessOutdated,
    /// A published trust anchor has expired.
    TrustAnchorExpired,
    /// Why the profile has no access provider.
    Withheld(Withheld),
    /// The account opts in to copies in the namespace.
    AccountAsks,
    /// The namespaces that receive the token of the account.
    TokenRecipients,
    /// No account of the cluster opts in to copies in the namespace.
    NoAccount,
    /// An account of a consumer exists although its namespace is not granted the cluster.
    AccountNotWithdrawn,
    /// The copy of a token exists, and the syncer has to remove it.
    CredentialNotWithdrawn,
    /// The agent has reported the token.
    TokenReported,
    /// The state of the copy.
    Credential(State),
    /// The syncer has a pending write.
    CredentialOutdated,
    /// The syncer's report on the account.
    Reported(String),
    /// The token has expired.
    TokenExpired,
    /// A ServiceAccount of the namespace may read the copy.
    ConsumerMayRead,
    /// No ServiceAccount of the namespace may read the copy.
    NobodyMayRead,
    /// An object on the hub grants the account permissions on the cluster.
    PermissionsApplied,
    /// Such an object has not been applied on the cluster yet.
    PermissionsNotApplied,
    /// Permissions of a consumer's account exist, and consumer access has to delete them.
    PermissionsNotWithdrawn,
    /// The hub has no object that grants the account permissions: they may have been granted on the cluster.
    PermissionsUnknown,
    /// The cluster lets applications of the namespace in by their own identity.
    OwnIdentityAccepted,
    /// The profile has no access provider for applications with an identity of their own.
    OwnIdentityNotPublished,
    /// The account with which the user server acts as applications has no token.
    UserServerHasNoToken,
}

/// The findings of the projector that are about a profile or its cluster.
const OF_PROFILES: [Reason; 8] = [
    Reason::ForeignProfile,
    Reason::ProfileTerminating,
    Reason::MemberIdChanged,
    Reason::MemberIdShared,
    Reason::UnlabelledProfile,
    Reason::NameTooLong,
    Reason::Unreadable,
    Reason::TooManyAccessProviders,
];

impl Code {
    /// Every code, for the documentation and its test.
    #[must_use]
    pub fn all() -> BTreeSet<&'static str> {
        let of_others = [Kind::Grant, Kind::Profile, Kind::Withheld, Kind::Credential, Kind::Reported];
        let own = Kind::VARIANTS.iter().filter(|kind| !of_others.contains(kind));
        own.map(<&'static str>::from)
            .chain(Verdict::all().map(|verdict| verdict_code(&verdict)))
            .chain(OF_PROFILES.map(Reason::as_str))
            .chain(Withheld::ALL.iter().copied().map(withheld_code))
            .chain(State::all().map(State::reason))
            .chain([INVALID_NAMESPACE])
            .collect()
    }

    /// The code as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Grant(verdict) => verdict_code(verdict),
            Self::Profile(reason) => reason.as_str(),
            Self::Withheld(why) => withheld_code(*why),
            Self::Credential(state) => state.reason(),
            Self::Reported(reason) => reason,
            own => Kind::from(own).into(),
        }
    }
}

fn verdict_code(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Granted => "Granted",
        Verdict::Refused(Refusal::NoSuchCluster) => "NoSuchCluster",
        Verdict::Refused(Refusal::ClusterDeleting) => "ClusterDeleting",
        Verdict::Refused(Refusal::NameMismatch) => Reason::BindingNameMismatch.as_str(),
        Verdict::Refused(Refusal::NotBound) => "NotBound",
        Verdict::Refused(Refusal::NoSuchSet) => "NoSuchSet",
        Verdict::Refused(Refusal::NotSelected) => "NotSelected",
        Verdict::Doubtful(Doubt::BindingUnreadable) => Reason::Unreadable.as_str(),
        Verdict::Doubtful(Doubt::SelectorUnusable) => Reason::InvalidSelector.as_str(),
    }
}

fn withheld_code(why: Withheld) -> &'static str {
    match why {
        Withheld::NoConfiguration => Reason::NoProxyConfiguration.as_str(),
        Withheld::ConfigurationUnknown => "ProxyConfigurationUnknown",
        Withheld::NoAddon => "NoAddon",
        Withheld::AddonsUnknown => "AddonsUnknown",
        Withheld::NoTrustAnchor => Reason::NoTrustAnchor.as_str(),
        Withheld::InvalidClusterName => "InvalidClusterName",
        Withheld::NoCluster => "NoSuchCluster",
        Withheld::NoEndpoint => "NoEndpoint",
        Withheld::NoRoom => Reason::TooManyAccessProviders.as_str(),
        Withheld::Contested => Reason::AccessProviderContested.as_str(),
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The text for people.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReadable => "you are not allowed to read it, or the hub does not serve it",
            Self::ControllerLeads => "the controller holds its Lease",
            Self::ControllerNotFound => "no controller of the hub addons runs: none has a Lease",
            Self::ControllerNotLeading => "no process leads as this controller, so it writes no changes",
            Self::OcmGateEnabled => {
                "OCM's own controller is enabled beside that of hub-addons: both write the same objects"
            }
            Self::OtherWriter => "another program overwrites what the profile projector writes",
            Self::NoNamespace => "the namespace does not exist",
            Self::NoBinding => "the namespace has no ManagedClusterSetBinding",
            Self::NothingSelected => "the bindings of the namespace grant no cluster",
            Self::Grant(verdict) => return verdict.fmt(f),
            Self::ProfileUpToDate => "the profile shows the cluster",
            Self::NoProfile => "the namespace has no profile of the cluster",
            Self::ProfileOutdated => "the profile differs from what the profile projector writes",
            Self::Profile(reason) => reason.as_str(),
            Self::AccessPublished => "the profile publishes how to reach the cluster",
            Self::AccessOutdated => "the access provider differs from what the access-provider provisioner writes",
            Self::TrustAnchorExpired => "a published trust anchor has expired",
            Self::Withheld(why) => withheld_text(*why),
            Self::AccountAsks => "the account asks for copies of its token in the namespace",
            Self::TokenRecipients => "the namespaces that receive the token of the account",
            Self::NoAccount => "no ManagedServiceAccount of the cluster asks for copies in the namespace",
            Self::AccountNotWithdrawn => {
                "the account of a consumer exists, although its namespace is not granted the cluster: its deletion is \
                 refused or delayed, or consumer access does not run"
            }
            Self::CredentialNotWithdrawn => {
                "the copy of a token exists, although the cluster is not granted or the account does not ask for it: \
                 its deletion is refused or delayed, or the credential syncer does not run"
            }
            Self::TokenReported => "the agent has reported the token",
            Self::Credential(state) => return state.fmt(f),
            Self::CredentialOutdated => "the copy differs from what the credential syncer writes",
            Self::Reported(reason) => reason,
            Self::TokenExpired => "the token has expired: the agent does not report a new one",
            Self::ConsumerMayRead => "a ServiceAccount of the namespace may read the copy",
            Self::NobodyMayRead => "no ServiceAccount of the namespace may read the copy",
            Self::PermissionsApplied => "the account has permissions on the cluster",
            Self::PermissionsNotApplied => "the permissions of the account are not applied on the cluster yet",
            Self::PermissionsNotWithdrawn => {
                "permissions of a consumer's account exist, although the account has to have none: their deletion is \
                 refused or delayed, or consumer access does not run"
            }
            Self::PermissionsUnknown => {
                "no ManifestWork or ClusterPermission gives the account permissions; they may exist on the cluster"
            }
            Self::OwnIdentityAccepted => "the cluster accepts applications of the namespace by their own identity",
            Self::OwnIdentityNotPublished => {
                "applications have permissions for their own identity, and the profile does not show the user server: \
                 userServer.enabled of the chart is not set, or the access-provider provisioner does not run"
            }
            Self::UserServerHasNoToken => {
                "the agent has not reported the token of the account with which the user server acts as applications"
            }
        })
    }
}

fn withheld_text(why: Withheld) -> &'static str {
    match why {
        Withheld::NoConfiguration => {
            "the hub has no ManagedProxyConfiguration: cluster-proxy is not installed"
        }
        Withheld::ConfigurationUnknown => "the configuration of cluster-proxy cannot be read",
        Withheld::NoAddon => "the cluster does not have the addon cluster-proxy",
        Withheld::AddonsUnknown => "the addons of the clusters cannot be read",
        Withheld::NoTrustAnchor => "the serving certificate of the proxy is missing, or cannot be read",
        Withheld::InvalidClusterName => "the cluster label of the profile is not a valid name",
        Withheld::NoCluster => "the hub has no such ManagedCluster",
        Withheld::NoEndpoint => "the cluster reports no usable endpoint",
        Withheld::NoRoom => "other access providers fill the list of the profile",
        Withheld::Contested => {
            "cluster-proxy's own controller has written the access provider: disable its feature gate \
             ClusterProfile (until 0.10 ClusterProfileAccessProvider); the access-provider provisioner replaces the entry within 20 minutes after that"
        }
    }
}
