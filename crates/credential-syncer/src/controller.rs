//! The syncer as a controller.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join};
use hub_api::names::ProfileKey;
use hub_core::credential::index::ProfileMetadata;
use hub_core::fleet::{Fleet, Touched};
use hub_core::rights::CLEARED_NAMESPACES;
use hub_process::controller::{Controller, ProfileFollower};
use hub_process::process::Shared;
use hub_runtime::host::Watches;
use hub_runtime::reconciler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio_util::sync::CancellationToken;

use crate::accounts::ConditionWriter;
use crate::copies::CopyWriter;
use crate::metrics::CredentialMetrics;
use crate::settings::SyncerSettings;
use crate::store::{CONTROLLER, Store};
use crate::watches;

/// The feature gate that starts the syncer.
pub const GATE: &str = "ClusterProfileCredSyncer";

pub struct Syncer {
    store: Arc<Store>,
}

impl Syncer {
    #[must_use]
    pub fn new(shared: &Shared, settings: SyncerSettings, metrics: CredentialMetrics) -> Self {
        Self { store: Store::new(shared, settings, metrics) }
    }
}

impl Controller for Syncer {
    fn name(&self) -> &'static str {
        CONTROLLER
    }

    fn follower(&self) -> Option<&dyn ProfileFollower> {
        Some(self)
    }

    fn lease_annotation(&self) -> Option<(&'static str, Option<String>)> {
        Some((CLEARED_NAMESPACES, self.store.cleared()))
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
        let copies =
            reconciler::run(Arc::new(CopyWriter { store: Arc::clone(&self.store) }), stop.clone());
        let conditions =
            reconciler::run(Arc::new(ConditionWriter { store: Arc::clone(&self.store) }), stop);
        join(copies, conditions).map(|_| ()).boxed()
    }
}

impl ProfileFollower for Syncer {
    fn shown(&self, key: &ProfileKey, metadata: &ObjectMeta, manager: Option<&str>) {
        self.store.apply_profile(key, ProfileMetadata::read(metadata, manager));
    }

    fn gone(&self, key: &ProfileKey) {
        self.store.delete_profile(key);
    }

    fn set_read(&self, is_read: bool) {
        self.store.set_read(|index| &mut index.profiles_unread, is_read);
    }
}
