//! Settings of the syncer.

use hub_core::credential::index::SyncSettings;

#[derive(Debug, Clone, Default)]
pub struct SyncerSettings {
    pub sync: SyncSettings,
    pub access: SecretAccess,
}

/// How Secrets are watched, which determines the required permissions. RBAC cannot limit a permission to a label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SecretAccess {
    /// By label, in all namespaces: two watches, and permission to list every Secret of the hub.
    #[default]
    Cluster,
    /// Tokens by the names of the accounts that opt in, copies in the namespaces where the syncer has permission: a
    /// watch for each, and no other Secrets.
    Granted {
        /// The name of the RoleBindings that grant the permission for copies.
        role_binding: String,
    },
}
