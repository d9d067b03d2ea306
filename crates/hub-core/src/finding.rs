//! Findings for people: each becomes an Event on one object and is counted in a metric.
//!
//! A finding never stops the work on other objects, and never contains a secret.

use hub_api::names::{AccountKey, ClusterName, ClusterSetName, Namespace, ProfileKey};
use strum::{Display, EnumMessage, EnumProperty, IntoStaticStr, VariantArray};

use crate::consumer_access::AccessKey;

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
    /// A `CustomResourceDefinition`, which may not exist.
    #[strum(to_string = "CustomResourceDefinition {0}")]
    Crd(String),
    /// An `APIService`: for a kind that is built in, and has no CRD.
    #[strum(to_string = "APIService {0}")]
    ApiService(String),
    /// A ClusterAccess, or an object that it asks for, which may not exist.
    #[strum(to_string = "{0}")]
    Access(AccessKey),
}

/// The kinds of findings. The set is fixed, so each can be the reason of an Event and a label of a metric.
///
/// The comments are the texts of `docs/reference.md`: what has happened, and in a second paragraph what to do. The
/// property `object` lists the kinds of objects that have the finding, for the same table.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    EnumMessage,
    EnumProperty,
    IntoStaticStr,
    VariantArray,
)]
#[strum(const_into_str)]
pub enum Reason {
    /// A profile of another cluster manager, or with our label and of none, has the name of ours.
    ///
    /// Delete or rename it.
    #[strum(props(object = "ClusterProfile"))]
    ForeignProfile,
    /// The profile is being deleted, and a finalizer holds it.
    ///
    /// Find the controller that owns the finalizer.
    #[strum(props(object = "ClusterProfile"))]
    ProfileTerminating,
    /// The member ID of the ManagedCluster has changed, and the profile keeps its ID.
    ///
    /// Delete the profile to apply the change: it is created again.
    #[strum(props(object = "ClusterProfile"))]
    MemberIdChanged,
    /// Two clusters of the namespace have the same member ID.
    ///
    /// Set the label `multicluster.x-k8s.io/inventory-member-id` of one of the ManagedClusters, and delete its profile.
    #[strum(props(object = "ClusterProfile"))]
    MemberIdShared,
    /// The profile is kept although its cluster is no longer granted, because its label does not name our manager.
    ///
    /// Delete the profile, or restore the label.
    #[strum(props(object = "ClusterProfile"))]
    UnlabelledProfile,
    /// A claim of the cluster is not a valid property of a profile, so its profiles do not show it.
    #[strum(props(object = "ManagedCluster"))]
    ClaimSkipped,
    /// A claim of the cluster changes so often that the properties of the profile are written once a minute.
    ///
    /// Leave the claim out (`--propagate-claims`), or correct what reports it.
    #[strum(props(object = "ClusterProfile"))]
    ClaimChangesOften,
    /// The cluster cannot have a profile, because its name is too long for a label.
    #[strum(props(object = "ManagedCluster"))]
    NameTooLong,
    /// The selector of the set is not valid. The profiles of its clusters are kept as they are.
    ///
    /// Correct the selector.
    #[strum(props(object = "ManagedClusterSet"))]
    InvalidSelector,
    /// The binding grants nothing, because its name differs from the name of its set.
    ///
    /// Recreate it with the name of the set.
    #[strum(props(object = "ManagedClusterSetBinding"))]
    BindingNameMismatch,
    /// The object does not match the schema of its kind. What depends on it is kept as it is.
    ///
    /// Correct the object. The message contains the error.
    #[strum(props(object = "any"))]
    Unreadable,
    /// A kind could be neither listed nor watched for a minute. What depends on it is unknown: what exists stays, and
    /// nothing is created. The user server responds with 503, and closes open connections after five more minutes.
    ///
    /// The message names the kind, the time and the category of the error, and the log of the controller has the error:
    /// look for a missing permission, a CRD that is not served, or an object that etcd cannot return.
    #[strum(props(object = "CustomResourceDefinition, APIService"))]
    KindUnreadable,
    /// The API server refuses a write to the object, the write keeps failing, or another client undoes it again and again.
    ///
    /// The message contains the response: look for a quota, a webhook, a policy, a missing permission, or the other
    /// client in the managedFields of the object.
    #[strum(props(object = "any"))]
    WriteRefused,
    /// The hub has no ManagedProxyConfiguration: cluster-proxy is not installed.
    ///
    /// Install it, or use another source of access providers.
    #[strum(props(object = "ManagedProxyConfiguration"))]
    NoProxyConfiguration,
    /// The CA certificates of the server, which is the proxy or the user server, are missing, not valid, or cannot be
    /// read. Published entries are kept, and no new one is published.
    ///
    /// Correct the Secret or ConfigMap, which `--access-provider-ca` or `--user-server-ca` names. The message contains
    /// the error.
    #[strum(props(object = "Secret, ConfigMap"))]
    NoTrustAnchor,
    /// `status.accessProviders` holds the 64 entries that the API takes, so ours is not added.
    ///
    /// Have another controller remove an entry; ours follows at once.
    #[strum(props(object = "ClusterProfile"))]
    TooManyAccessProviders,
    /// The profile has no access provider for own identities, because the tunnel of cluster-proxy carries no requests
    /// to a cluster of this name.
    ///
    /// Register the cluster by a name that begins with a letter and contains no dot, or give its applications tokens.
    #[strum(props(object = "ClusterProfile"))]
    ClusterNameNotRoutable,
    /// Two clusters have a CA in common, so that either can receive requests of the user server for the other one, with
    /// the token of its account.
    ///
    /// Give each cluster a CA of its own, or run the user server with `--refuse-shared-authorities`.
    #[strum(props(object = "ManagedCluster"))]
    SharedAuthority,
    /// The replaced CA and the new one together exceed 64 KiB, so only the new one is published.
    ///
    /// Clients fail until the server has its new certificate.
    #[strum(props(object = "Secret, ConfigMap"))]
    OverlapTooLarge,
    /// After the overlap, the published server still presents a certificate that only a replaced CA verifies, so that CA
    /// stays published.
    ///
    /// Restart the server. The message contains the command.
    #[strum(props(object = "Secret, ConfigMap"))]
    OldServerCertificate,
    /// The published server cannot be reached from the controller, or clients refuse its certificate: it does not name
    /// the published host, or no published CA verifies it.
    ///
    /// The message contains the reason. If only applications can reach the server, run with `--server-check-interval=0`.
    #[strum(props(object = "Secret, ConfigMap"))]
    ServerCheckFailed,
    /// The URL or the CA of the cluster's own API server cannot be published.
    ///
    /// Correct `spec.managedClusterClientConfigs` of the ManagedCluster. The message contains the reason.
    #[strum(props(object = "ManagedCluster"))]
    EndpointRefused,
    /// A copy of the account's token is missing.
    ///
    /// The message names the namespaces and the reasons; `kubectl clusterprofile explain` also prints a command.
    #[strum(props(object = "ManagedServiceAccount"))]
    CredentialWithheld,
    /// A Secret that the syncer did not create has the name of a copy.
    ///
    /// Delete or rename it.
    #[strum(props(object = "Secret"))]
    ForeignSecret,
    /// The copies of two accounts have the same name, and the first account keeps it.
    ///
    /// Rename the other account.
    #[strum(props(object = "Secret"))]
    CopyNameTaken,
    /// The copy is being deleted, and a finalizer holds it.
    ///
    /// Find the controller that owns the finalizer.
    #[strum(props(object = "Secret"))]
    CopyTerminating,
    /// A Role or a RoleBinding of another owner has the name of that by which an application reads its copied tokens.
    ///
    /// Rename or delete it.
    #[strum(props(object = "Role"))]
    ForeignRole,
    /// A ManagedServiceAccount of another owner has the name of the account of a ClusterAccess, so the application has no
    /// access to the cluster.
    ///
    /// Rename or delete it.
    #[strum(props(object = "ManagedServiceAccount"))]
    ForeignAccount,
    /// The account of a ClusterAccess is being deleted, and a finalizer holds it.
    ///
    /// Find the controller that owns the finalizer. Where the cluster is granted, a new account is created when it is
    /// gone. Otherwise its permissions on the cluster are deleted: the message reports what remains of them.
    #[strum(props(object = "ManagedServiceAccount"))]
    AccountTerminating,
    /// A ManifestWork of another owner has the name of the permissions of the account of a ClusterAccess.
    ///
    /// Rename or delete it.
    #[strum(props(object = "ManifestWork"))]
    ForeignManifestWork,
    /// A ClusterPermission of another owner has the name of the permissions of the account of a ClusterAccess.
    ///
    /// Rename or delete it.
    #[strum(props(object = "ClusterPermission"))]
    ForeignClusterPermission,
    /// The cluster has not applied the permissions of the account of a ClusterAccess.
    ///
    /// The message is that of the work agent or of cluster-permission. If the account or the ManagedClusterAddOn was
    /// missing, cluster-permission tries again only when the ClusterPermission changes: add any annotation to it.
    #[strum(props(object = "ManifestWork, ClusterPermission"))]
    PermissionsNotApplied,
    /// An object of another owner has the name of one that consumer access maintains for Kueue. It is not changed, and
    /// a MultiKueueCluster is not listed.
    ///
    /// Rename or delete it, or remove `multiKueue` from the ClusterAccess.
    #[strum(props(object = "MultiKueueCluster, MultiKueueConfig"))]
    ForeignKueueObject,
    /// A Secret of another owner has the name of a cluster Secret that consumer access maintains for Argo CD, or is for a
    /// cluster of the same name. It is not changed, and while it exists, no Secret is created for the cluster.
    ///
    /// Rename or delete it.
    #[strum(props(object = "Secret"))]
    ForeignClusterSecret,
    /// An object that consumer access maintains for Kueue is being deleted, and a finalizer holds it. It is not
    /// changed, and is created again when it is gone if a cluster is still granted.
    ///
    /// Find the controller that owns the finalizer.
    #[strum(props(object = "MultiKueueCluster, MultiKueueConfig"))]
    KueueObjectTerminating,
    /// More than 20 clusters are granted, which is the limit of Kueue. Those that are listed stay listed.
    ///
    /// Grant fewer clusters to Kueue's namespace, or divide them by label among several MultiKueueConfigs.
    #[strum(props(object = "MultiKueueConfig"))]
    MultiKueueConfigFull,
}

impl Reason {
    /// Every reason, for metrics that start at zero.
    pub const ALL: &'static [Self] = Self::VARIANTS;
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

/// The first of these texts, at most so many, and how many more there are.
#[must_use]
pub fn first_of(texts: &[impl AsRef<str>], most: usize) -> String {
    let shown: Vec<_> = texts.iter().take(most).map(AsRef::as_ref).collect();
    match texts.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
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
            (Subject::Crd("a.example".to_owned()), "CustomResourceDefinition a.example"),
        ] {
            assert_eq!(subject.to_string(), text);
        }
    }
}
