//! The arguments of the gate `ClusterProfileConsumers`.

use clap::{ArgAction, Args};
use consumer_access::{AccessRules, AccessSettings, Consumers};
use hub_api::names::{Namespace, is_dns_label};
use hub_core::access::OWN_IDENTITY_PROVIDER;
use hub_core::consumer_access::AccessKind;
use hub_core::own_identity;

use super::RunArgs;

/// What ClusterAccesses may ask for, and what they get on the clusters that their namespaces are granted.
#[derive(Debug, Args)]
#[command(next_help_heading = "Access of applications (gate ClusterProfileConsumers)")]
pub struct ConsumersArgs {
    /// ClusterRoles of the clusters that ClusterAccesses may ask for; those that ask for another one are not accepted.
    /// Requires an admission policy by which their authors may ask only for what they may bind, as the chart has it. The
    /// gate ClusterProfileCredRights needs the same value
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub allowed_cluster_roles: Vec<String>,

    /// Kind of the objects that give permissions on clusters: ManifestWork, or ClusterPermission, which requires the
    /// controller cluster-permission. What exists of the other kind is then deleted; by default ManifestWork, and objects
    /// of the other kind are not read
    #[arg(long, value_name = "KIND")]
    pub consumer_permissions: Option<AccessKind>,

    /// Namespace of the accounts on every cluster; by default that of the addon managed-serviceaccount, as its
    /// ManagedClusterAddOn for each cluster shows it
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub consumer_account_namespace: Option<Namespace>,

    /// For the gate ClusterProfileCredRights: maintain a Role and a RoleBinding for each ClusterAccess with the identity
    /// Copy, by which its ServiceAccounts read the tokens that are copied for it
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub cluster_access: bool,
}

/// Parses the name of a namespace.
pub(super) fn namespace(text: &str) -> Result<Namespace, String> {
    if is_dns_label(text) { Ok(text.into()) } else { Err("must be a DNS label".to_owned()) }
}

impl RunArgs {
    /// What ClusterAccesses may ask for.
    pub fn access_rules(&self) -> AccessRules {
        AccessRules {
            user_server: self
                .access
                .user_server_url
                .is_some()
                .then(|| own_identity::ACCOUNT.into()),
            allowed_cluster_roles: self.consumers.allowed_cluster_roles.iter().cloned().collect(),
            protected: self.decisions.protected_namespaces.clone(),
        }
    }

    /// The settings of consumer access. `leases` is the namespace of the Lease, which distinguishes installations.
    pub fn consumer_access(&self, leases: &str) -> AccessSettings {
        AccessSettings {
            consumers: Consumers::new(self.access_rules()),
            permissions: self.consumers.consumer_permissions,
            account_namespace: self.consumers.consumer_account_namespace.clone(),
            protected: self.decisions.protected_namespaces.clone(),
            installation: leases.into(),
            provider: self.decisions.provider.access_provider_name.clone(),
            own_provider: OWN_IDENTITY_PROVIDER.to_owned(),
        }
    }
}
