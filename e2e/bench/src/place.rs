//! Where profiles and copies are, and which of them are not counted.

/// Namespace and name.
pub type Place = (String, String);

/// The namespace of the sentinel's profile: the one cluster whose changes show that earlier changes of others have
/// been processed. What the controllers do in it is not counted.
pub const SENTINEL: &str = "sentinel";

/// The sentinel, which is also its namespace on the hub.
pub const SENTINEL_CLUSTER: &str = "sentinel-cluster";

/// The beginning of the names of namespaces that the bare loop writes to.
pub const BARE_LOOP: &str = "bare-loop-";

/// Whether the bare loop writes to a namespace.
pub fn is_of_bare_loop(namespace: &str) -> bool {
    namespace.starts_with(BARE_LOOP)
}
