//! A simulated hub, to prove that the controllers get over bad days.
//!
//! - [`model`] is the API server: deterministic, without a client, compared with a real one by a test;
//! - [`world`] and [`service`] are the network between it and the processes, under the real kube client;
//! - [`process`] starts the real controllers;
//! - [`operation`] is what can happen, by the hands of the people and programs on a [`hub`](mod@hub);
//! - [`schedule`] runs random operations from a seed, and [`monitor`] and [`oracle`] judge what comes of it;
//! - [`coverage`] says what never occurred, and so was not tested;
//! - [`shrink`] finds the smallest schedule that still fails.

pub mod certificates;
pub mod coverage;
pub mod hub;
pub mod model;
pub mod monitor;
pub mod operation;
pub mod oracle;
pub mod process;
pub mod schedule;
pub mod service;
pub mod shrink;
pub mod world;
