//! The arguments of the gate `ClusterProfileConsumers`.
#![allow(
    clippy::doc_markdown,
    reason = "these comments are the text of --help, which shows backticks as they are"
)]

use clap::{ArgAction, Args};
use consumer_access::{AccessSettings, Consumers};
use hub_api::names::{Namespace, is_dns_label};

use super::RunArgs;

/// What consumers get on the clusters that their namespaces are granted.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access of consumers (gate ClusterProfileConsumers)")]
pub struct ConsumersArgs {
    /// The consumers, as a JSON list of {"namespace", "managedServiceAccount", "clusterRoles": [{"name",
    /// "namespaces"}], "permissions", "rotation": {"enabled", "validity"}, "multiKueueConfig", "multiKueueConfigs":
    /// [{"name", "clusterSelector"}], "argoCD": {"command"}}. On each cluster that is granted to the namespace, the
    /// account gets the ClusterRoles, in the whole cluster or in the namespaces, by a ManifestWork or, with
    /// "permissions": "ClusterPermission", by a ClusterPermission. With "identity": "own", "name" and "serviceAccounts"
    /// take the place of "rotation", and "managedServiceAccount" is that of the user server: the users that these
    /// ServiceAccounts of the namespace are on the cluster get the ClusterRoles, and the account may act as them. For Kueue, one consumer can name the MultiKueueConfig
    /// that lists its clusters, or several, each with a selector of their labels. With "argoCD", each cluster has a
    /// cluster Secret of Argo CD in the namespace
    #[arg(long, value_name = "JSON")]
    pub consumers: Option<Consumers>,

    /// Namespace of the accounts on every cluster; by default that of the addon managed-serviceaccount, as its
    /// ManagedClusterAddOn for each cluster shows it
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub consumer_account_namespace: Option<Namespace>,

    /// Also give consumers access to the hub itself where it is a managed cluster (local-cluster): their ClusterRoles
    /// are then permissions on the hub
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub consumer_local_cluster: bool,

    /// ID of the hub on OpenShift (spec.clusterID of its ClusterVersion), by which it is recognized as a managed cluster
    #[arg(long, value_name = "ID")]
    pub hub_openshift_id: Option<String>,

    /// Withdraw the access of every consumer, as before an uninstallation
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub withdraw_consumers: bool,
}

/// Parses the name of a namespace.
fn namespace(text: &str) -> Result<Namespace, String> {
    if is_dns_label(text) { Ok(text.into()) } else { Err("must be a DNS label".to_owned()) }
}

impl RunArgs {
    /// The settings of consumer access, if consumers are declared. `leases` is the namespace of the Lease, which
    /// distinguishes installations.
    pub fn consumer_access(&self, leases: &str) -> Option<AccessSettings> {
        Some(AccessSettings {
            consumers: self.consumers.consumers.clone()?,
            account_namespace: self.consumers.consumer_account_namespace.clone(),
            protected: self.protected_namespaces.clone(),
            installation: leases.into(),
            includes_local_cluster: self.consumers.consumer_local_cluster,
            hub_openshift_id: self.consumers.hub_openshift_id.clone(),
            provider: self.access.access_provider_name.clone(),
            own_provider: self.access.own_identity_provider_name.clone(),
            withdraws: self.consumers.withdraw_consumers,
        })
    }
}
