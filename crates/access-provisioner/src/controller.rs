//! The provisioner as a controller.

use std::sync::Arc;

use hub_api::names::ProfileKey;
use hub_core::access::AccessSource;
use hub_core::profile::{Desired, ObservedProfile};
use hub_process::controller::{Controller, FleetKind, Owner};
use hub_process::process::Shared;
use hub_runtime::host::Watches;

use crate::metrics::EntryMetrics;
use crate::settings::ProvisionerSettings;
use crate::store::Store;
use crate::watches;

/// The feature gate that starts the provisioner.
pub const GATE: &str = "ClusterProfileAccessProvider";

/// The feature gate that starts the provisioner of the entry for applications with an identity of their own.
pub const OWN_IDENTITY_GATE: &str = "ClusterProfileOwnIdentityProvider";

pub struct Provisioner {
    store: Arc<Store>,
}

impl Provisioner {
    #[must_use]
    pub fn new(shared: &Shared, settings: ProvisionerSettings, metrics: EntryMetrics) -> Self {
        Self { store: Store::new(shared, settings, metrics) }
    }
}

impl Controller for Provisioner {
    fn name(&self) -> &'static str {
        self.store.settings.controller()
    }

    fn needs(&self) -> &'static [FleetKind] {
        &[]
    }

    fn owner(&self) -> Option<&dyn Owner> {
        Some(self)
    }

    fn watch(&self, watches: &Watches) {
        let ProvisionerSettings { source, ca, .. } = &self.store.settings;
        if let AccessSource::ClusterProxy { require_addon, .. } = source {
            watches::watch_cluster_proxy(&self.store, watches, *require_addon, ca.clone());
        } else if let Some(ca) = ca {
            watches::watch_ca(&self.store, watches, ca);
        }
    }

    fn begin(&self) {
        self.store.begin();
    }
}

impl Owner for Provisioner {
    fn desired(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Desired {
        self.store.desired(key, observed)
    }
}
