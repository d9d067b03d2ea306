//! The account and the permissions that a consumer should have on a cluster.

use std::collections::BTreeMap;

use hub_api::labels::{self, MANAGED_BY};
use hub_api::names::{AccountKey, ClusterName, Namespace, ProfileKey};
use serde_json::{Map, Value, json};

use super::declaration::{Consumer, Consumers, Identity, Rotation};
use super::kind::AccessKind;
use super::permissions::Permissions;
use crate::credential::account::can_have_copies;
use crate::fleet::Fleet;
use crate::grant::{self, Grant};
use crate::protected::ProtectedNamespaces;

/// The label that distinguishes our objects from others of the same manager.
pub const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "consumer-access");
/// The label with the installation that an object belongs to: the namespace of its Lease.
///
/// Not `app.kubernetes.io/instance`: Argo CD prunes objects with that label that are in none of its repositories.
pub const INSTALLATION: &str = "hub-addons/installation";

/// Where the addon managed-serviceaccount runs by default, and with it the accounts; used where its
/// ManagedClusterAddOn shows no namespace.
pub const DEFAULT_ACCOUNT_NAMESPACE: &str = "open-cluster-management-agent-addon";

/// The validity of the tokens of the user server. They may act as every application, so it is short; the agent renews a
/// token long before its end.
const USER_SERVER_VALIDITY: &str = "24h0m0s";

pub(super) const RBAC: &str = "rbac.authorization.k8s.io";
pub(super) const AUTHENTICATION: &str = "authentication.open-cluster-management.io";

/// Which consumers get access, and what identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessSettings {
    /// The declared consumers.
    pub consumers: Consumers,
    /// The namespace of the accounts on each cluster, if it is not that of the addon managed-serviceaccount there.
    pub account_namespace: Option<Namespace>,
    /// The namespaces that get no access, even if a set is bound there.
    pub protected: ProtectedNamespaces,
    /// The installation that our objects belong to, as the value of a label. Objects of another installation are those
    /// of another owner.
    pub installation: Namespace,
    /// Whether consumers also get access to the hub itself, where it is a managed cluster.
    pub includes_local_cluster: bool,
    /// The ID of the hub, if it runs OpenShift.
    pub hub_openshift_id: Option<String>,
    /// The name of the access provider in ClusterProfiles.
    pub provider: String,
    /// The name of the access provider for applications with an identity of their own.
    pub own_provider: String,
    /// Whether all access is withdrawn, as before an uninstallation.
    pub withdraws: bool,
}

impl AccessSettings {
    /// The labels of every object of ours.
    #[must_use]
    pub fn marks(&self) -> [(&'static str, &str); 3] {
        [MANAGED_BY, COMPONENT, (INSTALLATION, self.installation.as_str())]
    }

    /// Whether an account should exist: its cluster is granted to the namespace of a consumer that uses it, that
    /// namespace is not protected, and the cluster is not the hub itself, unless the settings include the hub.
    #[must_use]
    pub fn grant(&self, fleet: &Fleet, key: &AccountKey) -> Grant {
        if self.withdraws || self.excludes(fleet, &key.cluster) {
            return Grant::Refused;
        }
        self.declared_grant(fleet, key)
    }

    /// Like [`Self::grant`], for one consumer.
    #[must_use]
    pub fn grant_to(&self, fleet: &Fleet, consumer: &Consumer, cluster: &ClusterName) -> Grant {
        if self.withdraws || self.excludes(fleet, cluster) {
            return Grant::Refused;
        }
        self.declared_grant_to(fleet, consumer, cluster)
    }

    /// Whether an account is refused only because its cluster is the hub itself.
    #[must_use]
    pub fn excludes_local_cluster(&self, fleet: &Fleet, key: &AccountKey) -> bool {
        let is_excluded = !self.withdraws && self.excludes(fleet, &key.cluster);
        is_excluded && self.declared_grant(fleet, key) == Grant::Granted
    }

    fn excludes(&self, fleet: &Fleet, cluster: &ClusterName) -> bool {
        let has_our_id =
            self.hub_openshift_id.as_deref().is_some_and(|id| fleet.has_openshift_id(cluster, id));
        !self.includes_local_cluster && (has_our_id || fleet.is_hub(cluster))
    }

    fn declared_grant(&self, fleet: &Fleet, key: &AccountKey) -> Grant {
        let consumers = self.consumers.of(&key.account).iter();
        let grants: Vec<Grant> =
            consumers.map(|consumer| self.declared_grant_to(fleet, consumer, &key.cluster)).collect();
        let strongest = [Grant::Granted, Grant::Unknown].into_iter().find(|grant| grants.contains(grant));
        strongest.unwrap_or(Grant::Refused)
    }

    fn declared_grant_to(&self, fleet: &Fleet, consumer: &Consumer, cluster: &ClusterName) -> Grant {
        let account = AccountKey { cluster: cluster.clone(), account: consumer.account.clone() };
        let is_protected = self.protected.protection(fleet, &consumer.namespace).is_some();
        if is_protected || (!consumer.is_own() && !can_have_copies(&account)) {
            return Grant::Refused;
        }
        let key = ProfileKey { namespace: consumer.namespace.clone(), cluster: account.cluster };
        grant::decide(fleet, &key)
    }

    /// The desired account. The token of the user server's account is copied to no namespace.
    pub(super) fn account(&self, consumer: &Consumer) -> Desired {
        let mut labels = self.labels();
        let mut annotations = BTreeMap::new();
        let rotation = match &consumer.identity {
            Identity::Account(Rotation { enabled, validity }) => {
                labels.insert(labels::SYNC_TO_CLUSTER_PROFILE.to_owned(), labels::TRUE.into());
                let namespace = consumer.namespace.as_str().into();
                annotations.insert(labels::SYNC_TO_NAMESPACES.to_owned(), namespace);
                json!({ "enabled": enabled, "validity": validity })
            }
            Identity::Own { .. } => {
                // Removed if present: they would have the token copied.
                labels.insert(labels::SYNC_TO_CLUSTER_PROFILE.to_owned(), Value::Null);
                annotations.insert(labels::SYNC_TO_NAMESPACES.to_owned(), Value::Null);
                json!({ "enabled": true, "validity": USER_SERVER_VALIDITY })
            }
        };
        let spec = [("rotation".to_owned(), rotation)].into_iter().collect();
        Desired { labels, annotations, owners: Value::Null, spec }
    }

    /// An object of this kind with these permissions, owned by their account so that it is garbage-collected with it;
    /// `None` if it is a ManifestWork and the namespace of the account is unknown.
    pub(super) fn permissions(
        &self,
        kind: AccessKind,
        permissions: &Permissions<'_>,
        account_uid: &str,
        account_namespace: Option<&str>,
    ) -> Option<Desired> {
        let owner = json!({
            "apiVersion": format!("{AUTHENTICATION}/v1beta1"), "kind": "ManagedServiceAccount",
            "name": permissions.account.as_str(), "uid": account_uid,
        });
        let spec = match kind {
            AccessKind::ClusterPermission => permissions.cluster_permission(),
            AccessKind::Account | AccessKind::ManifestWork => permissions.manifest_work(account_namespace?),
        };
        Some(Desired { labels: self.labels(), annotations: BTreeMap::new(), owners: json!([owner]), spec })
    }

    fn labels(&self) -> BTreeMap<String, Value> {
        self.marks().into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
    }
}

/// What an object should contain. Labels and annotations of others are kept; everything else is ours.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Desired {
    /// Null for a label that must be absent, as for an annotation.
    pub(super) labels: BTreeMap<String, Value>,
    pub(super) annotations: BTreeMap<String, Value>,
    /// `metadata.ownerReferences`, null if there are none.
    pub(super) owners: Value,
    pub(super) spec: Map<String, Value>,
}
