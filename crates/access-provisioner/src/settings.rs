//! Settings of the provisioner and of direct access.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hub_core::access::{AccessSource, PublishedServer, Sighting};
use hub_core::trust::CaReference;

/// Settings of a provisioner. A process may have one for everyone who has a token of the cluster, and one for applications
/// that reach clusters by their own identity.
#[derive(Clone)]
pub struct ProvisionerSettings {
    /// The name of the entry.
    pub provider: String,
    /// The source of the entry.
    pub source: AccessSource,
    /// The location of the trust anchors; only that of cluster-proxy's can follow from its configuration.
    pub ca: Option<CaReference>,
    /// How long replaced trust anchors stay published; zero removes them at once.
    pub overlap: Duration,
    /// The time between two checks of the published server; with zero, there are none.
    pub check_interval: Duration,
    /// Connects to the published server.
    pub handshake: Handshake,
}

/// Connects to a server and returns what the TLS handshake shows.
pub type Handshake = Arc<dyn Fn(PublishedServer) -> BoxFuture<'static, Sighting> + Send + Sync>;

impl ProvisionerSettings {
    pub(crate) fn is_for_own_identity(&self) -> bool {
        matches!(self.source, AccessSource::UserServer(_))
    }

    pub(crate) fn controller(&self) -> &'static str {
        if self.is_for_own_identity() { "own-identity-provisioner" } else { "access-provisioner" }
    }
}
