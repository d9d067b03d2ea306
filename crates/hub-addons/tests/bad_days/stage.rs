//! A hub with the proxy addon, on which a process of all controllers works, and what people and other controllers do to
//! it.

use std::time::Duration;

use kube::Client;
use kube::api::DeleteParams;
use local_hub::ocm::{self, ManagedCluster, Object, ServiceAccountToken};
use local_hub::{HubBuilder, HubError, eventually};

use crate::support::oracle::deviations;
use crate::support::proxy::{self, Authority, HOME, addon, serving};
use crate::support::{Hub, credentials, rights, world};

/// A process that has every controller, and does not wait for the Lease of one that was killed.
pub const ARGUMENTS: [&str; 2] = ["--leader-elect=false", "--ca-overlap=0"];

/// A hub for all controllers, with the proxy addon.
pub async fn start(builder: HubBuilder) -> Hub {
    let mut rules = rights::both();
    rules.extend(rights::syncer());
    let hub = Hub::start(builder, rules).await;
    proxy::install(&hub, &Authority::new("first"), &[]).await;
    hub
}

/// Waits until the hub shows what follows from its inputs, and nothing else.
pub async fn converges(client: &Client, within: Duration) {
    eventually("everything is as it should be", within, async || {
        let wrong = deviations(client).await.map_err(|error| error.to_string())?;
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    })
    .await;
}

/// A namespace in which a set of its name is bound.
pub async fn team(client: &Client, name: &str) {
    world::create(client, [ocm::namespace(name), ocm::cluster_set(name), ocm::bound(name, name)]).await;
}

/// A cluster joins a set: with the addon, and a token that is shared.
pub async fn joins(client: &Client, name: &str, set: &str) {
    world::create(client, [ocm::namespace(name), addon(name)]).await;
    cluster(name, set).create(client).await.unwrap();
    token(name).create(client).await.unwrap();
}

/// A cluster of a set.
pub fn cluster(name: &str, set: &str) -> ManagedCluster {
    ManagedCluster::named(name).in_set(set)
}

/// The token of a cluster that is shared.
pub fn token(cluster: &str) -> ServiceAccountToken {
    credentials::token(cluster, "app")
}

/// The proxy's certificate is replaced by another authority's.
pub async fn renews_certificate(client: &Client) -> Result<(), HubError> {
    serving(HOME, &Authority::new("next").chain()).update(client).await
}

/// A cluster is gone with all that is its own.
pub async fn forget(client: &Client, cluster_name: &str) {
    let token = token(cluster_name);
    let source = Object::new(("", "v1", "Secret"), "secrets", Some(cluster_name), "app");
    for object in [cluster(cluster_name, "").into(), token.account(), source, addon(cluster_name)] {
        // Some of it may be gone already.
        let _ = object.api(client).delete(object.name(), &DeleteParams::background()).await;
    }
}
