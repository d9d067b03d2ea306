//! The projector, on real hubs: which profiles there are, what they show, and what that costs.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod churn;
mod cost;
mod grants;
mod outages;
mod ownership;
mod status;
