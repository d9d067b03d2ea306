//! A simulated hub, to test that the controllers converge after crashes, faults and outages.
//!
//! - [`model`] is the API server: deterministic, without a client, and compared with a real one by a test;
//! - [`world`] and [`service`] are the network between it and the processes, below the real kube client;
//! - [`process`] starts the real controllers;
//! - [`operation`] is what users, agents, other controllers and faults do to a [`hub`](mod@hub);
//! - [`consumers`] lists the consumers that they declare;
//! - [`schedule`] runs random operations from a seed, and [`monitor`] and [`oracle`] judge the results;
//! - [`coverage`] lists the operations and faults that never occurred, and so were not tested;
//! - [`shrink`] finds the smallest schedule that still fails.

pub mod actor;
mod certificates;
pub mod consumers;
pub mod coverage;
pub mod grant;
pub mod hub;
pub mod model;
pub mod monitor;
pub mod operation;
pub mod oracle;
pub mod process;
pub mod schedule;
mod service;
pub mod shrink;
pub mod world;
