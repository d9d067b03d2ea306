//! The objects by which an application finds its clusters: Kueue's, and the cluster Secrets of Argo CD.

use std::fmt;

use hub_api::names::{ClusterName, Namespace, ProfileKey};
use serde_json::Value;

use super::argo_cd::cluster_secret_name;
use crate::action::Action;
use crate::finding::{Finding, Subject};

/// An object by which an application finds a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IntegrationKey {
    /// Kueue's MultiKueueCluster of a cluster.
    MultiKueueCluster(ClusterName),
    /// Kueue's MultiKueueConfig of this name.
    MultiKueueConfig(String),
    /// Argo CD's Secret of the cluster of a profile.
    ClusterSecret(ProfileKey),
}

impl IntegrationKey {
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::MultiKueueCluster(name) => name.to_string(),
            Self::MultiKueueConfig(name) => name.clone(),
            Self::ClusterSecret(key) => cluster_secret_name(&key.cluster),
        }
    }

    /// The namespace of the object, if its kind has one.
    #[must_use]
    pub fn namespace(&self) -> Option<&Namespace> {
        match self {
            Self::MultiKueueCluster(_) | Self::MultiKueueConfig(_) => None,
            Self::ClusterSecret(key) => Some(&key.namespace),
        }
    }

    /// The kind and the resource.
    #[must_use]
    pub const fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Self::MultiKueueCluster(_) => ("MultiKueueCluster", "multikueueclusters"),
            Self::MultiKueueConfig(_) => ("MultiKueueConfig", "multikueueconfigs"),
            Self::ClusterSecret(_) => ("Secret", "secrets"),
        }
    }

    /// The subject of findings on the object.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self {
            Self::MultiKueueCluster(_) | Self::MultiKueueConfig(_) => Subject::Kueue(self.clone()),
            Self::ClusterSecret(key) => Subject::Secret(key.namespace.clone(), self.name()),
        }
    }
}

impl fmt::Display for IntegrationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind().0;
        match self.namespace() {
            Some(namespace) => write!(f, "{kind} {namespace}/{}", self.name()),
            None => write!(f, "{kind} {}", self.name()),
        }
    }
}

/// The next write to such an object.
pub type IntegrationAction = Action<Value, Value>;

/// The next write, and what people should know.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegrationPlan {
    pub action: IntegrationAction,
    pub findings: Vec<Finding>,
}
