//! The access that a ClusterAccess asks for in the namespace of an application. Each cluster that is granted to the
//! namespace, and that the object selects, gets a ManagedServiceAccount, and a ManifestWork (or, if configured, a
//! ClusterPermission) that binds the ClusterRoles to it. If declared, Kueue also gets a MultiKueueCluster for each of these
//! clusters and MultiKueueConfigs that list them, and Argo CD a cluster Secret for each.
//!
//! For an application with an identity of its own, the ClusterRoles are bound to its [users](crate::own_identity)
//! instead. The account is then that of the user server, which may impersonate exactly these users. All such
//! applications share that account on a cluster, and one object with the permissions of all: an application has its
//! part there while it is granted the cluster.
//!
//! - **The binding is the only authority.** The object says what an application gets on a cluster, and can leave
//!   clusters out; which ones there are, [`grant::decide`](crate::grant::decide) says.
//! - **The account comes first.** It is created before its permissions and deleted before them. Permissions without an
//!   account have no user, and an application whose account is gone is refused with a clear 401. A finalizer that
//!   delays the deletion of the account does not delay that of its permissions.
//! - **Permissions are bound only to an account of ours.** They are not created for, and are deleted beside, an account
//!   of another owner with the same name.
//! - **The platform chooses the kind of permissions.** If it is configured, what has our marks and is of the other kind
//!   is deleted when that of this kind exists; no one waits until the cluster has applied it.
//! - **One failure delays nothing else.** A failed write of one kind does not stop the writes of another kind, and
//!   permissions that cannot be listed stop only creates.
//! - **The hub itself is excluded** unless the settings include it: ClusterRoles that are bound there are permissions
//!   on the hub.
//! - **Unknown is not empty.** A grant in doubt creates nothing, and deletes nothing but permissions that are bound to
//!   an account of another owner.
//!
//! An object belongs to us if this process created it, or if it had the [marks](AccessSettings::marks) of this
//! installation when this process first saw it ([`FoundObject`]). An admission policy of the chart lets no other user
//! set or remove marks. We change and delete an object of ours only while its content, too, identifies it as ours: the
//! policies for our own writes can check nothing else.

pub(crate) mod applied;
mod argo_cd;
mod concerned;
mod consumers;
mod decision;
mod desired;
mod kind;
mod kueue;
mod observed;
mod permissions;
mod plan;
mod status;

pub use argo_cd::{CLUSTER_SECRET, PROFILE_LABELS, PublishedCluster, cluster_in_secret};
pub use concerned::{Concerned, KnownAccess, secrets_in};
pub use consumers::{
    AccessName, AccessRules, Changed, Consumer, Consumers, DeclaredAccess, NotAccepted,
    PlacementName,
};
pub use decision::DecisionKind;
pub use desired::{
    AccessAction, AccessSettings, COMPONENT, DEFAULT_ACCOUNT_NAMESPACE, INSTALLATION,
    IntegrationPlan,
};
pub use kind::{
    AccessKey, AccessKind, MULTI_KUEUE_CLUSTER, MULTI_KUEUE_CONFIG, SECRET, cluster_of_secret,
    cluster_secret_name, permissions_name,
};
pub use kueue::MAX_CLUSTERS;
pub use observed::{Content, FoundObject, ObservedAccess, ObservedObject};
pub use plan::AccessPlan;
pub use status::{OnCluster, Unread};
