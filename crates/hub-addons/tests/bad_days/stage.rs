//! A hub with the proxy addon and one process with all controllers, and the operations of users and other controllers.

use std::time::Duration;

use kube::Client;
use local_hub::ocm::{self, ManagedCluster, ServiceAccountToken};
use local_hub::{HubBuilder, HubError, eventually};

use crate::support::oracle::deviations;
use crate::support::proxy::{self, Authority, HOME, addon, serving};
use crate::support::{Hub, credentials, rights, world};

/// The arguments of a process with every controller, which does not wait for the Lease of a killed process.
pub const ARGUMENTS: [&str; 2] = ["--leader-elect=false", "--ca-overlap=0"];

/// A hub for all controllers, with the proxy addon.
pub async fn start(builder: HubBuilder) -> Hub {
    let mut rules = rights::both();
    rules.extend(rights::syncer());
    let hub = Hub::start(builder, rules).await;
    proxy::install(&hub, &Authority::new("first"), &[]).await;
    hub
}

/// Waits until the hub has exactly the outputs that follow from its inputs.
pub async fn converges(client: &Client, within: Duration) {
    eventually("everything is as it should be", within, async || {
        let wrong = deviations(client).await.map_err(|error| error.to_string())?;
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    })
    .await;
}

/// Creates a namespace in which the set of the same name is bound.
pub async fn team(client: &Client, name: &str) {
    world::create(client, [ocm::namespace(name), ocm::cluster_set(name), ocm::bound(name, name)]).await;
}

/// Creates a cluster in a set, with the addon and an account that opts in to copies of its token.
pub async fn joins(client: &Client, name: &str, set: &str) {
    world::create(client, [ocm::namespace(name), addon(name)]).await;
    cluster(name, set).create(client).await.unwrap();
    token(name).create(client).await.unwrap();
}

/// A cluster of a set.
pub fn cluster(name: &str, set: &str) -> ManagedCluster {
    ManagedCluster::named(name).in_set(set)
}

/// The token of a cluster whose account opts in to copies.
pub fn token(cluster: &str) -> ServiceAccountToken {
    credentials::token(cluster, "app")
}

/// Replaces the proxy's certificate by that of another authority.
pub async fn renews_certificate(client: &Client) -> Result<(), HubError> {
    serving(HOME, &Authority::new("next").chain()).update(client).await
}
