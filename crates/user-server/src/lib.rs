//! The user server: applications reach their clusters by their own identity, and no token is stored for them.
//!
//! An application sends its request to `https://USER-SERVER/CLUSTER/PATH`, with its own ServiceAccount token of the
//! hub, projected for the audience of the user server. The user server
//!
//! 1. reads where the request goes, and refuses what it does not understand ([`hub_core::entry`]);
//! 2. has the hub review the token (`review.rs`);
//! 3. checks that the cluster is granted to the caller's namespace ([`hub_core::entry::admit`]), on each request
//!    (`admission.rs`);
//! 4. opens a stream through konnectivity's tunnel to the API server of the cluster (`clusters.rs`), which it verifies
//!    by the CA of its own account there, and sends the request as that account, which impersonates the caller
//!    (`forward.rs`);
//! 5. ends what is open when the grant ends (`sessions.rs`).
//!
//! - **Watches** ManagedCluster, ManagedClusterSet and ManagedClusterSetBinding (the fleet); the Secrets with the name
//!   of its account, in the namespaces of clusters; the Secrets with its client certificate for the proxy server and
//!   with the proxy server's CA.
//! - **Creates** `TokenReviews`. Where it issues its serving certificate, it writes the Secret and the ConfigMap of its
//!   certificate authority (`authority.rs`), and nothing else.
//! - **Guarantees** that a cluster never receives the token of an application; that no token is logged, or kept longer
//!   than its request; that nothing passes while a review or a grant is unknown.
//!
//! Every replica serves; there is no Lease.

mod access_log;
mod accounts;
mod admission;
mod authority;
mod body;
mod clusters;
mod connections;
mod controller;
mod forward;
mod metrics;
mod review;
mod serve;
mod sessions;
mod settings;
mod streams;

pub use admission::Admission;
pub use authority::{Authority, AuthoritySettings};
pub use controller::UserServer;
pub use metrics::UserServerMetrics;
pub use sessions::Session;
pub use settings::{ProxyServerSettings, UserServerSettings};
