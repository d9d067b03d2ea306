//! `local-hub report-token`: reports a token once, like the agent of the managed-serviceaccount addon.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use local_hub::{Agent, HubError};

use super::say;

/// Report a token for a ManagedServiceAccount, like its agent on the managed cluster
///
/// On the managed cluster, it creates the namespace
/// open-cluster-management-agent-addon and the ServiceAccount MSA in it if they do
/// not exist, and requests a token for it. On the hub, it writes the token and the
/// cluster's authority into the Secret MSA in namespace CLUSTER, and the status of
/// the ManagedServiceAccount, which must exist.
///
/// Each call reports a new token, valid for an hour. The old one stays valid until it expires or its
/// ServiceAccount is deleted. The token is not printed.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ReportToken {
    /// A kubeconfig for the hub
    #[arg(long, value_name = "KUBECONFIG")]
    hub: PathBuf,

    /// A kubeconfig for the managed cluster
    #[arg(long, value_name = "KUBECONFIG")]
    managed: PathBuf,

    /// The managed cluster's name, which is a namespace on the hub
    #[arg(long, value_name = "NAME")]
    cluster: String,

    /// The ManagedServiceAccount's name
    #[arg(long, value_name = "NAME")]
    msa: String,
}

impl ReportToken {
    /// Reports a token.
    pub async fn run(self) -> Result<(), HubError> {
        let agent = Agent::from_kubeconfigs(&self.cluster, &self.hub, &self.managed).await?;
        let expires = agent.report(&self.msa, Duration::from_hours(1)).await?;
        say(&format!("reported a token of {}/{} that ends {expires}", self.cluster, self.msa));
        Ok(())
    }
}
