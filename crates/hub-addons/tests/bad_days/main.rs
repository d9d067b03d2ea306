//! The real program on a real API server that is killed, stopped and restored under load, with its etcd.
//! `hack/robustness.sh real` prints the results as a table.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod load;
mod outages;
mod stage;
