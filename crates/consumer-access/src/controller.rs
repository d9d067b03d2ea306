//! The controller.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hub_core::consumer_access::AccessSettings;
use hub_core::fleet::{Fleet, Touched};
use hub_process::controller::{Controller, FleetKind};
use hub_process::process::Shared;
use hub_runtime::host::Watches;
use hub_runtime::reconciler;
use tokio_util::sync::CancellationToken;

use crate::store::{CONTROLLER, Store};
use crate::watches;

/// The feature gate that starts it.
pub const GATE: &str = "ClusterProfileConsumers";

/// Maintains what ClusterAccesses ask for.
pub struct ConsumerAccess(Arc<Store>);

impl ConsumerAccess {
    #[must_use]
    pub fn new(shared: &Shared, settings: AccessSettings) -> Self {
        Self(Store::new(shared, settings))
    }
}

impl Controller for ConsumerAccess {
    fn name(&self) -> &'static str {
        CONTROLLER
    }

    fn needs(&self) -> &'static [FleetKind] {
        &[FleetKind::Grants, FleetKind::Clusters, FleetKind::HubId]
    }

    fn watch(&self, watches: &Watches) {
        watches::watch(&self.0, watches);
    }

    fn begin(&self) {
        self.0.queue_everything();
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        self.0.fleet_changed(fleet, touched);
    }

    fn fleet_read(&self) {
        self.0.queue_everything();
    }

    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        reconciler::run(Arc::clone(&self.0), stop).boxed()
    }
}
