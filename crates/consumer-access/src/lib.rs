//! Maintains the access that ClusterAccesses ask for: on each cluster that is granted to the namespace of an application
//! and that its object selects, its account and the account's permissions.
//!
//! - **Watches** ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding and the metadata of the namespace
//!   kube-system (through [`FleetCache`](hub_process::fleet_cache::FleetCache)), ClusterAccesses, the
//!   PlacementDecisions of the Placements that they refer to, ManagedServiceAccounts, and ManifestWorks with the names of
//!   its own: others can contain Secrets. Where the kind of permissions is configured, also ClusterPermissions with these
//!   names. Unless the namespace of accounts is configured, also the ManagedClusterAddOns that show it.
//! - **Writes** the statuses of ClusterAccesses, a ManagedServiceAccount that opts in to copies in the application's
//!   namespace alone, and a ManifestWork or ClusterPermission that binds the declared ClusterRoles to it: two writes for a
//!   cluster, and none while nothing changes. It also watches and writes MultiKueueClusters and
//!   MultiKueueConfigs; where one asks for cluster Secrets of Argo CD, it watches the ClusterProfiles in the namespace
//!   of that consumer, and watches and writes these Secrets there.
//! - **Guarantees** that both exist exactly where a binding grants the cluster, that the account is deleted before its
//!   permissions, that objects of other owners are neither changed nor deleted, and that an incomplete list deletes
//!   nothing. A hub that does not serve Kueue's API affects nothing else. Except for cluster Secrets, which contain no
//!   token, it needs no permission for Secrets; of one of another owner, it keeps the name of the cluster alone.
//!   [`hub_core::consumer_access`] makes the decisions.

mod controller;
mod state;
mod status;
mod store;
mod watch_name;
mod watches;
mod writes;

pub use controller::{ConsumerAccess, GATE};
pub use hub_core::consumer_access::{AccessRules, AccessSettings, Consumers};
