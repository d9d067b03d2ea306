//! The access-provider provisioner, on real hubs: how consumers reach a cluster, kept true.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod anchors;
mod changes;
mod cost;
mod entry;
mod sources;
mod writers;
