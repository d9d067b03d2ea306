//! The rights of the credential syncer, given where they are needed and nowhere else.
//!
//! - **Watches** ManagedClusterSet and ManagedClusterSetBinding (through
//!   [`FleetCache`](hub_runtime::fleet_cache::FleetCache)), the metadata of ManagedServiceAccounts that ask for copies, its
//!   own RoleBindings, and each ClusterRole that it gives, by name.
//! - **Writes** a RoleBinding to the one role in each namespace in which a binding is in force, and the names in the one
//!   rule of the other. The RoleBindings are collected when their role goes.
//! - **Guarantees** that it needs no right to a Secret itself (`bind` on one role and `escalate` on the other are
//!   what it has), that a list which is not complete takes no right away, and that a right which is no longer needed
//!   stays long enough for the syncer to clean up. The decisions are [`hub_core::rights`].

mod controller;
mod store;
mod watches;
mod writes;

pub use controller::{CredentialRights, GATE};
pub use hub_core::rights::PermissionSettings;
