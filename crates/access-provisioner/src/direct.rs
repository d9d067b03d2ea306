//! Direct access: an entry of its own that leads to the cluster's API server as its agent reports it, for
//! consumers that can reach it without a proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hub_api::names::{ManagerName, ProfileKey};
use hub_core::access::{self, Offer};
use hub_core::fleet::Touched;
use hub_core::profile::{ObservedProfile, Share};
use hub_runtime::fleet::FleetCache;
use hub_runtime::metrics::Metrics;
use hub_runtime::profiles::{Owner, Profiles};

use crate::tally::Tally;

/// The feature gate that starts direct access.
pub const DIRECT_GATE: &str = "ClusterProfileDirectAccessProvider";

/// The name of the entry unless another one is given. Consumers choose by it, so it differs from the proxy's.
pub const DEFAULT_DIRECT_PROVIDER: &str = "open-cluster-management-direct";

/// How direct access is set up.
#[derive(Debug, Clone)]
pub struct DirectSettings {
    /// The name of the entry.
    pub provider: String,
    /// Whether loopback, link-local and metadata addresses may be published.
    pub allow_local: bool,
}

/// Direct access as an owner of profiles. Cheap to clone; clones share their state.
#[derive(Clone)]
pub struct Direct {
    fleet: FleetCache,
    manager: ManagerName,
    settings: DirectSettings,
    tally: Arc<Tally>,
    begun: Arc<AtomicBool>,
}

impl Direct {
    /// Has profiles looked at again whenever their cluster changes. Call it before the watches start.
    #[must_use]
    pub fn new(
        fleet: FleetCache,
        profiles: &Arc<Profiles>,
        manager: ManagerName,
        settings: DirectSettings,
        metrics: Metrics,
    ) -> Self {
        let begun = Arc::new(AtomicBool::new(false));
        let (watched, profiles) = (Arc::clone(&begun), Arc::clone(profiles));
        fleet.listen(move |_, touched| {
            // Before that, the list of the profiles itself has each of them looked at.
            if let (true, Touched::Cluster(cluster)) = (watched.load(Ordering::Acquire), touched) {
                profiles.enqueue_where(|observed| access::cluster_of(observed).as_ref() == Ok(cluster));
            }
        });
        let allow_local = settings.allow_local;
        fleet.add_cluster_notes(move |cluster| access::endpoint_notes(cluster, allow_local));
        Self { fleet, manager, settings, tally: Arc::new(Tally::new("direct", metrics)), begun }
    }

    /// Every watch has its first list.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
    }
}

impl Owner for Direct {
    fn share(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Share {
        let observed = observed.filter(|observed| access::is_ours(observed, &self.manager));
        let offer = observed.map(|observed| -> Offer {
            let fleet = self.fleet.read();
            access::offer_direct(&fleet, &self.settings.provider, observed, self.settings.allow_local)
        });
        self.tally.set(key, offer.as_ref());
        offer.map(|offer| offer.into_share(&self.settings.provider)).unwrap_or_default()
    }
}
