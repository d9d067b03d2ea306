//! The images, in Pods of Deployments.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod cp_creds;
mod memory;
mod network_policies;
mod nodes;
mod stage;
