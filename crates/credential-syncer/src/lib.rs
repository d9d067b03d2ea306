//! The credential syncer: each ManagedServiceAccount's token in the namespaces that its cluster is granted to.
//!
//! - **Watches** ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding (through
//!   [`FleetCache`](hub_runtime::fleet_cache::FleetCache)), ManagedServiceAccount, the metadata of ClusterProfile, and of
//!   Secrets those that an agent has labelled as a token and those that are labelled as a copy: no other Secret of
//!   the hub enters the process.
//! - **Writes** the copies, and on a ManagedServiceAccount one condition where there is trouble.
//! - **Guarantees** that a copy is where and only where a binding grants its cluster and its account asks for it;
//!   that what is clearly over takes a copy away at once and what is not known keeps it; that a Secret which is not
//!   a copy is never touched; that no byte of a token leaves it but to a copy. The decisions are
//!   [`hub_core::credential`]; what is here feeds them and carries them out.

mod accounts;
mod arrivals;
mod controller;
mod copies;
mod memory;
mod refusals;
mod settings;
mod store;
mod tally;
mod watches;

pub use controller::{GATE, Syncer};
pub use hub_core::credential::index::SyncSettings;
pub use settings::{SecretAccess, SyncerSettings};
