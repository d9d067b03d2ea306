//! Consumer access on real hubs: the accounts of declared consumers, their permissions on the clusters, and Kueue's
//! objects.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod cluster_permissions;
mod multikueue;
