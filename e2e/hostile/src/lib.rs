//! What a user server needs around it, scripted and on loopback: a hub, cluster-proxy's proxy server and clusters. And
//! clients and clusters that attack it.
//!
//! [`run`] starts the real program beside them, with all attacks at once and an honest tenant. [`Cluster::register`]
//! serves a cluster behind the real proxy server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "it only runs in tests, which a panic fails"
)]

mod act;
mod agent;
pub mod attacks;
mod certificate;
mod client;
mod cluster;
mod hub;
mod proxy;
pub mod run;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strum::VariantArray as _;

use self::act::Act;
pub use self::certificate::Certificate;
pub use self::client::{Body, Client, H2, endless};
pub use self::cluster::{Cluster, Seen};
pub use self::hub::{Hub, token};

/// Longer than anything takes: a test that waits for so long has failed.
pub const SOON: Duration = Duration::from_mins(2);

/// A hub with clusters behind a proxy server, and the certificate for a user server.
pub struct World {
    pub hub: Hub,
    pub proxy: SocketAddr,
    pub certificate: Certificate,
    clusters: Vec<Arc<Cluster>>,
    /// With the certificate, as `tls.crt` and `tls.key`.
    pub directory: tempfile::TempDir,
}

impl World {
    /// Starts everything, with these clusters. Every cluster is in the set `global`, which is bound nowhere.
    pub async fn start(clusters: &[&str]) -> Self {
        Self::of(clusters.iter().map(|name| Cluster::new((*name).to_owned(), None))).await
    }

    /// The same, and a hostile cluster of each kind.
    pub(crate) async fn with_hostile_clusters(clusters: &[&str]) -> Self {
        let honest = clusters.iter().map(|name| Cluster::new((*name).to_owned(), None));
        let hostile = Act::VARIANTS.iter().map(|act| Cluster::new(act.cluster(), Some(*act)));
        Self::of(honest.chain(hostile)).await
    }

    async fn of(clusters: impl Iterator<Item = Cluster>) -> Self {
        let (hub, entrypoint) = (Hub::start().await, Certificate::new("127.0.0.1"));
        let clusters: Vec<_> = clusters.map(Arc::new).collect();
        for cluster in &clusters {
            hub.accept_cluster(&cluster.name);
            hub.report_account(&cluster.name, &cluster.certificate.pem);
        }
        hub.add_proxy_server(&entrypoint);
        let proxy = proxy::start(&entrypoint, clusters.clone()).await;
        let (certificate, directory) =
            (Certificate::new("127.0.0.1"), tempfile::tempdir().unwrap());
        std::fs::write(directory.path().join("tls.crt"), &certificate.pem).unwrap();
        std::fs::write(directory.path().join("tls.key"), &certificate.key).unwrap();
        Self { hub, proxy, certificate, clusters, directory }
    }

    /// A cluster by its name.
    #[must_use]
    pub fn cluster(&self, name: &str) -> &Cluster {
        self.clusters.iter().find(|known| known.name == name).unwrap()
    }

    /// Clients of a user server at this address, which connect from another one of this machine.
    #[must_use]
    pub fn client(&self, server: SocketAddr, from: [u8; 4]) -> Client {
        Client::new(server, from.into(), &self.certificate)
    }
}

/// Waits for a condition.
pub async fn eventually(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(SOON, waiting).await.is_ok(), "{what}: not within {SOON:?}");
}
