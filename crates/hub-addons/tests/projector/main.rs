//! The projector, on real hubs: which profiles there are, what they show, and what that costs.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod churn;
mod conformance;
mod cost;
mod grants;
mod member_id;
mod outages;
mod ownership;
mod status;
mod versions;
