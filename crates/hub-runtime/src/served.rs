//! The version of ClusterProfile that the process uses.
//!
//! Watches the CRD of ClusterProfile by its name. Writes nothing. Guarantees that every request about profiles uses the
//! latest version that both the hub serves and this project supports, as of the last event: a version that is added or
//! removed needs no restart. A CRD that is missing, cannot be read or serves no supported version changes nothing. A
//! process without permission to watch the CRD uses v1alpha1, and takes every version for served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hub_api::cluster_profile::{ProfileVersion, ServedVersions};
use tokio::sync::watch as channel;
use tracing::info;

pub(crate) mod crd;

/// The version in use. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub struct ServedVersion(Arc<Inner>);

#[derive(Default)]
struct Inner {
    versions: channel::Sender<Option<ServedVersions>>,
    begun: AtomicBool,
}

impl ServedVersion {
    /// The version in use; v1alpha1 until the served versions are known.
    #[must_use]
    pub fn current(&self) -> ProfileVersion {
        self.versions().latest()
    }

    /// The versions that the hub serves; all as long as none is known.
    #[must_use]
    pub fn versions(&self) -> ServedVersions {
        self.0.versions.borrow().unwrap_or_default()
    }

    /// Calls `react` whenever the hub serves other versions than before, for as long as the process lives.
    pub async fn follow(&self, react: impl Fn()) {
        let mut changes = self.0.versions.subscribe();
        // The sender lives in `self`.
        while changes.changed().await.is_ok() {
            react();
        }
    }

    /// Waits until a version is known, and returns the one in use.
    pub async fn known(&self) -> ProfileVersion {
        let mut changes = self.0.versions.subscribe();
        // `self` owns the sender, so the wait cannot fail.
        match changes.wait_for(Option::is_some).await {
            Ok(versions) => versions.unwrap_or_default().latest(),
            Err(_) => ProfileVersion::default(),
        }
    }

    /// Whether the caller has to start the watch on the CRD: true for the first caller only.
    fn starts(&self) -> bool {
        !self.0.begun.swap(true, Ordering::Relaxed)
    }

    /// Stops waiting: v1alpha1 is in use until the served versions are known.
    fn settle(&self) {
        self.0.versions.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert_default();
            is_first
        });
    }

    fn set(&self, versions: ServedVersions) {
        let mut before = None;
        self.0.versions.send_if_modified(|current| {
            before = current.replace(versions);
            before != Some(versions)
        });
        if before.map(ServedVersions::latest) != Some(versions.latest()) {
            info!(version = versions.latest().as_str(), "using this version of ClusterProfile");
        }
    }
}
