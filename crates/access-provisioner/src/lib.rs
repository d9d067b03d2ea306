//! The access-provider provisioner: every ClusterProfile says how its cluster is reached.
//!
//! - **Watches** ClusterProfile (through [`Profiles`](hub_runtime::profiles::Profiles)); for cluster-proxy its
//!   ManagedProxyConfiguration, the ManagedClusterAddOns of that name and one Secret; else the one Secret or
//!   ConfigMap that it is given. For direct access ManagedCluster.
//! - **Owns** of a profile: the entry of its own name in `status.accessProviders`.
//! - **Guarantees** that an entry carries a server and the trust anchors for it and never a credential; that
//!   what is gone withdraws the entry and what cannot be read keeps it; that replaced anchors stay for an
//!   overlap. The decisions are [`hub_core::access`]; what is here feeds them and ends overlaps in time.

mod direct;
mod provisioner;
mod settings;
mod sources;
mod tally;

pub use direct::{DEFAULT_DIRECT_PROVIDER, DIRECT_GATE, Direct, DirectSettings};
pub use provisioner::{GATE, Provisioner};
pub use settings::{CaKind, CaReference, InvalidCaReference, ProvisionerSettings, SourceSettings};
