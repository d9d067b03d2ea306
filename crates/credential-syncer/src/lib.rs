//! The credential syncer: copies each ManagedServiceAccount's token to the namespaces that its cluster is granted to.
//!
//! - **Watches** ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding (through
//!   [`FleetCache`](hub_process::fleet_cache::FleetCache)), ManagedServiceAccount, the metadata of ClusterProfile, and
//!   Secrets that are labelled as a token by an agent or as a copy: no other Secret of the hub enters the process.
//! - **Writes** the copies, and one condition on a ManagedServiceAccount whose copies are missing.
//! - **Guarantees** that a copy exists exactly where a binding grants its cluster and its account opts in; that it is
//!   deleted immediately if a precondition is known not to hold, and kept if one is unknown; that a Secret which is not
//!   a copy is never changed; that no byte of a token is written anywhere but to a copy. [`hub_core::credential`] makes
//!   the decisions; this crate feeds it and carries them out.

mod accounts;
mod bulk_changes;
mod controller;
mod copies;
mod memory;
mod metrics;
mod settings;
mod store;
mod watches;

pub use controller::{GATE, Syncer};
pub use hub_core::credential::index::SyncSettings;
pub use metrics::CredentialMetrics;
pub use settings::SyncerSettings;
