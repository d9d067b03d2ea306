//! Settings of the syncer.

use hub_core::credential::index::SyncSettings;

#[derive(Debug, Clone, Default)]
pub struct SyncerSettings {
    pub sync: SyncSettings,
    /// How Secrets are watched, which determines the required permissions, since RBAC cannot limit a permission to a
    /// label.
    ///
    /// With the name of the RoleBindings that grant the permission for copies: tokens by the names of the accounts that
    /// opt in, copies in the namespaces where the syncer has permission, with a watch for each, and no other Secrets.
    /// `None`: by label, in all namespaces, with two watches and permission to list every Secret of the hub.
    pub copies_binding: Option<String>,
}
