//! Everything between the decisions of `hub-core` and the API server that any controller needs. It knows no kind of Open Cluster
//! Management.
//!
//! - [`watch`] turns lists and watches into a history without lost deletes;
//! - [`queue`] orders the keys to reconcile by priority, and [`queue::work`] runs workers on it;
//! - [`reconciler`] is the loop of every worker: plan, write, wait for the watch;
//! - [`written`] contains what our own writes have left and a watch has not shown yet;
//! - [`mod@write`] sends writes: only while the process holds its [lease](host::lease), with a timeout, counted, and
//!   only probes while the circuit breaker is open;
//! - [`flow`] contains everything that can delay a key;
//! - [`observe`] publishes Events and serves metrics and probes;
//! - [`host`] holds these together for the controllers of a process.

pub mod flow;
pub mod host;
pub mod observe;
pub mod queue;
pub mod reconciler;
pub mod watch;
pub mod write;
pub mod written;
