//! Consumer access on real hubs: the accounts of declared consumers, their permissions on the clusters, Kueue's
//! objects, and the cluster Secrets of Argo CD.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod argo_cd;
mod cluster_permissions;
mod multikueue;
