//! Real hubs on this machine, which start in seconds and end with their owner.
//!
//! A [`LocalHub`] is an etcd, a kube-apiserver and a kube-controller-manager, without containers and without nodes;
//! [`Pods`] adds a node with a real kubelet and containerd. With Open Cluster Management's CRDs it is a hub, without
//! them a managed cluster. No controller of Open Cluster Management runs; [`ocm`] creates its objects and writes their
//! statuses.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use k8s_openapi::api::rbac::v1::PolicyRule;
//! use local_hub::{LocalHub, eventually};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = LocalHub::builder().start().await?;
//! let may_read = PolicyRule {
//!     api_groups: Some(vec![String::new()]),
//!     resources: Some(vec!["configmaps".to_owned()]),
//!     verbs: vec!["get".to_owned()],
//!     ..PolicyRule::default()
//! };
//! hub.grant("consumer", vec![may_read]).await?;
//! let maps = kube::Api::<ConfigMap>::namespaced(hub.client_as("consumer").await?, "default");
//!
//! let before = hub.audit().mark().await?;
//! maps.get("kube-root-ca.crt").await?;
//! let asked = hub.audit().since(&before).await?.of_user("consumer");
//! assert_eq!(asked.count(|request| request.verb == "get"), 1, "{asked}");
//! # Ok(())
//! # }
//! ```
//!
//! # From a consumer on the hub to a managed cluster
//!
//! Stand-ins for the parts of Open Cluster Management's addons and of an application:
//!
//! - [`Agent`] creates a ServiceAccount on a managed cluster and reports its token to the hub, like the agent of the
//!   managed-serviceaccount addon; [`ocm::ServiceAccountToken`] creates the same objects on the hub without a cluster.
//! - [`UserServer`] forwards requests to the managed clusters' API servers, like cluster-proxy's user server.
//! - [`ServiceAccountAccess`] is an application on the hub, with its own token.
//! - [`Kubectl`] is what it runs.
//!
//! # Guarantees
//!
//! - **Nothing is left behind.** However the owning process ends, its hubs' programs are killed and their directories
//!   removed; dropping a hub waits for this.
//! - **Effects are complete on return.** CRDs are served, permissions are effective, controllers run, and requests
//!   before a [`Mark`] are in front of it in the audit log.
//! - **Hubs are isolated.** Each has its own data, authority, credentials, directory and port. Its data begins as a copy
//!   of what the first hub of the process with the same CRDs had when it was ready, so objects that Kubernetes creates
//!   at a start have the same uid on all of them.
//!
//! # Limits
//!
//! At most twelve hubs, or `LOCAL_HUB_MAX`, run in a process at the same time, and at most two start concurrently;
//! further ones wait. Processes do not wait for each other.

mod access;
pub mod agent;
mod audit;
mod builder;
mod capacity;
mod cluster;
pub mod crds;
mod error;
mod eventually;
pub mod field;
mod grants;
mod hub;
mod kubectl;
pub mod ocm;
mod pods;
mod ports;
mod programs;
mod random;
mod relay;
mod requests;
mod service;
mod service_accounts;
mod serving;
mod supervisor;
mod template;
mod user_server;
mod users;

pub use agent::Agent;
pub use audit::{AuditLog, Mark};
pub use builder::HubBuilder;
pub use cluster::Cluster;
pub use crds::{CrdSet, Flavour};
pub use error::{HubError, LogTail};
pub use eventually::{Outcome, TimedOut, eventually, try_eventually};
pub use grants::everything;
pub use hub::{LocalHub, Snapshot};
pub use kubectl::{Kubectl, RunningKubectl};
pub use pods::{Pods, PodsBuilder};
pub use relay::Relay;
pub use requests::{AuditRequest, Requests};
pub use service::Service;
pub use service_accounts::{ServiceAccountAccess, Token};
pub use serving::{ServingAuthority, ServingCertificate};
pub use supervisor::{Running, end_of};
pub use user_server::{Upstream, UserServer};
pub use users::{ADMIN, OCM};
