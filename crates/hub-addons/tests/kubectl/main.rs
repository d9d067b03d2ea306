//! `kubectl clusterprofile`, called by kubectl itself on real hubs.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod chain;
mod misconfigured;
mod plugin;
