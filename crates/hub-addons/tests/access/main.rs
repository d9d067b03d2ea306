//! The access-provider provisioner on real hubs.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod entry;
mod server;
mod sources;
mod writers;
