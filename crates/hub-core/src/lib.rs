//! Every decision of the hub addons, as plain functions over plain data.
//!
//! This crate does not call a Kubernetes API, await, or read a clock, and Cargo enforces this: it depends on the API's
//! types and on no client or runtime. The same inputs give the same plan, byte for byte, in whatever order they
//! arrived. Data flows one way:
//!
//! 1. [`fleet`] indexes clusters, sets and bindings;
//! 2. [`grant`] decides which clusters are granted to which namespaces, and why;
//! 3. [`project`] computes the desired profile of a cluster;
//! 4. [`member_id`] decides the ID that correlates the profiles of one cluster;
//! 5. [`access`] decides how to reach the cluster, at an [`endpoint`] that may be published and with which [`trust`]
//!    anchors;
//! 6. [`profile`] joins what all owners of a profile desire and plans the next write;
//! 7. [`credential`] decides where the token of a cluster's account is copied, and plans the next write;
//! 8. [`rights`] decides the syncer's permissions for Secrets, and [`token_names`] by which names;
//! 9. [`consumer_role`] decides which copies an application may read;
//! 10. [`consumer_access`] decides which account and permissions a declared consumer has on a cluster;
//! 11. [`protected`] lists the namespaces of the hub itself, which receive none of this;
//! 12. [`finding`] defines the findings that are reported to people;
//! 13. [`entry`] decides which requests of applications reach a cluster through the user server, as whom
//!     ([`own_identity`]);
//! 14. [`explain`] evaluates all of these decisions for a hub that was read once, and explains why a namespace does not
//!     see or reach a cluster.

pub mod access;
pub mod action;
pub mod claim_allow_list;
pub mod concerned;
pub mod consumer_access;
pub mod consumer_role;
pub mod credential;
pub mod effort;
pub mod endpoint;
pub mod entry;
pub mod explain;
pub mod finding;
pub mod fleet;
pub mod grant;
pub mod in_turn;
pub mod known;
pub mod label_allow_list;
pub mod label_set;
pub mod member_id;
pub mod nested;
pub mod observed_lease;
pub mod own_identity;
pub mod priority;
pub mod profile;
pub mod project;
pub mod protected;
pub mod rights;
pub mod selector;
pub mod status_request;
mod status_text;
pub mod token_names;
pub mod trust;
pub mod version;
