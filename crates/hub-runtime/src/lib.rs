//! The host of the hub addons: everything between the pure decisions of `hub-core` and the API server.
//!
//! - [`watch`] turns lists and watches into a history without lost deletes; [`fleet`] fills the index of
//!   clusters, sets and bindings with it, and [`profiles`] the cache of ClusterProfiles;
//! - [`queue`] hands out what has to be looked at again, and [`work`] has workers do it;
//! - [`mod@write`] sends writes: only while the [`lease`] is ours, under a timeout, counted;
//! - [`report`] tells people, [`metrics`] and [`health`] tell machines;
//! - [`host`] holds these together for the controllers of one process.

mod backoff;
pub mod error;
pub mod fleet;
pub mod gates;
pub mod health;
pub mod host;
mod keys;
pub mod lease;
pub mod metrics;
pub mod profiles;
pub mod queue;
pub mod report;
pub mod watch;
pub mod work;
pub mod write;
