//! The arguments of the gate `ClusterProfileConsumers`.

use clap::{ArgAction, Args};
use consumer_access::{AccessRules, AccessSettings, Consumers, PermissionKind};
use hub_api::names::{AccountName, Namespace, is_dns_label, is_dns_subdomain};
use hub_core::access::OWN_IDENTITY_PROVIDER;

use super::RunArgs;

/// What ClusterAccesses may ask for, and what they get on the clusters that their namespaces are granted.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access of applications (gate ClusterProfileConsumers)")]
pub struct ConsumersArgs {
    /// ManagedServiceAccount of the user server on each cluster, for ClusterAccesses with the identity Own. Without it,
    /// they are not accepted. The gate ClusterProfileCredRights needs the same value
    #[arg(long, value_name = "NAME", value_parser = account)]
    pub user_server_account: Option<AccountName>,

    /// ClusterRoles of the clusters that ClusterAccesses may ask for; those that ask for another one are not accepted.
    /// Requires an admission policy by which their authors may ask only for what they may bind, as the chart has it. The
    /// gate ClusterProfileCredRights needs the same value
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub allowed_cluster_roles: Vec<String>,

    /// Kind of the objects that give permissions on clusters: ManifestWork, or ClusterPermission, which requires the
    /// controller cluster-permission. What exists of the other kind is then deleted; by default ManifestWork, and objects
    /// of the other kind are not read
    #[arg(long, value_name = "KIND")]
    pub consumer_permissions: Option<PermissionKind>,

    /// Namespace of the accounts on every cluster; by default that of the addon managed-serviceaccount, as its
    /// ManagedClusterAddOn for each cluster shows it
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub consumer_account_namespace: Option<Namespace>,

    /// Also give applications access to the hub itself where it is a managed cluster (local-cluster): their ClusterRoles
    /// are then permissions on the hub
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub consumer_local_cluster: bool,

    /// ID of the hub on OpenShift (spec.clusterID of its ClusterVersion), by which it is recognized as a managed cluster
    #[arg(long, value_name = "ID")]
    pub hub_openshift_id: Option<String>,
}

/// Parses the name of a namespace.
fn namespace(text: &str) -> Result<Namespace, String> {
    if is_dns_label(text) { Ok(text.into()) } else { Err("must be a DNS label".to_owned()) }
}

/// Parses the name of an account, which is part of longer names.
fn account(text: &str) -> Result<AccountName, String> {
    const MOST: usize = 200;
    let is_valid = is_dns_subdomain(text) && text.len() <= MOST;
    if is_valid {
        Ok(text.into())
    } else {
        Err(format!("must be a DNS subdomain of at most {MOST} characters"))
    }
}

impl RunArgs {
    /// What ClusterAccesses may ask for.
    pub fn access_rules(&self) -> AccessRules {
        AccessRules {
            user_server: self.consumers.user_server_account.clone(),
            allowed_cluster_roles: self.consumers.allowed_cluster_roles.iter().cloned().collect(),
            protected: self.protected_namespaces.clone(),
        }
    }

    /// The settings of consumer access. `leases` is the namespace of the Lease, which distinguishes installations.
    pub fn consumer_access(&self, leases: &str) -> AccessSettings {
        AccessSettings {
            consumers: Consumers::new(self.access_rules()),
            permissions: self.consumers.consumer_permissions,
            account_namespace: self.consumers.consumer_account_namespace.clone(),
            protected: self.protected_namespaces.clone(),
            installation: leases.into(),
            includes_local_cluster: self.consumers.consumer_local_cluster,
            hub_openshift_id: self.consumers.hub_openshift_id.clone(),
            provider: self.access.access_provider_name.clone(),
            own_provider: OWN_IDENTITY_PROVIDER.to_owned(),
        }
    }
}
