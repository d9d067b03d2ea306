//! The projector on real hubs: which profiles exist, what they contain, and what they cost.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod cost;
mod grants;
mod outages;
mod ownership;
mod versions;
