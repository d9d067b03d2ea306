//! Consumer access on real hubs: the accounts of declared consumers, their permissions on the clusters, and Kueue's
//! objects.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod multikueue;

use kube::Client;
use local_hub::ocm::ManagedCluster;

/// The gate of consumer access alone.
const GATE: &str = "--feature-gates=ClusterProfile=false,ClusterProfileAccessProvider=false,\
                    ClusterProfileCredSyncer=false,ClusterProfileConsumers=true";

/// A cluster in a set, with its namespace.
async fn cluster(client: &Client, name: &str, set: &str) {
    support::world::ensure_namespace(client, name).await;
    ManagedCluster::named(name).in_set(set).create(client).await.expect("a cluster");
}
