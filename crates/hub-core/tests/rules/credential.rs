//! What becomes of credentials.

mod authority;
mod changes;
mod cost;
mod keeping;
mod laws;
mod listed;
mod names;
mod repair;
mod report;
