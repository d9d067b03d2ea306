//! The controller.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join, join_all};
use hub_core::consumer_access::AccessSettings;
use hub_core::fleet::{Fleet, Touched};
use hub_process::controller::{Controller, FleetKind};
use hub_process::process::Shared;
use hub_runtime::host::Watches;
use hub_runtime::reconciler;
use tokio_util::sync::CancellationToken;

use crate::integrations::{Integration, IntegrationStore};
use crate::store::{CONTROLLER, Store};
use crate::watches;
use crate::writes::AccessWriter;

/// The feature gate that starts it.
pub const GATE: &str = "ClusterProfileConsumers";

/// Maintains accounts of consumers and their permissions.
pub struct ConsumerAccess {
    store: Arc<Store>,
    /// The objects by which applications find their clusters, for each integration that a consumer declares.
    integrations: Vec<Arc<IntegrationStore>>,
}

impl ConsumerAccess {
    #[must_use]
    pub fn new(shared: &Shared, settings: AccessSettings) -> Self {
        let declared = Integration::ALL.into_iter().filter(|integration| integration.is_declared(&settings));
        let integrations = declared
            .map(|integration| IntegrationStore::new(integration, shared, settings.clone()))
            .collect();
        Self { store: Store::new(shared, settings), integrations }
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
        watches::watch(&self.store, watches);
        for integration in &self.integrations {
            integration.watch(watches);
        }
    }

    fn begin(&self) {
        self.store.queue_everything();
        for integration in &self.integrations {
            integration.begin();
        }
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        self.store.fleet_changed(fleet, touched);
        for integration in &self.integrations {
            integration.fleet_changed(fleet, touched);
        }
    }

    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let access = AccessWriter::new(&self.store).run(stop.clone());
        let integrations = self
            .integrations
            .iter()
            .map(|store| reconciler::run(Arc::clone(store), stop.clone()))
            .collect::<Vec<_>>();
        join(access, join_all(integrations)).map(drop).boxed()
    }
}
