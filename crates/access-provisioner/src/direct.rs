//! Direct access as a controller: its own entry with the cluster's API server as its agent reports it, for consumers
//! that can reach the cluster without a proxy. While ManagedClusters cannot be read, entries stay as they are.

use hub_api::names::ProfileKey;
use hub_core::access::{self, DirectOffers};
use hub_core::finding::Finding;
use hub_core::fleet::{Fleet, ObservedCluster, Touched};
use hub_core::profile::{Desired, ObservedProfile};
use hub_process::controller::{Controller, FleetKind, Owner};
use hub_process::process::Shared;
use parking_lot::Mutex;

use crate::metrics::{EntryGauges, EntryMetrics};

/// The feature gate that starts direct access.
pub const DIRECT_GATE: &str = "ClusterProfileDirectAccessProvider";

/// The name of the entry. Consumers select a provider by name, so it differs from the proxy's.
pub const DIRECT_PROVIDER: &str = "open-cluster-management-direct";

pub struct Direct {
    shared: Shared,
    gauges: EntryGauges,
    offers: Mutex<DirectOffers>,
}

impl Direct {
    #[must_use]
    pub fn new(shared: &Shared, metrics: EntryMetrics) -> Self {
        let gauges = EntryGauges::new("direct", metrics);
        Self { shared: shared.clone(), gauges, offers: Mutex::default() }
    }
}

impl Controller for Direct {
    fn name(&self) -> &'static str {
        "direct-access"
    }

    fn needs(&self) -> &'static [FleetKind] {
        &[FleetKind::Clusters]
    }

    fn owner(&self) -> Option<&dyn Owner> {
        Some(self)
    }

    fn cluster_findings(&self, cluster: &ObservedCluster) -> Vec<Finding> {
        access::endpoint_findings(cluster)
    }

    fn fleet_changed(&self, _: &Fleet, touched: &Touched) {
        if let Touched::Cluster(cluster) | Touched::Report(cluster) = touched {
            self.offers.lock().forget(cluster);
            self.shared.profiles.enqueue_of(cluster);
        }
    }

    fn fleet_read(&self) {
        self.shared.profiles.enqueue_where(|_| true);
    }
}

impl Owner for Direct {
    fn desired(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Desired {
        let observed = observed.filter(|observed| access::is_ours(observed, &self.shared.manager));
        let offer = observed.map(|observed| {
            // Certificates are parsed later, without the lock of the fleet.
            let reported = access::reported_endpoints(&self.shared.fleet.read(), observed);
            reported.map_or_else(
                |offer| offer,
                |(cluster, endpoints)| self.offers.lock().get(DIRECT_PROVIDER, &cluster, endpoints),
            )
        });
        self.gauges.set(key, observed.zip(offer.as_ref()));
        offer.map(|offer| offer.into_desired(DIRECT_PROVIDER)).unwrap_or_default()
    }
}
