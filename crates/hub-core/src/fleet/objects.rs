//! The fields of clusters, sets of clusters and bindings that decisions read.

use std::collections::BTreeMap;
use std::sync::Arc;

use hub_api::managed_cluster::{
    CONDITION_AVAILABLE, CONDITION_JOINED, ClientConfig, ManagedCluster, ManagedClusterClaim,
    ManagedClusterSpec, ManagedClusterStatus,
};
use hub_api::managed_cluster_set::ManagedClusterSet;
use hub_api::managed_cluster_set_binding::{CONDITION_BOUND, ManagedClusterSetBinding};
use hub_api::names::ClusterSetName;
use hub_api::{Unreadable, labels};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use crate::finding::{Finding, Reason};
use crate::selector::ClusterSelector;
use crate::version::Uid;

/// The fields of a ManagedCluster that decisions read.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedCluster {
    pub uid: Option<Uid>,
    pub labels: BTreeMap<String, String>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `spec.hubAcceptsClient`, if it can be read.
    pub accepted: Option<bool>,
    /// The rest of the object, or why it cannot be read.
    pub state: Result<ClusterState, String>,
}

/// What a ManagedCluster reports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterState {
    /// `status.version.kubernetes`, absent when empty.
    pub kubernetes_version: Option<String>,
    /// `status.clusterClaims`, in their order.
    pub claims: Box<[ManagedClusterClaim]>,
    /// `ManagedClusterConditionAvailable`.
    pub available: Option<Condition>,
    /// `ManagedClusterJoined`.
    pub joined: Option<Condition>,
    /// `spec.managedClusterClientConfigs`: the cluster's own API servers.
    pub endpoints: Arc<[ClientConfig]>,
}

impl ClusterState {
    fn read(spec: ManagedClusterSpec, status: ManagedClusterStatus) -> Self {
        let condition = |kind: &str| {
            status.conditions.iter().find(|condition| condition.type_ == kind).cloned()
        };
        Self {
            available: condition(CONDITION_AVAILABLE),
            joined: condition(CONDITION_JOINED),
            kubernetes_version: status
                .version
                .and_then(|version| version.kubernetes)
                .filter(|version| !version.is_empty()),
            claims: status.cluster_claims.into(),
            endpoints: spec.managed_cluster_client_configs.into(),
        }
    }
}

impl ObservedCluster {
    #[must_use]
    pub fn read(cluster: Result<ManagedCluster, Unreadable>) -> Self {
        let (metadata, accepted, state) = match cluster {
            Ok(ManagedCluster { metadata, spec, status }) => {
                let accepted = Some(spec.hub_accepts_client);
                (metadata, accepted, Ok(ClusterState::read(spec, status.unwrap_or_default())))
            }
            Err(Unreadable { metadata, spec, error }) => {
                let accepted = spec.and_then(|spec| match &spec["hubAcceptsClient"] {
                    Value::Null => Some(false),
                    value => value.as_bool(),
                });
                (*metadata, accepted, Err(error))
            }
        };
        Self {
            uid: metadata.uid.as_deref().map(Uid::from),
            labels: metadata.labels.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp.map(|time| time.0),
            accepted,
            state,
        }
    }

    /// Whether it has joined, or may have since its state cannot be read.
    pub(crate) fn may_have_joined(&self) -> bool {
        let state = self.state.as_ref();
        state.map_or(true, |state| state.joined.as_ref().is_some_and(|it| it.status == "True"))
    }

    /// Whether two readings agree in all that grants, selectors and the copies of tokens depend on, except for the claim
    /// by which the hub itself is known.
    pub(super) fn is_granted_like(&self, other: &Self) -> bool {
        let depended_on = |it: &Self| {
            (it.uid.clone(), it.deleting, it.created, it.accepted, it.may_have_joined())
        };
        self.labels == other.labels && depended_on(self) == depended_on(other)
    }

    pub(super) fn has_claim(&self, name: &str, value: &str) -> bool {
        let claims = self.state.iter().flat_map(|state| &state.claims);
        claims.into_iter().any(|claim| claim.name == name && claim.value == value)
    }

    /// The exclusive set that the cluster's label names, if any.
    pub(crate) fn exclusive_set(&self) -> Option<&str> {
        self.labels
            .get(labels::EXCLUSIVE_CLUSTER_SET)
            .map(String::as_str)
            .filter(|set| !set.is_empty())
    }
}

/// The fields of a ManagedClusterSet that decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedClusterSet {
    pub uid: Option<Uid>,
    /// The clusters that it selects, or the finding if this is unknown.
    pub selector: Result<ClusterSelector, Finding>,
}

impl ObservedClusterSet {
    #[must_use]
    pub fn read(set: Result<ManagedClusterSet, Unreadable>) -> Self {
        let invalid = |error| {
            let message = format!(
                "{error}; existing profiles of this set are kept, none is added or removed"
            );
            Finding::new(Reason::InvalidSelector, message)
        };
        let (metadata, selector) = match set {
            Ok(ManagedClusterSet { metadata, spec, .. }) => {
                (metadata, ClusterSelector::parse(&spec.cluster_selector).map_err(invalid))
            }
            Err(Unreadable { metadata, error, .. }) => {
                (*metadata, Err(Finding::unreadable(&error)))
            }
        };
        Self { uid: metadata.uid.as_deref().map(Uid::from), selector }
    }

    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.selector.as_ref().err().cloned().into_iter().collect()
    }
}

/// The fields of a ManagedClusterSetBinding that decisions read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedBinding {
    pub uid: Option<Uid>,
    /// What it binds, or why this cannot be read.
    pub terms: Result<BindingTerms, String>,
}

/// What a ManagedClusterSetBinding binds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingTerms {
    /// `spec.clusterSet`.
    pub cluster_set: ClusterSetName,
    /// Whether its condition [`CONDITION_BOUND`] is True.
    pub bound: bool,
}

impl ObservedBinding {
    #[must_use]
    pub fn read(binding: Result<ManagedClusterSetBinding, Unreadable>) -> Self {
        let (metadata, terms) = match binding {
            Ok(ManagedClusterSetBinding { metadata, spec, status }) => {
                let mut conditions = status.iter().flat_map(|status| &status.conditions);
                let bound = conditions.any(|it| it.type_ == CONDITION_BOUND && it.status == "True");
                let cluster_set = ClusterSetName::new(spec.cluster_set);
                (metadata, Ok(BindingTerms { cluster_set, bound }))
            }
            Err(Unreadable { metadata, error, .. }) => (*metadata, Err(error)),
        };
        Self { uid: metadata.uid.as_deref().map(Uid::from), terms }
    }

    #[must_use]
    pub fn findings(&self, name: &ClusterSetName) -> Vec<Finding> {
        match &self.terms {
            Ok(terms) if terms.cluster_set != *name => vec![Finding::new(
                Reason::BindingNameMismatch,
                format!(
                    "grants nothing: spec.clusterSet is {:?}, and a binding must have the name of its set",
                    terms.cluster_set.as_str()
                ),
            )],
            Ok(_) => Vec::new(),
            Err(error) => vec![Finding::unreadable(error)],
        }
    }
}
