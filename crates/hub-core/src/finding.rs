//! Findings for people: each becomes an Event on one object and is counted in a metric.
//!
//! A finding never stops the work on other objects, and never contains a secret.

use hub_api::names::{AccountKey, ClusterName, ClusterSetName, Namespace, ProfileKey};
use strum::{Display, IntoStaticStr, VariantArray};

use crate::consumer_access::IntegrationKey;

/// The object of a finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
pub enum Subject {
    #[strum(to_string = "ManagedCluster {0}")]
    Cluster(ClusterName),
    #[strum(to_string = "ManagedClusterSet {0}")]
    ClusterSet(ClusterSetName),
    /// A ManagedClusterSetBinding, by namespace and name.
    #[strum(to_string = "ManagedClusterSetBinding {0}/{1}")]
    Binding(Namespace, ClusterSetName),
    #[strum(to_string = "ClusterProfile {0}")]
    Profile(ProfileKey),
    /// The ManagedProxyConfiguration of that name, which may not exist.
    #[strum(to_string = "ManagedProxyConfiguration {0}")]
    ProxyConfiguration(String),
    #[strum(to_string = "ManagedServiceAccount {0}")]
    Account(AccountKey),
    /// A Secret, which may not exist.
    #[strum(to_string = "Secret {0}/{1}")]
    Secret(Namespace, String),
    /// A ConfigMap, which may not exist.
    #[strum(to_string = "ConfigMap {0}/{1}")]
    ConfigMap(Namespace, String),
    /// A Role, which may not exist.
    #[strum(to_string = "Role {0}/{1}")]
    Role(Namespace, String),
    /// A ManifestWork, by cluster and name.
    #[strum(to_string = "ManifestWork {0}/{1}")]
    ManifestWork(ClusterName, String),
    /// A ClusterPermission, by cluster and name.
    #[strum(to_string = "ClusterPermission {0}/{1}")]
    ClusterPermission(ClusterName, String),
    /// A `CustomResourceDefinition`, which may not exist.
    #[strum(to_string = "CustomResourceDefinition {0}")]
    Crd(&'static str),
    /// An object of Kueue, which may not exist.
    #[strum(to_string = "{0}")]
    Kueue(IntegrationKey),
}

/// The kinds of findings. The set is fixed, so each can be the reason of an Event and a label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
pub enum Reason {
    /// A profile of another cluster manager has the name of ours.
    ForeignProfile,
    /// Our profile is being deleted and waits for a finalizer.
    ProfileTerminating,
    /// The ManagedCluster's member ID has changed, and the profile keeps its own.
    MemberIdChanged,
    /// Profiles of several clusters in one namespace have the same member ID.
    MemberIdShared,
    /// A profile that names our manager in its spec but not by label is kept, although it is not granted.
    UnlabelledProfile,
    /// A claim of the cluster is not a valid property.
    ClaimSkipped,
    /// The cluster's name is not a valid label value, so it cannot have a profile.
    NameTooLong,
    /// The set's selector is not valid; existing profiles of the set are kept.
    InvalidSelector,
    /// The binding does not have the name of its set, so it grants nothing.
    BindingNameMismatch,
    /// The object does not match the schema of its kind; what depends on it is kept unchanged.
    Unreadable,
    /// The API server refused a write.
    WriteRefused,
    /// There is no configuration of cluster-proxy, so no access provider is published.
    NoProxyConfiguration,
    /// There are no valid trust anchors; published entries are kept.
    NoTrustAnchor,
    /// The access providers of others fill the list of a profile.
    TooManyAccessProviders,
    /// cluster-proxy's own controller writes access providers beside the provisioner.
    AccessProviderContested,
    /// Replaced and new trust anchors together are too large to be published.
    OverlapTooLarge,
    /// A cluster's own endpoint may not be published.
    EndpointRefused,
    /// An account's token is not copied to a namespace that it opts in to.
    CredentialWithheld,
    /// A Secret that we did not create has the name of a copy.
    ForeignSecret,
    /// The copies of two accounts would have the same name.
    CopyNameTaken,
    /// A copy is being deleted and waits for a finalizer.
    CopyTerminating,
    /// A Role of another owner has the name of a consumer's Role that follows the grant.
    ForeignRole,
    /// A consumer's Role that follows the grant does not exist.
    MissingRole,
    /// A ManagedServiceAccount of another owner has the name of a consumer's account.
    ForeignAccount,
    /// A consumer's account is being deleted and waits for a finalizer.
    AccountTerminating,
    /// A consumer's namespace is granted the hub itself, where consumers get no access.
    LocalClusterExcluded,
    /// A ManifestWork of another owner has the name of the permissions of a consumer's account.
    ForeignManifestWork,
    /// A ClusterPermission of another owner has the name of the permissions of a consumer's account.
    ForeignClusterPermission,
    /// ClusterPermissions cannot be listed.
    ClusterPermissionsNotListed,
    /// The accounts of consumers or their ManifestWorks cannot be listed.
    ConsumerAccessNotListed,
    /// A cluster has not applied the permissions of a consumer's account.
    PermissionsNotApplied,
    /// An object of Kueue with a name of ours belongs to another owner.
    ForeignKueueObject,
    /// A Secret of another owner has the name of a cluster Secret of ours.
    ForeignClusterSecret,
    /// An object of Kueue is being deleted and waits for a finalizer.
    KueueObjectTerminating,
    /// A MultiKueueConfig cannot list every cluster.
    MultiKueueConfigFull,
    /// The objects of Kueue cannot be listed.
    KueueNotListed,
}

impl Reason {
    /// Every reason, for metrics that start at zero.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The Event's `reason`, in CamelCase.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One finding about one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    pub reason: Reason,
    /// The text of the Event.
    pub message: String,
}

impl Finding {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The finding on an object that does not match the schema of its kind.
    #[must_use]
    pub fn unreadable(error: &str) -> Self {
        Self::new(
            Reason::Unreadable,
            format!("cannot be read, what depends on it is kept unchanged: {error}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_shown_by_its_kind_namespace_and_name() {
        let profile = ProfileKey { namespace: "team".into(), cluster: "c1".into() };
        for (subject, text) in [
            (Subject::Cluster("c1".into()), "ManagedCluster c1"),
            (Subject::Binding("team".into(), "prod".into()), "ManagedClusterSetBinding team/prod"),
            (Subject::Profile(profile), "ClusterProfile team/c1"),
            (Subject::Crd("a.example"), "CustomResourceDefinition a.example"),
        ] {
            assert_eq!(subject.to_string(), text);
        }
    }
}
