//! Settings of the provisioner and of direct access.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hub_core::access::{PublishedServer, Sighting};
use hub_core::endpoint::ServerTemplate;
use hub_core::trust::CaReference;

/// Settings of a provisioner. A process may have one for everyone who has a token of the cluster, and one for applications
/// that reach clusters by their own identity.
#[derive(Clone)]
pub struct ProvisionerSettings {
    /// The name of the entry.
    pub provider: String,
    /// The source of the entry.
    pub source: SourceSettings,
    /// How long replaced trust anchors stay published; zero removes them at once.
    pub overlap: Duration,
    /// The time between two checks of the published server; with zero, there are none.
    pub check_interval: Duration,
    /// Connects to the published server.
    pub handshake: Handshake,
}

/// Connects to a server and returns what the TLS handshake shows.
pub type Handshake = Arc<dyn Fn(PublishedServer) -> BoxFuture<'static, Sighting> + Send + Sync>;

/// The source of an entry's server and trust anchors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSettings {
    /// OCM's cluster-proxy addon.
    ClusterProxy {
        /// Whether only clusters with the addon get the entry.
        require_addon: bool,
        /// The location of the trust anchors, if it is not the user server's serving certificate.
        ca: Option<CaReference>,
    },
    /// A proxy that the administrator configures.
    Static {
        server: ServerTemplate,
        /// The location of the trust anchors.
        ca: CaReference,
    },
    /// The user server, for applications that reach clusters by their own identity.
    UserServer {
        server: ServerTemplate,
        /// The location of the trust anchors.
        ca: CaReference,
    },
}

impl SourceSettings {
    pub(crate) fn is_user_server(&self) -> bool {
        matches!(self, Self::UserServer { .. })
    }

    pub(crate) fn controller(&self) -> &'static str {
        if self.is_user_server() { "own-identity-provisioner" } else { "access-provisioner" }
    }
}
