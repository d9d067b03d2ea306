//! A stand-in for the agent of Open Cluster Management's managed-serviceaccount addon: creates a ServiceAccount on a
//! managed cluster and reports its token to the hub.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

use crate::ocm::{ServiceAccountToken, TOKEN_LABEL};
use crate::{HubError, LocalHub, OCM, access, service_accounts};

/// The namespace of the agent, and of its ServiceAccounts, on every managed cluster.
pub const NAMESPACE: &str = "open-cluster-management-agent-addon";

/// The agent of one managed cluster. It acts only when it is called.
///
/// The permissions of its ServiceAccounts are granted on the managed cluster, by
/// [`grant_service_account`](crate::Cluster::grant_service_account) in [`NAMESPACE`].
#[derive(Clone)]
pub struct Agent {
    cluster: String,
    hub: Client,
    managed: Client,
    ca: String,
}

impl Agent {
    /// The agent of the cluster with this name on the hub; clients of the cluster trust the authorities in `ca_pem`.
    /// Both clients need all permissions of the agent.
    #[must_use]
    pub fn new(cluster: &str, hub: Client, managed: Client, ca_pem: &str) -> Self {
        Self { cluster: cluster.to_owned(), hub, managed, ca: ca_pem.to_owned() }
    }

    /// The same between two hubs of this machine, as their user [`OCM`].
    pub async fn between(
        cluster: &str,
        hub: &LocalHub,
        managed: &LocalHub,
    ) -> Result<Self, HubError> {
        let (at_hub, at_managed) = (hub.client_as(OCM).await?, managed.client_as(OCM).await?);
        Ok(Self::new(cluster, at_hub, at_managed, managed.ca_pem()))
    }

    /// The same between the current contexts of two kubeconfigs.
    pub async fn from_kubeconfigs(
        cluster: &str,
        hub: &Path,
        managed: &Path,
    ) -> Result<Self, HubError> {
        let client = |config| Client::try_from(config).map_err(HubError::api("make a client"));
        let managed = access::config_from(managed).await?;
        let authorities = managed.root_cert.iter().flatten();
        let certificates: Vec<_> =
            authorities.map(|der| pem::Pem::new("CERTIFICATE", der.clone())).collect();
        let format = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        let ca = pem::encode_many_config(&certificates, format);
        Ok(Self::new(cluster, client(access::config_from(hub).await?)?, client(managed)?, &ca))
    }

    /// Creates the ServiceAccount of a ManagedServiceAccount if it does not exist, and reports a new token, replacing
    /// the previous one. Returns its expiry.
    ///
    /// The API server of the managed cluster requires a validity of at least ten minutes.
    pub async fn report(&self, account: &str, validity: Duration) -> Result<Timestamp, HubError> {
        let labelled = service_accounts::object(NAMESPACE, account).label(TOKEN_LABEL, "true");
        service_accounts::ensure(&self.managed, &labelled).await?;
        let (token, expires) =
            service_accounts::request_token(&self.managed, NAMESPACE, account, None, validity)
                .await?;
        ServiceAccountToken::of(&self.cluster, account)
            .token(token.expose().as_bytes())
            .expires(expires)
            .authority(&self.ca)
            .report(&self.hub)
            .await?;
        Ok(expires)
    }

    /// Deletes the ServiceAccount on the managed cluster, if it exists. Its tokens become invalid, after the seconds
    /// for which the API server caches authentications. Nothing changes on the hub.
    pub async fn delete_service_account(&self, account: &str) -> Result<(), HubError> {
        service_accounts::delete(&self.managed, NAMESPACE, account).await
    }
}
