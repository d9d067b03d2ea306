//! The controller.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hub_core::fleet::{Fleet, Touched};
use hub_core::rights::PermissionSettings;
use hub_process::controller::Controller;
use hub_process::process::Shared;
use hub_runtime::host::Watches;
use hub_runtime::reconciler;
use tokio_util::sync::CancellationToken;

use crate::store::{CONTROLLER, Store};
use crate::watches;

/// The feature gate that starts it.
pub const GATE: &str = "ClusterProfileCredRights";

/// Grants the syncer its permissions.
pub struct CredentialRights {
    store: Arc<Store>,
}

impl CredentialRights {
    #[must_use]
    pub fn new(shared: &Shared, settings: PermissionSettings) -> Self {
        Self { store: Store::new(shared, settings) }
    }
}

impl Controller for CredentialRights {
    fn name(&self) -> &'static str {
        CONTROLLER
    }

    fn watch(&self, watches: &Watches) {
        watches::watch(&self.store, watches);
    }

    fn begin(&self) {
        self.store.begin();
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        match touched {
            Touched::Nothing | Touched::Report(_) => {}
            Touched::Cluster(cluster) => self.store.cluster_changed(fleet, cluster),
            Touched::Namespaces(namespaces) => self.store.namespaces_changed(namespaces),
        }
    }

    fn fleet_read(&self) {
        self.store.begin();
    }

    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        reconciler::run(Arc::clone(&self.store), stop).boxed()
    }
}
