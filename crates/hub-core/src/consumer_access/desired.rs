//! The account and the permissions that a consumer should have on a cluster.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::labels::{self, MANAGED_BY};
use hub_api::names::{AccountKey, ClusterName, Namespace};
use serde_json::{Map, Value, json};

use super::consumers::{Consumer, Consumers};
use super::kind::{AccessKey, AccessKind};
use crate::action::Action;
use crate::credential::account::can_have_copies;
use crate::finding::Finding;
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

/// The validity of tokens if none is declared: the default of ManagedServiceAccount.
const DEFAULT_VALIDITY: &str = "8640h0m0s";
/// The validity of the tokens of the user server. They may act as every application, so it is short; the agent renews a
/// token long before its end.
const USER_SERVER_VALIDITY: &str = "24h0m0s";

/// Which consumers get access, and what identifies it.
#[derive(Debug, Clone, PartialEq)]
pub struct AccessSettings {
    /// The consumers that the objects declare.
    pub consumers: Consumers,
    /// The kind of object that gives permissions, if it is configured: then one of the other kind may exist from before,
    /// and ends.
    pub permissions: Option<AccessKind>,
    /// The namespace of the accounts on each cluster, if it is not that of the addon managed-serviceaccount there.
    pub account_namespace: Option<Namespace>,
    /// The namespaces that get no access, even if a set is bound there.
    pub protected: ProtectedNamespaces,
    /// The installation that our objects belong to, as the value of a label. Objects of another installation are those
    /// of another owner.
    pub installation: Namespace,
    /// The name of the access provider in ClusterProfiles.
    pub provider: String,
    /// The name of the access provider for applications with an identity of their own.
    pub own_provider: String,
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
        if fleet.is_hub(&key.cluster) {
            return Grant::Refused;
        }
        if !self.consumers.contains(&key.account) {
            return self.undeclared_grant();
        }
        let users = self.users(fleet, key).into_iter();
        let grant = users.map(|consumer| self.grant_to(fleet, consumer, &key.cluster)).max();
        grant.unwrap_or(Grant::Refused).max(self.unreadable_grant(fleet, key))
    }

    /// The grant of objects that cannot be decoded and may use an account, too: only of one that is shared.
    pub(super) fn unreadable_grant(&self, fleet: &Fleet, key: &AccountKey) -> Grant {
        let names = self.consumers.unreadable().filter(|_| self.consumers.is_shared(&key.account));
        let grants = names.filter(|name| !self.protected.protects(fleet, &name.namespace));
        let grants =
            grants.map(|name| grant::decide(fleet, &key.cluster.in_namespace(&name.namespace)));
        grants.fold(Grant::Refused, |known, grant| known.max(grant.min(Grant::Unknown)))
    }

    /// Like [`Self::grant`], for one consumer.
    #[must_use]
    pub fn grant_to(&self, fleet: &Fleet, consumer: &Consumer, cluster: &ClusterName) -> Grant {
        let is_decided = self.consumers.is_decided(consumer, cluster);
        self.grant_if_decided(fleet, consumer, cluster, is_decided)
    }

    /// The same, given whether the Placement of the consumer has decided for the cluster.
    pub(super) fn grant_if_decided(
        &self,
        fleet: &Fleet,
        consumer: &Consumer,
        cluster: &ClusterName,
        is_decided: Option<bool>,
    ) -> Grant {
        if fleet.is_hub(cluster) {
            return Grant::Refused;
        }
        let grant = self.bound_grant(fleet, consumer, cluster);
        match (selects_by_labels(fleet, consumer, cluster), is_decided) {
            (Some(false), _) | (_, Some(false)) => Grant::Refused,
            (Some(true), Some(true)) if self.consumers.is_read() => grant,
            // What the object asks for may have changed.
            _ => grant.min(Grant::Unknown),
        }
    }

    /// The grant of what no known object asks for: one that is not known yet may.
    pub(super) fn undeclared_grant(&self) -> Grant {
        if self.consumers.is_complete() { Grant::Refused } else { Grant::Unknown }
    }

    /// The kind of object that gives permissions: a ManifestWork unless another one is configured.
    #[must_use]
    pub fn permission_kind(&self) -> AccessKind {
        self.permissions.unwrap_or(AccessKind::ManifestWork)
    }

    /// The kinds of objects that may give permissions.
    #[must_use]
    pub fn permission_kinds(&self) -> &'static [AccessKind] {
        if self.permissions.is_some() {
            &AccessKind::PERMISSIONS
        } else {
            &[AccessKind::ManifestWork]
        }
    }

    /// The consumers of an account that may be granted its cluster. The applications that share the account of the user
    /// server are many, and each has few clusters.
    #[must_use]
    pub fn users<'a>(&'a self, fleet: &Fleet, key: &AccountKey) -> Vec<&'a Consumer> {
        let is_shared = self.consumers.of(&key.account).next().is_some_and(Consumer::is_own);
        if !is_shared || !fleet.knows_selections() {
            return self.consumers.of(&key.account).collect();
        }
        let namespaces: BTreeSet<_> = fleet.candidates_for(&key.cluster).collect();
        let mut users = Vec::new();
        for namespace in namespaces {
            users.extend(
                self.consumers.in_namespace(namespace).filter(|it| it.account == key.account),
            );
        }
        users
    }

    /// Whether the namespace of a consumer is granted a cluster, whichever clusters the object selects.
    pub(super) fn bound_grant(
        &self,
        fleet: &Fleet,
        consumer: &Consumer,
        cluster: &ClusterName,
    ) -> Grant {
        let account = cluster.account(&consumer.account);
        let is_protected = self.protected.protects(fleet, consumer.namespace());
        if is_protected || (!consumer.is_own() && !can_have_copies(&account)) {
            return Grant::Refused;
        }
        grant::decide(fleet, &cluster.in_namespace(consumer.namespace()))
    }

    /// The desired account. The token of the user server's account is copied to no namespace.
    pub(super) fn account(&self, consumer: &Consumer) -> Desired {
        let mut labels = self.labels();
        let mut annotations = BTreeMap::new();
        let rotation = if consumer.is_own() {
            // Removed if present: they would have the token copied.
            labels.insert(labels::SYNC_TO_CLUSTER_PROFILE.to_owned(), Value::Null);
            annotations.insert(labels::SYNC_TO_NAMESPACES.to_owned(), Value::Null);
            json!({ "enabled": true, "validity": USER_SERVER_VALIDITY })
        } else {
            labels.insert(labels::SYNC_TO_CLUSTER_PROFILE.to_owned(), labels::TRUE.into());
            let namespace = consumer.namespace().as_str().into();
            annotations.insert(labels::SYNC_TO_NAMESPACES.to_owned(), namespace);
            let rotation = consumer.spec.rotation.clone().unwrap_or_default();
            let validity = rotation.validity.as_deref().unwrap_or(DEFAULT_VALIDITY);
            json!({ "enabled": rotation.enabled.unwrap_or(true), "validity": validity })
        };
        let spec = Map::from_iter([("rotation".to_owned(), rotation)]);
        Desired { labels, annotations, owners: Value::Null, spec }
    }

    pub(super) fn labels(&self) -> BTreeMap<String, Value> {
        self.marks().into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
    }
}

/// What an object should contain. Labels and annotations of others are kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Desired {
    /// Null for a label that must be absent, as for an annotation.
    pub(super) labels: BTreeMap<String, Value>,
    pub(super) annotations: BTreeMap<String, Value>,
    /// `metadata.ownerReferences`, null if there are none.
    pub(super) owners: Value,
    /// The spec, or the data of a Secret.
    pub(super) spec: Map<String, Value>,
}

impl Desired {
    /// A new object.
    pub(super) fn object(&self, key: &AccessKey) -> Value {
        let kind = key.api().resource();
        let present = |values: &BTreeMap<String, Value>| -> Map<String, Value> {
            values.clone().into_iter().filter(|(_, value)| !value.is_null()).collect()
        };
        let mut metadata = json!({
            "name": key.name(), "namespace": key.namespace(), "ownerReferences": self.owners,
            "labels": present(&self.labels), "annotations": present(&self.annotations),
        });
        let fields = metadata.as_object_mut().into_iter();
        fields.for_each(|fields| fields.retain(|_, value| !value.is_null() && *value != json!({})));
        let content = if matches!(key, AccessKey::ClusterSecret(_)) { "data" } else { "spec" };
        json!({
            "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, content: self.spec,
        })
    }

    /// The metadata in a merge patch.
    pub(super) fn metadata(&self) -> Value {
        json!({ "labels": self.labels, "annotations": self.annotations, "ownerReferences": self.owners })
    }
}

/// A write to one of the objects.
pub type AccessAction = Action<Value, Value>;

/// Whether the selector of a consumer matches a cluster; `None` if that is unknown.
fn selects_by_labels(fleet: &Fleet, consumer: &Consumer, cluster: &ClusterName) -> Option<bool> {
    match &consumer.selector {
        Ok(None) => Some(true),
        Ok(Some(_)) if !fleet.knows_selections() => None,
        Ok(Some(selector)) => {
            Some(fleet.cluster(cluster).is_some_and(|it| selector.matches(&it.labels)))
        }
        Err(_) => None,
    }
}

/// The next write to an object by which an application finds its clusters, and what people should know.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegrationPlan {
    pub action: AccessAction,
    pub findings: Vec<Finding>,
}
