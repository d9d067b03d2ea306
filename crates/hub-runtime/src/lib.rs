//! The host of the hub addons: everything between the pure decisions of `hub-core` and the API server.
//!
//! - [`watch`] turns lists and watches into a history without lost deletes; [`fleet_cache`] fills the index of
//!   clusters, sets and bindings with it, and [`profiles`] the cache of ClusterProfiles;
//! - [`queue`] orders the keys to reconcile by priority, and [`work`] runs workers on it;
//! - [`mod@write`] sends writes: only while the process holds the [`lease`], with a timeout, counted, and only probes
//!   while the circuit breaker is open; [`flow`] contains everything that can delay a key;
//! - [`served`] knows which version of ClusterProfile the hub serves;
//! - [`report`] publishes Events, [`metrics`] and [`health`] serve metrics and probes, [`secure_metrics`] serves
//!   metrics to authorized clients with a [`serving_certificate`], and [`review_budget`] limits what invalid tokens cost;
//! - [`host`] holds these together; a [`controller`] uses them, and [`process`] runs controllers in order.

mod backoff;
pub mod controller;
pub mod error;
pub mod feature_gates;
pub mod fleet_cache;
pub mod flow;
pub mod health;
pub mod host;
mod keys;
pub mod lease;
pub mod metrics;
pub mod process;
mod profile_cache;
pub mod profiles;
pub mod queue;
mod ready;
pub mod report;
pub mod review_budget;
pub mod secure_metrics;
pub mod served;
mod serving;
pub mod serving_certificate;
mod suspended;
pub mod tasks;
pub mod watch;
pub mod work;
pub mod write;
