//! The access-provider provisioner: publishes in every ClusterProfile how to reach its cluster.
//!
//! - **Watches** ClusterProfile (through [`Profiles`](hub_process::profiles::Profiles)); for cluster-proxy its
//!   ManagedProxyConfiguration, its ManagedClusterAddOns and its serving certificate, or the Secret or ConfigMap that
//!   is configured in its place; for a static server that Secret or ConfigMap; for direct access ManagedCluster.
//! - **Owns** the entry of its own name in `status.accessProviders` of a profile. A second provisioner publishes the
//!   entry that leads to the user server, for applications with an identity of their own.
//! - **Guarantees** that an entry has a server and its trust anchors and never a credential; that an entry is withdrawn
//!   when its source is gone, and kept while its source cannot be read; that replaced trust anchors stay for an
//!   overlap, which ends when the proxy is seen to serve with a certificate of the new ones, or in time unless the proxy
//!   is seen with a certificate of the old ones. [`hub_core::access`] makes the decisions; this crate feeds it, checks
//!   the published server, and ends overlaps in time.

mod controller;
mod direct;
mod metrics;
mod settings;
mod store;
mod watches;

pub use controller::{GATE, OWN_IDENTITY_GATE, Provisioner};
pub use direct::{DIRECT_GATE, DIRECT_PROVIDER, Direct};
pub use metrics::EntryMetrics;
pub use settings::{Handshake, ProvisionerSettings};
