//! The version of an object, which makes a write conditional on it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The preconditions of a write: this object, unchanged since it was read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version {
    pub uid: String,
    pub resource_version: String,
}

impl Version {
    /// The version of the object with this metadata.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}
