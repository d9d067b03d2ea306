//! The host of the hub addons: everything between the pure decisions of `hub-core` and the API server.
//!
//! - [`watch`] turns lists and watches into a history without lost deletes; [`fleet_cache`] fills the index of
//!   clusters, sets and bindings with it, and [`profiles`] the cache of ClusterProfiles;
//! - [`queue`] hands out what has to be reconciled, the most urgent first, and [`work`] has workers do it;
//! - [`mod@write`] sends writes: only while the [`lease`] is ours, under a timeout, counted, and few
//!   while the [`gate`] says that the API server is in trouble; [`next_step`] says what
//!   follows from one that failed;
//! - [`served`] knows which version of ClusterProfile the hub serves;
//! - [`report`] tells people, [`metrics`] and [`health`] tell machines, [`secure_metrics`] those that may ask;
//! - [`host`] holds these together; a [`controller`] is what uses them, and [`process`] runs controllers, in order.

mod backoff;
pub mod controller;
pub mod error;
pub mod fleet_cache;
pub mod gate;
pub mod gates;
pub mod health;
pub mod host;
mod keys;
pub mod lease;
pub mod metrics;
pub mod next_step;
pub mod process;
pub mod profiles;
pub mod queue;
mod ready;
mod refusals;
pub mod report;
pub mod secure_metrics;
pub mod served;
mod suspended;
pub mod tasks;
pub mod watch;
pub mod work;
mod workers;
pub mod write;
