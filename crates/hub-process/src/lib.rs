//! Controllers in one process, and what they share.
//!
//! - A [`controller`] says what it watches, decides and owns; a [`process`] runs several in order, from its Lease to
//!   the last write;
//! - [`fleet_cache`] has the hub's clusters, sets and bindings, watched once for all controllers;
//! - [`served`] knows which version of ClusterProfile the hub serves;
//! - [`profiles`] has the cache and the single writer of ClusterProfiles, for all owners of their parts.

pub mod controller;
pub mod fleet_cache;
pub mod process;
mod profile_cache;
pub mod profiles;
mod property_pace;
pub mod served;
mod subjects;
