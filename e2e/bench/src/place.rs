//! Where profiles and copies are, and which of them are not counted.

/// Namespace and name.
pub type Place = (String, String);

/// The namespace of the sentinel's profile: the one cluster whose changes show that earlier changes of others have
/// been processed. What the controllers do in it is not counted.
pub const SENTINEL: &str = "sentinel";

/// The sentinel, which is also its namespace on the hub.
pub const SENTINEL_CLUSTER: &str = "sentinel-cluster";
