//! The controller.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hub_core::consumer_access::AccessSettings;
use hub_core::fleet::{Fleet, Touched};
use hub_runtime::controller::{Controller, FleetKind};
use hub_runtime::host::Watches;
use hub_runtime::process::Shared;
use tokio_util::sync::CancellationToken;

use crate::store::{CONTROLLER, Store};
use crate::watches;
use crate::writes::AccessWriter;

/// The feature gate that starts it.
pub const GATE: &str = "ClusterProfileConsumers";

/// Maintains accounts of consumers and their permissions.
pub struct ConsumerAccess {
    store: Arc<Store>,
}

impl ConsumerAccess {
    /// Consumer access.
    #[must_use]
    pub fn new(shared: &Shared, settings: AccessSettings) -> Self {
        Self { store: Store::new(shared, settings) }
    }
}

impl Controller for ConsumerAccess {
    fn name(&self) -> &'static str {
        CONTROLLER
    }

    fn needs(&self) -> &'static [FleetKind] {
        &[FleetKind::Grants, FleetKind::Clusters]
    }

    fn watch(&self, watches: &Watches) {
        watches::watch(&self.store, watches);
    }

    fn begin(&self) {
        self.store.queue_everything();
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        self.store.fleet_changed(fleet, touched);
    }

    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        AccessWriter::new(&self.store).run(stop).boxed()
    }
}
