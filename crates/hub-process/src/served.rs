//! The version of ClusterProfile that the process uses.
//!
//! Watches the CRD of ClusterProfile by its name. Writes nothing. Guarantees that every request about profiles uses the
//! latest version that both the hub serves and this project supports, as of the last event: a version that is added or
//! removed needs no restart. A CRD that is missing, cannot be read or serves no supported version changes nothing. A
//! process without permission to watch the CRD uses v1alpha1, and assumes that every version is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hub_api::cluster_profile::{ProfileVersion, ServedVersions};
use hub_runtime::host::Watches;
use hub_runtime::watch::ServedPath;
use kube::Resource as _;
use kube::api::DynamicObject;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::info;

mod crd;

/// The version in use. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub struct ServedVersion(Arc<Inner>);

#[derive(Default)]
struct Inner {
    versions: Mutex<Option<ServedVersions>>,
    /// Wakes waiting tasks in the order of their arrival. tokio's `watch` channel wakes them in random order, so that
    /// the simulation could not replay a schedule.
    changed: Notify,
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
        self.0.versions.lock().unwrap_or_default()
    }

    /// Calls `react` whenever the hub serves other versions than before, for as long as the process lives.
    pub async fn follow(&self, react: impl Fn()) {
        let mut before = *self.0.versions.lock();
        loop {
            // Created before the comparison, so that no change after it is missed.
            let changed = self.0.changed.notified();
            let now = *self.0.versions.lock();
            if now == before {
                changed.await;
            } else {
                before = now;
                react();
            }
        }
    }

    /// Waits until a version is known, and returns the one in use.
    pub async fn known(&self) -> ProfileVersion {
        loop {
            let changed = self.0.changed.notified();
            if let Some(versions) = *self.0.versions.lock() {
                return versions.latest();
            }
            changed.await;
        }
    }

    /// Watches the CRD, unless an earlier caller does.
    pub fn watch(&self, watches: &Watches) {
        if !self.0.begun.swap(true, Ordering::Relaxed) {
            watches.watch(crd::watch(), crd::Versions(self.clone()));
        }
    }

    /// Stops waiting: v1alpha1 is in use until the served versions are known.
    fn settle(&self) {
        self.0.versions.lock().get_or_insert_default();
        self.0.changed.notify_waiters();
    }

    fn set(&self, versions: ServedVersions) {
        let before = self.0.versions.lock().replace(versions);
        self.0.changed.notify_waiters();
        if before.map(ServedVersions::latest) != Some(versions.latest()) {
            info!(version = versions.latest().as_str(), "using this version of ClusterProfile");
        }
    }
}

impl ServedPath for ServedVersion {
    fn current(&self) -> String {
        DynamicObject::url_path(&self.current().resource(), None)
    }

    fn known(&self) -> BoxFuture<'_, ()> {
        self.known().map(drop).boxed()
    }
}
