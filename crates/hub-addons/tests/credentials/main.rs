//! The credential syncer on real hubs: which tokens are copied where, and what causes copies to be deleted.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod authority;
mod collected;
mod hostile;
mod memory;
mod outages;
mod revocation;
mod secrecy;
mod status;
mod versions;
