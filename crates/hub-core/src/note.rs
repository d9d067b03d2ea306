//! What a person should hear about: findings that become an Event on one object and a count in a metric.
//!
//! A note never stops the work on other objects, and none ever carries a secret.

use std::fmt;

use hub_api::names::{AccountKey, ClusterName, ClusterSetName, Namespace, ProfileKey};

/// The object that a person would look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A ManagedCluster.
    Cluster(ClusterName),
    /// A ManagedClusterSet.
    ClusterSet(ClusterSetName),
    /// A ManagedClusterSetBinding, by namespace and name.
    Binding(Namespace, ClusterSetName),
    /// A ClusterProfile.
    Profile(ProfileKey),
    /// The ManagedProxyConfiguration of that name, there or not.
    ProxyConfiguration(String),
    /// A ManagedServiceAccount.
    Account(AccountKey),
    /// A Secret, there or not.
    Secret(Namespace, String),
    /// A ConfigMap, there or not.
    ConfigMap(Namespace, String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(name) => write!(f, "ManagedCluster {name}"),
            Self::ClusterSet(name) => write!(f, "ManagedClusterSet {name}"),
            Self::Binding(namespace, name) => write!(f, "ManagedClusterSetBinding {namespace}/{name}"),
            Self::Profile(key) => write!(f, "ClusterProfile {key}"),
            Self::ProxyConfiguration(name) => write!(f, "ManagedProxyConfiguration {name}"),
            Self::Account(key) => write!(f, "ManagedServiceAccount {key}"),
            Self::Secret(namespace, name) => write!(f, "Secret {namespace}/{name}"),
            Self::ConfigMap(namespace, name) => write!(f, "ConfigMap {namespace}/{name}"),
        }
    }
}

/// The kinds of findings. The list is closed, so each can be an Event's reason and a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A profile of another cluster manager stands where ours belongs.
    ForeignProfile,
    /// Our profile is being deleted and somebody's finalizer holds it.
    ProfileTerminating,
    /// The ManagedCluster's member ID has changed, and the profile keeps the one that it has.
    MemberIdChanged,
    /// Profiles of several clusters in one namespace have the same member ID.
    MemberIdShared,
    /// A profile that names us in its spec but not by label stays, though no grant is left.
    UnlabelledProfile,
    /// A claim of the cluster cannot be a property.
    ClaimSkipped,
    /// The cluster's name cannot be a label value, so it can have no profile.
    NameTooLong,
    /// The set's selector cannot be used; what it granted before stays as it is.
    InvalidSelector,
    /// The binding's name differs from the set it names, so it grants nothing.
    BindingNameMismatch,
    /// The object does not have the shape of its kind; what rests on it stays as it is.
    Unreadable,
    /// The API server refused what we wanted to write.
    WriteRefused,
    /// There is no configuration of the cluster proxy, so profiles do not say how to reach their clusters.
    NoProxyConfiguration,
    /// There are no usable trust anchors where they should be; what is published stays as it is.
    NoTrustAnchor,
    /// What a cluster says of how to reach it directly cannot be published.
    EndpointRefused,
    /// An account's token is not copied where it asks for it.
    CredentialWithheld,
    /// A Secret that we did not make stands where a copy of a token belongs.
    ForeignSecret,
    /// The copies of two accounts would have the same name.
    CopyNameTaken,
    /// A copy of a token is being deleted and somebody's finalizer holds it.
    CopyTerminating,
}

impl Reason {
    /// Every reason, for metrics that start at zero.
    pub const ALL: [Self; 18] = [
        Self::ForeignProfile,
        Self::ProfileTerminating,
        Self::MemberIdChanged,
        Self::MemberIdShared,
        Self::UnlabelledProfile,
        Self::ClaimSkipped,
        Self::NameTooLong,
        Self::InvalidSelector,
        Self::BindingNameMismatch,
        Self::Unreadable,
        Self::WriteRefused,
        Self::NoProxyConfiguration,
        Self::NoTrustAnchor,
        Self::EndpointRefused,
        Self::CredentialWithheld,
        Self::ForeignSecret,
        Self::CopyNameTaken,
        Self::CopyTerminating,
    ];

    /// The Event's `reason`, in the CamelCase that Kubernetes asks for.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ForeignProfile => "ForeignProfile",
            Self::ProfileTerminating => "ProfileTerminating",
            Self::MemberIdChanged => "MemberIdChanged",
            Self::MemberIdShared => "MemberIdShared",
            Self::UnlabelledProfile => "UnlabelledProfile",
            Self::ClaimSkipped => "ClaimSkipped",
            Self::NameTooLong => "NameTooLong",
            Self::InvalidSelector => "InvalidSelector",
            Self::BindingNameMismatch => "BindingNameMismatch",
            Self::Unreadable => "Unreadable",
            Self::WriteRefused => "WriteRefused",
            Self::NoProxyConfiguration => "NoProxyConfiguration",
            Self::NoTrustAnchor => "NoTrustAnchor",
            Self::EndpointRefused => "EndpointRefused",
            Self::CredentialWithheld => "CredentialWithheld",
            Self::ForeignSecret => "ForeignSecret",
            Self::CopyNameTaken => "CopyNameTaken",
            Self::CopyTerminating => "CopyTerminating",
        }
    }
}

/// One finding about one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Note {
    /// What kind of finding.
    pub reason: Reason,
    /// A sentence for the person who reads the Event.
    pub message: String,
}

impl Note {
    /// A finding with its sentence.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The finding on an object that does not have the shape of its kind.
    #[must_use]
    pub fn unreadable(error: &str) -> Self {
        Self::new(Reason::Unreadable, format!("cannot be read, what rests on it is kept as it is: {error}"))
    }
}
