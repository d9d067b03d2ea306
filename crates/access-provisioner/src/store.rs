//! The provisioner's state, the updates that its watches make, and the timers of overlaps and probes.

use std::sync::Arc;
use std::time::Duration;

use hub_api::names::{ClusterName, ManagerName, Namespace, ProfileKey};
use hub_core::access::{
    self, AccessIndex, AccessSource, AnchorChange, AnchorPlace, CLUSTER_PROXY, Known, Probe,
};
use hub_core::finding::{Finding, Subject};
use hub_core::priority::Priority;
use hub_core::profile::{Desired, ObservedProfile};
use hub_core::trust::{TrustBundle, TrustError};
use hub_process::process::Shared;
use hub_process::profiles::Profiles;
use hub_runtime::host::{HeldWatch, Host};
use hub_runtime::observe::report::Reporter;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use crate::gauges::EntryGauges;
use crate::settings::{ProvisionerSettings, Purpose, SourceSettings};

/// How long cluster-proxy's own controller has to write its entry again after a probe.
const PROBE_INTERVAL: Duration = Duration::from_mins(10);
/// The same for the first probes of a competition, and the time before each: what looks like that controller may have
/// been another replica of this program, which still believed that it leads after its Lease was deleted, for example by
/// the restore of a backup of etcd.
const FIRST_INTERVAL: Duration = Duration::from_secs(30);
const FIRST_PROBES: u32 = 2;

/// The time between two handshakes with the proxy during an overlap, and the timeout of each.
const HANDSHAKE_INTERVAL: Duration = Duration::from_secs(2);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many handshakes in a row have to meet the new certificate: a Service chooses one of several replicas, and one
/// that still serves with the old certificate is missed once in a thousand times if there are two, once in sixty if
/// three.
const HANDSHAKES: u32 = 10;

/// The provisioner's state: its watches fill it, and it computes what a profile should have.
pub(crate) struct Store {
    host: Arc<Host>,
    pub(crate) reporter: Reporter,
    profiles: Arc<Profiles>,
    manager: ManagerName,
    pub(crate) settings: ProvisionerSettings,
    index: Mutex<AccessIndex>,
    /// Notified when an overlap begins.
    overlaps: Notify,
    gauges: EntryGauges,
    /// The watch on the trust anchors, whose location can change.
    anchor_watch: Mutex<Option<HeldWatch>>,
    /// The latest findings on the trust anchors.
    anchor_report: Mutex<Option<AnchorReport>>,
    /// The latest findings on the configuration of the proxy that do not follow from the index.
    configuration_report: Mutex<Vec<Finding>>,
    /// Notified when a competition with cluster-proxy's own controller begins.
    contested: Notify,
}

/// The findings on the trust anchors that do not follow from the index.
struct AnchorReport {
    subject: Subject,
    uid: Option<String>,
    reading: Option<Finding>,
}

impl Store {
    pub(crate) fn new(shared: &Shared, settings: ProvisionerSettings) -> Arc<Self> {
        let (name, source) = match &settings.source {
            SourceSettings::ClusterProxy { service, port, require_addon, ca } => (
                "cluster_proxy",
                AccessSource::ClusterProxy {
                    service: service.clone(),
                    port: *port,
                    require_addon: *require_addon,
                    ca: ca.clone(),
                },
            ),
            SourceSettings::Static { server, .. } => ("static", AccessSource::Static(server.clone())),
        };
        let name = if settings.purpose == Purpose::Token { name } else { "own_identity" };
        let index = AccessIndex::new(&settings.provider, source, !settings.overlap.is_zero());
        Arc::new(Self {
            host: Arc::clone(&shared.host),
            reporter: shared.host.reporter(settings.purpose.controller()),
            profiles: Arc::clone(&shared.profiles),
            manager: shared.manager.clone(),
            settings,
            index: Mutex::new(index),
            overlaps: Notify::new(),
            gauges: EntryGauges::new(name, shared.host.metrics.clone()),
            anchor_watch: Mutex::default(),
            anchor_report: Mutex::default(),
            configuration_report: Mutex::default(),
            contested: Notify::new(),
        })
    }

    /// What the provisioner wants of a profile.
    pub(crate) fn desired(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Desired {
        self.update(|index| {
            let ours = observed.filter(|observed| self.is_ours(observed));
            if !self.settings.purpose.includes(&key.namespace) {
                self.gauges.set(key, None);
                return ours.map(|_| access::desired_entry(index.provider(), None)).unwrap_or_default();
            }
            let offer = index.decide(key, ours);
            self.gauges.set(key, observed.zip(offer.as_ref()));
            offer.map(|offer| offer.into_desired(index.provider())).unwrap_or_default()
        })
    }

    /// Changes the index, and reports whether cluster-proxy's own controller competes with the provisioner, if that has
    /// changed.
    fn update<T>(&self, change: impl FnOnce(&mut AccessIndex) -> T) -> T {
        let (result, before, after) = {
            let mut index = self.index.lock();
            let before = index.is_contested();
            let result = change(&mut index);
            (result, before, index.is_contested())
        };
        if before != after {
            if after {
                self.contested.notify_one();
            }
            self.report_again_on_configuration(&self.configuration_report.lock());
        }
        result
    }

    /// Begins to work, since every watch has its first list: trust anchors that profiles publish and the source lacks
    /// were replaced while no provisioner ran.
    pub(crate) fn begin(self: &Arc<Self>) {
        let inherited = {
            let mut index = self.index.lock();
            // Without a reading, nothing that is published changes; then the first reading starts the overlap.
            index.current_anchors().is_some() && self.inherit(&mut index)
        };
        if inherited {
            self.after_inherited();
        }
        let this = Arc::clone(self);
        self.host.tasks.spawn("the probes of access providers", async move { this.probe_contests().await });
        let this = Arc::clone(self);
        self.host.tasks.spawn("handshakes with the proxy", async move { this.end_overlaps_early().await });
    }

    async fn probe_contests(&self) {
        let mut probes = FIRST_PROBES;
        loop {
            let interval = if probes < FIRST_PROBES { FIRST_INTERVAL } else { PROBE_INTERVAL };
            if timeout(interval, self.contested.notified()).await.is_ok() {
                probes = 0;
            } else {
                self.probe();
                probes = FIRST_PROBES.min(probes + 1);
            }
        }
    }

    /// Probes whether cluster-proxy's own controller still writes access providers, if it has competed with the
    /// provisioner.
    fn probe(&self) {
        match self.update(AccessIndex::probe_contest) {
            Probe::Needless => {}
            Probe::Begun(key) => self.profiles.queue.add_with(key, Priority::Update),
            Probe::Over => {
                info!(
                    "cluster-proxy's own controller no longer writes access providers, replacing its entries"
                );
                self.enqueue_all();
            }
        }
    }

    /// Records the content of the key at a location, and the trust anchors in it.
    pub(crate) fn set_anchors(
        self: &Arc<Self>,
        place: AnchorPlace,
        content: &[u8],
        reading: Result<TrustBundle, TrustError>,
    ) {
        let (change, inherited) = self.update(|index| {
            // Under the lock: before the first lists are complete, `begin` runs after this and sees the reading.
            let late = self.host.is_working() && index.current_anchors().is_none();
            index.set_served(place, content);
            let change = index.set_anchors(place, reading);
            let expiry = index.current_anchors().and_then(TrustBundle::first_expiry);
            if self.settings.purpose == Purpose::Token {
                self.host.metrics.trust_anchor_expiry.set(expiry.map_or(0, Timestamp::as_second));
            }
            let inherited = late && change != AnchorChange::None && self.inherit(index);
            (change, inherited)
        });
        self.follow_up(&change);
        if inherited {
            self.after_inherited();
        }
    }

    /// Records that the trust anchors at a location cannot be read.
    pub(crate) fn anchors_unknown(self: &Arc<Self>, place: AnchorPlace) {
        let change = self.index.lock().anchors_unknown(place);
        self.follow_up(&change);
    }

    fn follow_up(self: &Arc<Self>, change: &AnchorChange) {
        if *change != AnchorChange::None {
            self.enqueue_all();
        }
        if let AnchorChange::Overlapping(begun) = *change {
            let overlap = self.settings.overlap;
            info!(?overlap, "trust anchors replaced, publishing old and new together");
            self.after_overlap(move |index| index.end_overlap(begun));
        }
    }

    /// Records the configuration of the proxy.
    pub(crate) fn set_configuration(&self, configuration: Known<Namespace>) {
        if self.update(|index| index.set_configuration(configuration)) {
            self.enqueue_all();
        }
    }

    /// Records whether a cluster has the proxy's addon.
    pub(crate) fn set_addon(&self, cluster: &ClusterName, present: bool) {
        if self.index.lock().set_addon(cluster, present) {
            self.profiles.enqueue_of(cluster);
        }
    }

    /// Records that the list of addons is complete.
    pub(crate) fn addons_listed(&self) {
        if self.index.lock().addons_listed() {
            self.enqueue_all();
        }
    }

    /// The location where the index expects trust anchors.
    pub(crate) fn place(&self) -> AnchorPlace {
        self.index.lock().place()
    }

    /// Replaces the watch on the trust anchors; the previous one ends.
    pub(crate) fn watch_anchors(&self, watch: Option<HeldWatch>) {
        *self.anchor_watch.lock() = watch;
    }

    /// Reports the findings on the configuration of the proxy.
    pub(crate) fn report_configuration(&self, findings: Vec<Finding>) {
        let mut last = self.configuration_report.lock();
        *last = findings;
        self.report_again_on_configuration(&last);
    }

    fn report_again_on_configuration(&self, last: &[Finding]) {
        let competing_writer = self.index.lock().competing_writer_finding();
        let subject = Subject::ProxyConfiguration(CLUSTER_PROXY.to_owned());
        self.reporter.report(&subject, None, last.iter().cloned().chain(competing_writer).collect());
    }

    /// Reports the findings on a reading of the trust anchors, and on the overlap that it started.
    pub(crate) fn report_anchors(&self, subject: &Subject, uid: Option<&str>, reading: Option<Finding>) {
        let reported = AnchorReport { subject: subject.clone(), uid: uid.map(str::to_owned), reading };
        let mut last = self.anchor_report.lock();
        self.report_again(last.insert(reported));
    }

    fn report_again(&self, last: &AnchorReport) {
        let overlap = self.index.lock().overlap_finding();
        let findings = last.reading.iter().cloned().chain(overlap).collect();
        self.reporter.report(&last.subject, last.uid.as_deref(), findings);
    }

    /// Adds the trust anchors that our profiles publish and the source lacks to the index; returns whether there are
    /// any.
    fn inherit(&self, index: &mut AccessIndex) -> bool {
        let mut any = false;
        self.profiles.for_each(|key, observed| {
            if self.is_ours(observed)
                && let Some(anchors) = access::published_anchors(observed, index.provider())
            {
                any |= index.inherit(key, &anchors);
            }
        });
        any
    }

    fn after_inherited(self: &Arc<Self>) {
        let overlap = self.settings.overlap;
        info!(?overlap, "profiles publish trust anchors that were replaced while no provisioner ran");
        self.after_overlap(AccessIndex::end_inherited);
    }

    fn enqueue_all(&self) {
        self.profiles.enqueue_where(|observed| self.is_ours(observed));
    }

    fn after_overlap(self: &Arc<Self>, end: impl FnOnce(&mut AccessIndex) -> bool + Send + 'static) {
        self.overlaps.notify_one();
        let this = Arc::clone(self);
        self.host.tasks.spawn_once("the overlap of trust anchors", async move {
            sleep(this.settings.overlap).await;
            if end(&mut this.index.lock()) {
                info!("the overlap of trust anchors has ended");
                this.withdraw_replaced();
            }
        });
    }

    /// Ends overlaps as soon as the proxy serves with a certificate of the new anchors, before their timers do.
    async fn end_overlaps_early(&self) {
        let mut seen = (None, 0);
        loop {
            let overlapping = self.index.lock().overlapping();
            let Some(overlapping) = overlapping else {
                self.overlaps.notified().await;
                continue;
            };
            let (address, anchors) = overlapping.clone();
            match timeout(HANDSHAKE_TIMEOUT, (self.settings.handshake)(address.clone(), anchors)).await {
                Ok(Ok(())) if seen.0.as_ref() == Some(&overlapping) => seen.1 += 1,
                Ok(Ok(())) => seen = (Some(overlapping.clone()), 1),
                Ok(Err(error)) => {
                    debug!("no handshake by the new trust anchors with {}: {error}", address.host);
                    seen = (None, 0);
                }
                Err(_) => seen = (None, 0),
            }
            if seen.1 >= HANDSHAKES && self.index.lock().end_overlaps(&overlapping) {
                info!(
                    "{} serves with a certificate of the new trust anchors, withdrawing the replaced ones",
                    address.host
                );
                self.withdraw_replaced();
            }
            sleep(HANDSHAKE_INTERVAL).await;
        }
    }

    fn withdraw_replaced(&self) {
        if let Some(last) = &*self.anchor_report.lock() {
            self.report_again(last);
        }
        self.enqueue_all();
    }

    fn is_ours(&self, observed: &ObservedProfile) -> bool {
        access::is_ours(observed, &self.manager)
    }
}
