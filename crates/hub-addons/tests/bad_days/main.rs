//! Tests of the real program on a real API server: the process is killed at each of its writes, its requests fail, and
//! the API server and etcd are killed and stopped under load. `hack/robustness.sh real` runs the long form and prints
//! the results as a table.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod crashes;
mod faults;
mod load;
mod order;
mod outages;
mod stage;
