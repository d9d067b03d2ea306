//! How the syncer is set up.

use hub_core::credential::index::SyncSettings;

/// How the syncer is set up.
#[derive(Debug, Clone, Default)]
pub struct SyncerSettings {
    /// What it decides by.
    pub sync: SyncSettings,
    /// How it finds Secrets.
    pub access: SecretAccess,
}

/// How Secrets are watched, and so which permissions that takes. RBAC cannot limit one to a label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SecretAccess {
    /// By their labels, in all namespaces at once: two watches, and the permission to list every Secret of the hub.
    #[default]
    Cluster,
    /// Tokens by the names of the accounts that ask for copies, copies in the namespaces where it is given the
    /// permission: a watch each, and no other Secrets.
    Granted {
        /// The name of the RoleBindings that give the permission for copies.
        role_binding: String,
    },
}
