//! Grants the credential syncer its permissions only where they are needed.
//!
//! - **Watches** ManagedCluster, ManagedClusterSet and ManagedClusterSetBinding (through
//!   [`FleetCache`](hub_process::fleet_cache::FleetCache)), the metadata of ManagedServiceAccounts that opt in,
//!   RoleBindings with the name of its own, each ClusterRole that it grants, by name, the Lease of the syncer,
//!   ClusterAccesses, and by label the Roles and RoleBindings of applications.
//! - **Writes** a RoleBinding of one role in each namespace with a binding in effect, and the names in the only rule of
//!   the other role. The RoleBindings are garbage-collected with their role. For each ClusterAccess whose tokens are
//!   copied, it writes a Role with the names of the copies that the namespace is granted, and a RoleBinding of its
//!   ServiceAccounts, unless they have another owner.
//! - **Guarantees** that it needs no permission for Secrets itself (it has `bind` on one role and `escalate` on the
//!   other, by name:
//!   <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>),
//!   that an incomplete list removes no permission, and that a permission which is no longer needed stays until the
//!   syncer has run for long enough to clean up. [`hub_core::rights`] and [`hub_core::consumer_role`] make the
//!   decisions.
//! - **Does not bound itself** where it writes Roles of applications. ClusterAccesses name them, RBAC knows no patterns
//!   of names, and a request to create a Role has no name that RBAC could compare, so it has `escalate` and `bind` on all
//!   Roles: by RBAC alone, every permission in every namespace. To hold `get` on the Secrets instead would let it read
//!   the tokens. Admission policies bound it, as they do for what RBAC cannot express elsewhere: only a Role that
//!   belongs to a ClusterAccess, outside of protected namespaces, with `get` on copies of its account, bound to its
//!   ServiceAccounts. The chart does not run it without the policies unless a value accepts that.

mod controller;
mod store;
mod watches;
mod writes;

pub use controller::{CredentialRights, GATE};
pub use hub_core::rights::PermissionSettings;
