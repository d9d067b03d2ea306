//! Clusters for tests and attacks on the user server: an agent of konnectivity's proxy server, and behind it an API server
//! that is honest or does what no API server may.
//!
//! The proxy server is a real one; a cluster registers by its name, and acts on every connection that it is asked for.

mod act;
mod agent;

pub use self::act::{Act, Identity};
pub use self::agent::Cluster;
