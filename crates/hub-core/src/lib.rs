//! Every decision of the hub addons, as plain functions over plain data.
//!
//! Nothing here talks to a Kubernetes API, awaits, or asks what time it is, and Cargo keeps it so: this crate
//! depends on the API's types and on no client and no runtime. The same inputs give the same plan, byte for
//! byte, in whatever order they arrived. Data walks one way:
//!
//! 1. [`fleet`] holds what the hub knows: clusters, sets, bindings;
//! 2. [`grant`] decides which cluster belongs in which namespace, and says why;
//! 3. [`project`] turns a cluster into what its profile should show;
//! 4. [`member_id`] decides by which ID the profiles of one cluster are known;
//! 5. [`access`] decides how the cluster is reached, at an [`endpoint`] that may be published and by the right
//!    [`trust`] anchors;
//! 6. [`profile`] joins the shares of all owners of a profile and plans the one difference to write;
//! 7. [`credential`] decides where the token of a cluster's account belongs, and plans the one difference to write;
//! 8. [`rights`] says which Secrets that takes a permission to, and [`token_names`] by which names;
//! 9. [`protected`] names the namespaces of the hub itself, which receive none of this;
//! 10. [`note`] is what a person should hear about on the way;
//! 11. [`explain`] asks all of these decisions about a hub that was read once, and says why a namespace does not see or
//!     reach a cluster.

pub mod access;
pub mod concerned;
pub mod credential;
pub mod endpoint;
pub mod explain;
pub mod fleet;
pub mod grant;
pub mod label_allow_list;
pub mod member_id;
pub mod note;
pub mod priority;
pub mod profile;
pub mod project;
pub mod protected;
pub mod rights;
pub mod selector;
pub mod token_names;
pub mod trust;
pub mod version;
