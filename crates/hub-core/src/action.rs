//! The next write to one object.

use crate::version::{Uid, Version};

/// The next write: it creates a `C` or merges a patch `P`. The following write is planned once the watch has returned
/// this one, so an object is reconciled one write at a time.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Action<C, P> {
    /// Nothing differs, or nothing may be written.
    #[default]
    Nothing,
    /// Create this object. Its status follows in the next write, since the API server ignores it in a create.
    Create(C),
    /// Merge a patch into exactly this version.
    Patch(Version, P),
    /// Merge a patch into the status subresource of exactly this version.
    PatchStatus(Version, P),
    /// Delete the object of exactly this version.
    Delete(Version),
    /// Delete the object with this uid in any version, so that a writer who keeps changing it cannot delay the delete.
    DeleteByUid(Uid),
}

impl<C, P> Action<C, P> {
    /// The verb of the write, as in requests and metrics; `None` if there is nothing to write.
    #[must_use]
    pub fn verb(&self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Create(_) => Some("create"),
            Self::Patch(..) => Some("patch"),
            Self::PatchStatus(..) => Some("patch_status"),
            Self::Delete(_) | Self::DeleteByUid(_) => Some("delete"),
        }
    }

    /// The version that the object of the write must have.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        match self {
            Self::Patch(version, _) | Self::PatchStatus(version, _) | Self::Delete(version) => {
                Some(version)
            }
            Self::Nothing | Self::Create(_) | Self::DeleteByUid(_) => None,
        }
    }

    /// The uid that the object of the write must have.
    #[must_use]
    pub fn uid(&self) -> Option<&Uid> {
        match self {
            Self::DeleteByUid(uid) => Some(uid),
            _ => self.version().map(|version| &version.uid),
        }
    }

    /// The same write with its object or patch converted.
    pub fn map<D, Q>(
        self,
        create: impl FnOnce(C) -> D,
        patch: impl FnOnce(P) -> Q,
    ) -> Action<D, Q> {
        match self {
            Self::Nothing => Action::Nothing,
            Self::Create(object) => Action::Create(create(object)),
            Self::Patch(version, content) => Action::Patch(version, patch(content)),
            Self::PatchStatus(version, content) => Action::PatchStatus(version, patch(content)),
            Self::Delete(version) => Action::Delete(version),
            Self::DeleteByUid(uid) => Action::DeleteByUid(uid),
        }
    }
}
