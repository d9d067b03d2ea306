//! The access-provider provisioner: every ClusterProfile says how its cluster is reached.
//!
//! - **Watches** ClusterProfile (through [`Profiles`](hub_runtime::profiles::Profiles)); for cluster-proxy its
//!   ManagedProxyConfiguration, the ManagedClusterAddOns of that name and one Secret; else the one Secret or
//!   ConfigMap that it is given. For direct access ManagedCluster.
//! - **Owns** of a profile: the entry of its own name in `status.accessProviders`.
//! - **Guarantees** that an entry carries a server and the trust anchors for it and never a credential; that
//!   what is gone withdraws the entry and what cannot be read keeps it; that replaced anchors stay for an
//!   overlap. The decisions are [`hub_core::access`]; what is here feeds them and ends overlaps in time.

mod controller;
mod direct;
mod settings;
mod store;
mod tally;
mod watches;

pub use controller::{GATE, Provisioner};
pub use direct::{DIRECT_GATE, Direct};
pub use settings::{
    CaKind, CaReference, DEFAULT_DIRECT_PROVIDER, DirectSettings, InvalidCaReference, ProvisionerSettings,
    SourceSettings,
};
