//! Access of applications that a platform team declares once: on each cluster that is granted to the application's
//! namespace, a ManagedServiceAccount, and a ManifestWork that binds the declared ClusterRoles to it, or a
//! ClusterPermission, if that is declared. For Kueue, if it is declared, also a MultiKueueCluster for each of these
//! clusters, and the MultiKueueConfig that lists them; for Argo CD a cluster Secret for each.
//!
//! For an application with an identity of its own, the ClusterRoles are bound to its [users](crate::own_identity) instead.
//! The account is then that of the user server, which may impersonate exactly these. One serves all such applications on a
//! cluster, with one object for the permissions of all: each has its part there while it is granted the cluster.
//!
//! - **The binding is the only authority.** The declaration says what an application gets on a cluster, never on which
//!   one: [`grant::decide`](crate::grant::decide) does.
//! - **The account goes first.** It is created before its permissions and deleted before them. Permissions without an
//!   account have no user, and an application whose account is gone is refused with a clear 401. A finalizer that holds
//!   the account does not hold its permissions.
//! - **Permissions are bound only to an account of ours.** They are not created for, and are deleted beside, an account of
//!   another owner with the same name.
//! - **One kind of permissions replaces the other without a gap.** If a consumer declares its kind, permissions of the
//!   other kind exist until those of the declared kind are applied on the cluster. Until then, they follow the declaration.
//! - **What cannot be written or listed delays nothing else.** A write that fails does not keep an object of another kind,
//!   and what has been revoked is removed from existing permissions before new ones are created.
//! - **The hub itself is no cluster for applications** unless the settings say so: ClusterRoles that are bound there are
//!   permissions on the hub.
//! - **Unknown is not empty.** A grant in doubt creates nothing, and deletes nothing but permissions that are bound to an
//!   account of another owner.
//!
//! An object belongs to us if this process created it, or if it had the [marks](AccessSettings::marks) of this
//! installation when this process first saw it ([`FoundObject`]). An admission policy of the chart lets no other user set
//! or remove marks. We change and delete an object of ours only while it also shows by what it is that it is ours, which
//! is all that the policies for our own writes can check.

pub(crate) mod applied;
mod argo_cd;
mod concerned;
mod declaration;
mod desired;
mod integration;
mod kind;
mod kueue;
mod observed;
mod permissions;
mod plan;

pub use argo_cd::{
    CLUSTER_SECRET, PROFILE_LABELS, PublishedCluster, cluster_of_secret, cluster_secret_name,
    foreign_cluster_secret,
};
pub use declaration::{
    ArgoCd, BoundClusterRole, Consumer, Consumers, Identity, InvalidConsumers, PermissionKind, Rotation,
};
pub use desired::{AccessSettings, COMPONENT, DEFAULT_ACCOUNT_NAMESPACE, INSTALLATION};
pub use integration::{IntegrationAction, IntegrationKey, IntegrationPlan};
pub use kind::{AccessKind, permissions_name};
pub use kueue::{KUEUE_API, MAX_CLUSTERS};
pub use observed::{FoundObject, ObservedAccess, ObservedObject};
pub use plan::{AccessAction, AccessPlan};
