//! The suite next to upstream's own programs, on real hubs. `hack/test.sh field` builds them and runs these tests.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod argocd;
mod kueue;
mod migration;
mod own_identity;
mod registration;
mod tunnel;
mod user_server;
