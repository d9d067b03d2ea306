//! The `CustomResourceDefinition`s of the kinds in this crate, as YAML.
//!
//! The CRD of ClusterProfile is upstream's, in every published [`Flavour`], with printer columns for v1alpha1. Its
//! files and that of ClusterAccess are those of the chart. The CRDs of Open Cluster Management's kinds are for a hub
//! without Open Cluster Management: they validate the fields that the controllers read as upstream does, and preserve
//! every other field.

use std::str::FromStr;

/// The published CRDs of ClusterProfile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// v1alpha1 with map lists in the status, which server-side apply merges entry by entry: cluster-inventory-api
    /// v0.1.
    #[default]
    Map,
    /// v1alpha1 with atomic lists in the status, which server-side apply replaces as a whole: the CRD that Open Cluster
    /// Management installs. A writer that owns one entry must not use server-side apply with it.
    Atomic,
    /// Like [`Self::Map`], and serves v1alpha2 beside v1alpha1: cluster-inventory-api's main branch, for v0.2.0.
    V1alpha2,
}

impl Flavour {
    pub const ALL: [Self; 3] = [Self::Map, Self::Atomic, Self::V1alpha2];

    /// The flavour's name in flags, values and file names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Atomic => "atomic",
            Self::V1alpha2 => "v1alpha2",
        }
    }
}

/// The text is not one of [`Flavour::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a flavour of the ClusterProfile CRD: expected map, atomic or v1alpha2")]
pub struct UnknownFlavour(String);

impl FromStr for Flavour {
    type Err = UnknownFlavour;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|flavour| flavour.as_str() == text);
        named.ok_or_else(|| UnknownFlavour(text.to_owned()))
    }
}

/// The CRDs of Open Cluster Management's kinds.
pub const OCM: &str = include_str!("../crds/ocm.yaml");

/// The CRD of ClusterAccess.
pub const CLUSTER_ACCESS: &str =
    include_str!("../../../charts/hub-addons/files/clusteraccess.yaml");

/// The CRD of ClusterProfile.
#[must_use]
pub fn cluster_profile(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Map => include_str!("../../../charts/hub-addons/files/clusterprofile-map.yaml"),
        Flavour::Atomic => {
            include_str!("../../../charts/hub-addons/files/clusterprofile-atomic.yaml")
        }
        Flavour::V1alpha2 => {
            include_str!("../../../charts/hub-addons/files/clusterprofile-v1alpha2.yaml")
        }
    }
}

/// The CRDs of all kinds.
#[must_use]
pub fn all(flavour: Flavour) -> String {
    [OCM, cluster_profile(flavour), CLUSTER_ACCESS].join("---\n")
}
