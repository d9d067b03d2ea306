//! The hub's API as Rust types: what the controllers read and write, and the CRDs that hold it.
//!
//! | module | kind | written by us |
//! |---|---|---|
//! | [`managed_cluster`] | `ManagedCluster`, `cluster.open-cluster-management.io/v1` | no |
//! | [`managed_cluster_set`] | `ManagedClusterSet`, `…/v1beta2` | no |
//! | [`managed_cluster_set_binding`] | `ManagedClusterSetBinding`, `…/v1beta2` | no |
//! | [`managed_cluster_addon`] | `ManagedClusterAddOn`, `addon.open-cluster-management.io/v1alpha1` | no |
//! | [`managed_proxy_configuration`] | `ManagedProxyConfiguration`, `proxy.open-cluster-management.io/v1alpha1` | no |
//! | [`managed_service_account`] | `ManagedServiceAccount`, `authentication.open-cluster-management.io/v1beta1` | one condition; accounts of consumers |
//! | [`secret`] | `Secret`, `v1`, in a type that never prints its data | copies of tokens |
//! | [`workloads`] | `Deployment`, `apps/v1`, and `Pod`, `v1`, with the fields that the commands read | the Pod of a test |
//! | [`cluster_access`] | `ClusterAccess`, `access.open-cluster-management.io/v1alpha1` | its status |
//! | [`cluster_profile`] | `ClusterProfile`, `multicluster.x-k8s.io/v1alpha1` and `…/v1alpha2` | yes |
//!
//! [`crds`] has the `CustomResourceDefinition`s of these kinds, [`names`] has validated identifiers and
//! [`labels`] the label and annotation keys.
//!
//! # Guarantees
//!
//! - **No I/O.** No client, no clock, no environment: types and their serde implementations.
//! - **What upstream accepts decodes.** Every object that the schemas of Open Cluster Management (OCM) and of
//!   cluster-inventory-api allow decodes here; unknown fields are ignored. One object that does not decode would stall
//!   a typed watch, and with it every cluster on the hub.
//! - **Upstream accepts what is written.** No null, no empty list in place of an absent one, no cluster without a
//!   server, in every published CRD of ClusterProfile ([`crds::Flavour`]).
//!
//! `upstream_crds` of `hub-addons` compares all of this with upstream's own CRDs.

pub mod cluster_access;
pub mod cluster_profile;
pub mod crds;
pub mod labels;
pub mod managed_cluster;
pub mod managed_cluster_addon;
pub mod managed_cluster_set;
pub mod managed_cluster_set_binding;
pub mod managed_proxy_configuration;
pub mod managed_service_account;
pub mod names;
pub mod secret;
pub mod text;
pub mod workloads;

mod decode;

// For hub-core, which depends on no client.
pub use kube::core::{Expression, SelectorExt};

pub use self::decode::Unreadable;
