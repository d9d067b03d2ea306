//! The controller.

use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all, join3};
use hub_core::consumer_access::AccessSettings;
use hub_core::fleet::{Fleet, Touched};
use hub_process::controller::{Controller, FleetKind};
use hub_process::process::Shared;
use hub_runtime::host::Watches;
use hub_runtime::reconciler;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use crate::integrations::{Integration, IntegrationStore};
use crate::objects::AccessObjects;
use crate::status::StatusWriter;
use crate::store::{CONTROLLER, Store};

/// The feature gate that starts it.
pub const GATE: &str = "ClusterProfileConsumers";

/// Maintains accounts of consumers and their permissions.
pub struct ConsumerAccess {
    store: Arc<Store>,
    /// The objects by which applications find their clusters.
    integrations: Vec<Arc<IntegrationStore>>,
    objects: Arc<AccessObjects>,
}

impl ConsumerAccess {
    #[must_use]
    pub fn new(shared: &Shared, settings: AccessSettings) -> Self {
        let settings = Arc::new(RwLock::new(settings));
        let store = Store::new(shared, &settings);
        let new = |integration| IntegrationStore::new(integration, shared, &settings);
        let integrations: Vec<_> = Integration::ALL.into_iter().map(new).collect();
        let objects = Arc::new(AccessObjects {
            host: Arc::clone(&shared.host),
            settings,
            fleet: shared.fleet.clone(),
            store: Arc::clone(&store),
            integrations: integrations.clone(),
            watches: OnceLock::new(),
            placements: Mutex::default(),
        });
        Self { store, integrations, objects }
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
        self.store.watch(watches);
        for integration in &self.integrations {
            integration.watch(watches);
        }
        self.objects.watch(watches);
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
        let access = reconciler::run(Arc::clone(&self.store), stop.clone());
        let integrations = self
            .integrations
            .iter()
            .map(|store| reconciler::run(Arc::clone(store), stop.clone()))
            .collect::<Vec<_>>();
        let statuses = reconciler::run(Arc::new(StatusWriter(Arc::clone(&self.store))), stop);
        join3(access, statuses, join_all(integrations)).map(drop).boxed()
    }
}
