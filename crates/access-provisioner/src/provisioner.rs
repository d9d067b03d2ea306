//! The provisioner as an owner of profiles: the index, what a change of it sets off, and the clock of overlaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hub_api::names::{ManagerName, ProfileKey};
use hub_core::access::{self, AccessIndex, AccessSource, AnchorChange, AnchorPlace};
use hub_core::profile::{ObservedProfile, Share};
use hub_core::trust::{TrustBundle, TrustError};
use hub_runtime::host::{HeldWatch, Host};
use hub_runtime::profiles::{Owner, Profiles};
use k8s_openapi::jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tracing::info;

use crate::settings::{ProvisionerSettings, SourceSettings};
use crate::sources;
use crate::tally::Tally;

/// The feature gate that starts the provisioner.
pub const GATE: &str = "ClusterProfileAccessProvider";

/// The provisioner. Cheap to clone; clones share their state.
#[derive(Clone)]
pub struct Provisioner {
    inner: Arc<Inner>,
}

struct Inner {
    host: Arc<Host>,
    profiles: Arc<Profiles>,
    manager: ManagerName,
    index: Mutex<AccessIndex>,
    overlap: Duration,
    tally: Tally,
    /// Whether every watch has its first list.
    begun: AtomicBool,
    /// The watch on the trust anchors: where they are can change.
    anchor_watch: Mutex<Option<HeldWatch>>,
}

impl Provisioner {
    /// Starts to watch the sources.
    #[must_use]
    pub fn start(
        host: &Arc<Host>,
        profiles: &Arc<Profiles>,
        manager: ManagerName,
        settings: ProvisionerSettings,
    ) -> Self {
        let (name, source) = match &settings.source {
            SourceSettings::ClusterProxy { service, port, require_addon } => (
                "cluster_proxy",
                AccessSource::ClusterProxy {
                    service: service.clone(),
                    port: *port,
                    require_addon: *require_addon,
                },
            ),
            SourceSettings::Static { server, .. } => ("static", AccessSource::Static(server.clone())),
        };
        let index = AccessIndex::new(settings.provider, source, !settings.overlap.is_zero());
        let this = Self {
            inner: Arc::new(Inner {
                host: Arc::clone(host),
                profiles: Arc::clone(profiles),
                manager,
                index: Mutex::new(index),
                overlap: settings.overlap,
                tally: Tally::new(name, host.metrics.clone()),
                begun: AtomicBool::new(false),
                anchor_watch: Mutex::default(),
            }),
        };
        match settings.source {
            SourceSettings::ClusterProxy { require_addon, .. } => {
                sources::watch_cluster_proxy(&this, host, require_addon);
            }
            SourceSettings::Static { ca, .. } => {
                this.watch_anchors(Some(sources::watch_ca(&this, host, &ca)));
            }
        }
        this
    }

    /// Every watch has its first list: what profiles publish now and the source does not have was replaced
    /// while nobody looked.
    pub fn begin(&self) {
        let published = self.published();
        let inherited = {
            let mut index = self.index();
            self.inner.begun.store(true, Ordering::Release);
            // Without a reading nothing that is published changes: then the first one is the moment.
            index.current_anchors().is_some() && inherit(&mut index, &published)
        };
        if inherited {
            self.after_inherited();
        }
    }

    /// Takes in a reading of the trust anchors at a place.
    pub(crate) fn set_anchors(&self, place: AnchorPlace, reading: Result<TrustBundle, TrustError>) {
        let late = self.inner.begun.load(Ordering::Acquire) && self.index().current_anchors().is_none();
        let published = if late { self.published() } else { Vec::new() };
        let (change, inherited) = {
            let mut index = self.index();
            let change = index.set_anchors(place, reading);
            let expiry = index.current_anchors().and_then(TrustBundle::first_expiry);
            self.inner.host.metrics.trust_anchor_expiry(expiry.map_or(0, Timestamp::as_second));
            let inherited = change != AnchorChange::None && inherit(&mut index, &published);
            (change, inherited)
        };
        self.follow_up(&change);
        if inherited {
            self.after_inherited();
        }
    }

    /// Nothing can be said of the trust anchors at a place.
    pub(crate) fn anchors_unknown(&self, place: AnchorPlace) {
        let change = self.index().anchors_unknown(place);
        self.follow_up(&change);
    }

    fn follow_up(&self, change: &AnchorChange) {
        if *change != AnchorChange::None {
            self.enqueue_all();
        }
        if let AnchorChange::Overlapping(overlap) = *change {
            info!(overlap = ?self.inner.overlap, "trust anchors replaced, publishing old and new together");
            self.after_overlap(move |index| index.end_overlap(overlap));
        }
    }

    /// What each of our profiles publishes.
    fn published(&self) -> Vec<(ProfileKey, TrustBundle)> {
        let provider = self.index().provider().to_owned();
        let mut published = Vec::new();
        self.inner.profiles.for_each(|key, observed| {
            if self.is_ours(observed)
                && let Some(anchors) = access::published_anchors(observed, &provider)
            {
                published.push((key.clone(), anchors));
            }
        });
        published
    }

    fn after_inherited(&self) {
        info!(overlap = ?self.inner.overlap, "profiles publish trust anchors that were replaced meanwhile");
        self.after_overlap(AccessIndex::end_inherited);
    }

    /// Changes the index, and has every profile looked at again if that says so.
    pub(crate) fn change(&self, change: impl FnOnce(&mut AccessIndex) -> bool) {
        if change(&mut self.index()) {
            self.enqueue_all();
        }
    }

    /// Has the profiles of one cluster looked at again.
    pub(crate) fn enqueue_cluster(&self, cluster: &hub_api::names::ClusterName) {
        self.inner.profiles.enqueue_where(|observed| access::cluster_of(observed).as_ref() == Ok(cluster));
    }

    /// Replaces the watch on the trust anchors. The one before it ends.
    pub(crate) fn watch_anchors(&self, watch: Option<HeldWatch>) {
        *self.inner.anchor_watch.lock() = watch;
    }

    pub(crate) fn index(&self) -> MutexGuard<'_, AccessIndex> {
        self.inner.index.lock()
    }

    fn enqueue_all(&self) {
        self.inner.profiles.enqueue_where(|observed| self.is_ours(observed));
    }

    fn after_overlap(&self, end: impl FnOnce(&mut AccessIndex) + Send + 'static) {
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(this.inner.overlap).await;
            info!("the overlap of trust anchors has ended");
            end(&mut this.index());
            this.enqueue_all();
        });
    }

    fn is_ours(&self, observed: &ObservedProfile) -> bool {
        access::is_ours(observed, &self.inner.manager)
    }
}

/// Has the index take over what is published and replaced; answers whether there is any.
fn inherit(index: &mut AccessIndex, published: &[(ProfileKey, TrustBundle)]) -> bool {
    published.iter().fold(false, |any, (key, anchors)| index.inherit(key, anchors) || any)
}

impl Owner for Provisioner {
    fn share(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Share {
        let index = self.index();
        let offer =
            observed.filter(|observed| self.is_ours(observed)).map(|observed| index.offer(key, observed));
        self.inner.tally.set(key, offer.as_ref());
        offer.map(|offer| offer.into_share(index.provider())).unwrap_or_default()
    }
}
