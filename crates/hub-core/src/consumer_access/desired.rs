//! The account and the permissions that a consumer should have on a cluster.

use std::collections::BTreeMap;

use hub_api::labels::{self, MANAGED_BY};
use hub_api::names::{AccountKey, ClusterName, Namespace, ProfileKey};
use serde_json::{Map, Value, json};

use super::declaration::{BoundClusterRole, Consumer, Consumers};
use super::kind::AccessKind;
use crate::credential::account::can_have_copies;
use crate::fleet::Fleet;
use crate::grant::{self, Grant};
use crate::protected::ProtectedNamespaces;

/// The label that distinguishes our objects from others of the same manager.
pub const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "consumer-access");
/// The label with the installation that an object belongs to: the namespace of its Leases.
///
/// Not `app.kubernetes.io/instance`: Argo CD prunes objects with that label that are in none of its repositories.
pub const INSTALLATION: &str = "hub-addons/installation";

/// Where the addon managed-serviceaccount runs by default, and with it the accounts; used where its
/// ManagedClusterAddOn shows no namespace.
pub const DEFAULT_ACCOUNT_NAMESPACE: &str = "open-cluster-management-agent-addon";

const RBAC: &str = "rbac.authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.open-cluster-management.io";

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
    /// Whether all access is withdrawn, as before an uninstallation.
    pub withdraws: bool,
}

impl AccessSettings {
    /// The labels of every object of ours.
    #[must_use]
    pub fn marks(&self) -> [(&'static str, &str); 3] {
        [MANAGED_BY, COMPONENT, (INSTALLATION, self.installation.as_str())]
    }

    /// Whether an account should exist: its consumer is declared, and its cluster is granted to the consumer's
    /// namespace and not the hub itself.
    #[must_use]
    pub fn grant(&self, fleet: &Fleet, key: &AccountKey) -> Grant {
        if self.withdraws || self.excludes(fleet, &key.cluster) {
            return Grant::Refused;
        }
        self.declared_grant(fleet, key)
    }

    /// Whether an account does not exist for the only reason that its cluster is the hub itself.
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
        let Some(consumer) = self.consumers.get(&key.account) else { return Grant::Refused };
        let is_protected = self.protected.protection(fleet, &consumer.namespace).is_some();
        if is_protected || !can_have_copies(key) {
            return Grant::Refused;
        }
        let key = ProfileKey { namespace: consumer.namespace.clone(), cluster: key.cluster.clone() };
        grant::decide(fleet, &key)
    }

    /// The account of a consumer, without name and namespace.
    pub(super) fn account(&self, consumer: &Consumer) -> Desired {
        let mut labels = self.labels();
        labels.insert(labels::SYNC_TO_CLUSTER_PROFILE.to_owned(), labels::TRUE.into());
        let annotations = [(labels::SYNC_TO_NAMESPACES.to_owned(), consumer.namespace.as_str().into())];
        let rotation =
            json!({ "enabled": consumer.rotation.enabled, "validity": consumer.rotation.validity });
        Desired {
            labels,
            annotations: annotations.into_iter().collect(),
            owners: Value::Null,
            spec: [("rotation".to_owned(), rotation)].into_iter().collect(),
        }
    }

    /// The permissions of a consumer in an object of this kind, owned by its account so that they are garbage-collected
    /// with it; `None` if it is a ManifestWork and the namespace of the account is unknown.
    pub(super) fn permissions(
        &self,
        kind: AccessKind,
        (consumer, account_uid): (&Consumer, &str),
        account_namespace: Option<&str>,
    ) -> Option<Desired> {
        let spec = match kind {
            AccessKind::ClusterPermission => cluster_permission(consumer),
            AccessKind::Account | AccessKind::ManifestWork => {
                let (roles, namespace) = (consumer.cluster_roles.iter(), account_namespace?);
                let manifests: Vec<Value> =
                    roles.flat_map(|role| bindings(consumer, namespace, role)).collect();
                json!({ "workload": { "manifests": manifests } })
            }
        };
        let owner = json!({
            "apiVersion": format!("{AUTHENTICATION}/v1beta1"), "kind": "ManagedServiceAccount",
            "name": consumer.account.as_str(), "uid": account_uid,
        });
        Some(Desired {
            labels: self.labels(),
            annotations: BTreeMap::new(),
            owners: json!([owner]),
            spec: spec.as_object().cloned().unwrap_or_default(),
        })
    }

    fn labels(&self) -> BTreeMap<String, Value> {
        self.marks().into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
    }
}

/// The bindings of one ClusterRole to the account in this namespace.
fn bindings(consumer: &Consumer, account_namespace: &str, role: &BoundClusterRole) -> Vec<Value> {
    let binding = |kind: &str, namespace: Option<&Namespace>| {
        let mut metadata = json!({
            "name": format!("hub-addons:{}:{}", consumer.account, role.name),
            "labels": { (MANAGED_BY.0): MANAGED_BY.1 },
        });
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.as_str().into();
        }
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": kind,
            "metadata": metadata,
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role.name },
            "subjects": [{
                "kind": "ServiceAccount", "name": consumer.account.as_str(),
                "namespace": account_namespace,
            }],
        })
    };
    if role.namespaces.is_empty() {
        return vec![binding("ClusterRoleBinding", None)];
    }
    role.namespaces.iter().map(|namespace| binding("RoleBinding", Some(namespace))).collect()
}

/// The spec of a ClusterPermission: the bindings of each ClusterRole to the account.
///
/// Their names differ from those in a ManifestWork, so that the agent removes neither with the other when one object
/// replaces the other.
fn cluster_permission(consumer: &Consumer) -> Value {
    let mut spec = Map::new();
    for role in &consumer.cluster_roles {
        let binding = json!({
            "name": format!("hub-addons-permission:{}:{}", consumer.account, role.name),
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role.name },
            "subject": {
                "apiGroup": AUTHENTICATION, "kind": "ManagedServiceAccount", "name": consumer.account.as_str(),
            },
        });
        let in_namespace = |namespace: &Namespace| {
            let mut binding = binding.clone();
            binding["namespace"] = namespace.as_str().into();
            binding
        };
        let (field, bindings) = if role.namespaces.is_empty() {
            ("clusterRoleBindings", vec![binding])
        } else {
            ("roleBindings", role.namespaces.iter().map(in_namespace).collect())
        };
        let list = spec.entry(field).or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.extend(bindings);
        }
    }
    Value::Object(spec)
}

/// What an object should contain. Labels and annotations of others are kept; everything else is ours.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Desired {
    pub(super) labels: BTreeMap<String, Value>,
    pub(super) annotations: BTreeMap<String, Value>,
    /// `metadata.ownerReferences`, null if there are none.
    pub(super) owners: Value,
    pub(super) spec: Map<String, Value>,
}
