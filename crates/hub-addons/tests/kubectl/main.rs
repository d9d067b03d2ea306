//! `kubectl clusterprofile`, called by kubectl itself on real hubs.

#![cfg(test)]

#[path = "../reference/page.rs"]
mod page;
#[path = "../support/mod.rs"]
mod support;

mod chain;
mod configuration;
mod guide;
mod json;
mod misconfigured;
mod options;
mod plugin;
mod report;
