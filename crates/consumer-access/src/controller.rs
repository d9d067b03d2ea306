//! The controller.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join};
use hub_core::consumer_access::AccessSettings;
use hub_core::fleet::{Fleet, Touched};
use hub_runtime::controller::{Controller, FleetKind};
use hub_runtime::host::Watches;
use hub_runtime::process::Shared;
use tokio_util::sync::CancellationToken;

use crate::kueue::{KueueStore, KueueWriter};
use crate::store::{CONTROLLER, Store};
use crate::watches;
use crate::writes::AccessWriter;

/// The feature gate that starts it.
pub const GATE: &str = "ClusterProfileConsumers";

/// Maintains accounts of consumers and their permissions.
pub struct ConsumerAccess {
    store: Arc<Store>,
    /// If a consumer declares MultiKueueConfigs.
    kueue: Option<Arc<KueueStore>>,
}

impl ConsumerAccess {
    /// Consumer access.
    #[must_use]
    pub fn new(shared: &Shared, settings: AccessSettings) -> Self {
        let kueue = settings.multi_kueue().is_some().then(|| KueueStore::new(shared, settings.clone()));
        Self { store: Store::new(shared, settings), kueue }
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
        if let Some(kueue) = &self.kueue {
            kueue.watch(watches);
        }
    }

    fn begin(&self) {
        self.store.begin();
        if let Some(kueue) = &self.kueue {
            kueue.begin();
        }
    }

    fn fleet_changed(&self, fleet: &Fleet, touched: &Touched) {
        self.store.fleet_changed(fleet, touched);
        if let Some(kueue) = &self.kueue {
            kueue.fleet_changed(fleet, touched);
        }
    }

    fn work(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let access = AccessWriter::new(&self.store).run(stop.clone());
        match &self.kueue {
            Some(kueue) => join(access, KueueWriter::new(kueue).run(stop)).map(drop).boxed(),
            None => access.boxed(),
        }
    }
}
