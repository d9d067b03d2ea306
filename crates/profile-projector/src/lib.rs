//! The profile projector: one ClusterProfile per granted cluster in each bound namespace.
//!
//! - **Watches** ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding (through
//!   [`FleetCache`](hub_process::fleet_cache::FleetCache)) and ClusterProfile (through
//!   [`Profiles`](hub_process::profiles::Profiles)).
//! - **Owns** the existence of a profile, its labels, its spec, and `status.{version,properties,conditions}`.
//! - **Guarantees** that a profile exists exactly where its cluster is granted, that an unknown state is never treated
//!   as empty, and that nothing is written if nothing differs. [`hub_core::project::desired`] and
//!   [`hub_core::concerned`] make the decisions.

mod controller;

pub use controller::{GATE, Projector};
pub use hub_core::project::ProjectionSettings;
