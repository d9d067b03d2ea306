//! The projector on real hubs: which profiles exist, and what they contain.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod ownership;
mod versions;
