//! The profile projector: one ClusterProfile per granted cluster in each bound namespace.
//!
//! - **Watches** ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding (through
//!   [`FleetCache`](hub_runtime::fleet_cache::FleetCache)) and ClusterProfile (through
//!   [`Profiles`](hub_runtime::profiles::Profiles)).
//! - **Owns** of a profile: that it exists, its labels, its spec, and `status.{version,properties,conditions}`.
//! - **Guarantees** that a profile exists where and only where its cluster is granted, that unknown is never
//!   taken for empty, and that nothing is written where nothing differs. The decisions are
//!   [`hub_core::project::share`] and [`hub_core::concerned`].

mod controller;

pub use controller::{GATE, Projector};
pub use hub_core::project::ProjectionSettings;
