//! The provisioner's state, the updates that its watches make, and the timers of overlaps.

use std::sync::Arc;
use std::time::Duration;

use hub_api::names::{ClusterName, ManagerName, Namespace, ProfileKey};
use hub_core::access::{
    self, AccessIndex, AnchorChange, AnchorPlace, AnchorReader, CLUSTER_PROXY, Offer, Overlap,
    OverlapEnd, ServerState,
};
use hub_core::finding::{Finding, Subject};
use hub_core::known::Known;
use hub_core::profile::{Desired, ObservedProfile};
use hub_core::trust::{self, TrustBundle, TrustError};
use hub_core::version::Uid;
use hub_process::process::Shared;
use hub_process::profiles::Profiles;
use hub_runtime::host::{HeldWatch, Host};
use hub_runtime::observe::report::Reporter;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use crate::metrics::{EntryGauges, EntryMetrics};
use crate::settings::ProvisionerSettings;

/// The time between two checks of the published server during an overlap.
const OVERLAP_INTERVAL: Duration = Duration::from_secs(2);
/// The same at most while a check fails.
const FAILED_INTERVAL: Duration = Duration::from_secs(30);

/// The provisioner's state: its watches fill it, and it computes what a profile should have.
pub(crate) struct Store {
    host: Arc<Host>,
    pub(crate) reporter: Reporter,
    profiles: Arc<Profiles>,
    manager: ManagerName,
    pub(crate) settings: ProvisionerSettings,
    /// Locked before the index.
    inheritance: Mutex<Inheritance>,
    index: Mutex<AccessIndex>,
    /// Notified when the published server or its anchors change.
    server_changed: Notify,
    gauges: EntryGauges,
    /// The watch on the trust anchors, whose location can change.
    anchor_watch: Mutex<Option<HeldWatch>>,
    /// The latest findings on the trust anchors.
    anchor_report: Mutex<Option<AnchorReport>>,
}

/// How far it is known which trust anchors profiles published before the start.
#[derive(Default)]
enum Inheritance {
    /// The first lists are not complete.
    #[default]
    Starting,
    /// There has been no reading of the source.
    Unread,
    /// Profiles are being visited.
    Visiting {
        reader: AnchorReader,
        /// Whether a profile publishes anchors that the source lacks.
        any: bool,
    },
    /// All were visited: nothing more is inherited.
    Known,
}

impl Inheritance {
    /// Adds the anchors that a profile publishes and the source lacks to the index, before the first plan of the profile.
    fn inherit(&mut self, index: &mut AccessIndex, key: &ProfileKey, observed: &ObservedProfile) {
        if let Self::Visiting { reader, any } = self
            && let Some(anchors) = reader.published(observed, index.provider())
        {
            *any |= index.inherit(key, anchors);
        }
    }
}

/// The findings on the trust anchors that do not follow from the index.
struct AnchorReport {
    subject: Subject,
    uid: Option<Uid>,
    reading: Option<Finding>,
}

impl Store {
    pub(crate) fn new(
        shared: &Shared,
        settings: ProvisionerSettings,
        metrics: EntryMetrics,
    ) -> Arc<Self> {
        let source = settings.source.clone();
        let gauges = EntryGauges::new((&source).into(), metrics);
        gauges.declare_server();
        let index = AccessIndex::new(&settings.provider, source, !settings.overlap.is_zero());
        Arc::new(Self {
            host: Arc::clone(&shared.host),
            reporter: shared.host.reporter(settings.controller()),
            profiles: Arc::clone(&shared.profiles),
            manager: shared.manager.clone(),
            settings,
            inheritance: Mutex::default(),
            index: Mutex::new(index),
            server_changed: Notify::new(),
            gauges,
            anchor_watch: Mutex::default(),
            anchor_report: Mutex::default(),
        })
    }

    /// What the provisioner wants of a profile.
    pub(crate) fn desired(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Desired {
        let ours = observed.filter(|observed| self.is_ours(observed));
        let offer = ours.map(|ours| {
            let (mut inheritance, mut index) = (self.inheritance.lock(), self.index.lock());
            inheritance.inherit(&mut index, key, ours);
            index.offer(key, ours)
        });
        self.gauges.set(key, observed.zip(offer.as_ref()));
        if self.settings.is_for_own_identity() {
            let uid = observed.map(|observed| &observed.version.uid);
            let finding = offer.as_ref().and_then(Offer::finding);
            self.reporter.report(
                &Subject::Profile(key.clone()),
                uid,
                finding.into_iter().collect(),
            );
        }
        offer.map(|offer| offer.into_desired(&self.settings.provider)).unwrap_or_default()
    }

    /// Begins to work, since every watch has its first list: trust anchors that profiles publish and the source lacks
    /// were replaced while no provisioner ran.
    pub(crate) fn begin(self: &Arc<Self>) {
        let mut inheritance = self.inheritance.lock();
        // Without a reading, nothing that is published changes; then the first reading starts the overlap.
        let is_read = self.index.lock().current_anchors().is_some();
        *inheritance = if is_read { self.visit() } else { Inheritance::Unread };
        drop(inheritance);
        if !self.settings.check_interval.is_zero() {
            let this = Arc::clone(self);
            self.host.tasks.spawn("the checks of the published server", async move {
                this.check_server().await;
            });
        }
    }

    /// Records the content of the key at a location, and the trust anchors in it.
    pub(crate) fn set_anchors(
        self: &Arc<Self>,
        place: AnchorPlace,
        content: &[u8],
        reading: Result<TrustBundle, TrustError>,
    ) {
        let (change, renamed) = {
            let (mut inheritance, mut index) = (self.inheritance.lock(), self.index.lock());
            index.set_served(place, content);
            let renamed = index.set_serving_names(place, trust::serving_names(content));
            let change = index.set_anchors(place, reading);
            let expiry = index.current_anchors().and_then(TrustBundle::first_expiry);
            if !self.settings.is_for_own_identity() {
                self.gauges.metrics.trust_anchor_expiry.set(expiry.map_or(0, Timestamp::as_second));
            }
            if matches!(*inheritance, Inheritance::Unread) && change != AnchorChange::None {
                *inheritance = self.visit();
            }
            (change, renamed)
        };
        if renamed && change == AnchorChange::None {
            self.enqueue_all();
        }
        self.server_changed.notify_one();
        self.follow_up(&change);
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
            self.after_overlap(begun);
        }
    }

    /// Records the configuration of the proxy.
    pub(crate) fn set_configuration(&self, configuration: Known<Namespace>) {
        if self.index.lock().set_configuration(configuration) {
            self.server_changed.notify_one();
            self.enqueue_all();
        }
    }

    /// Records whether a cluster has the proxy's addon.
    pub(crate) fn set_addon(&self, cluster: &ClusterName, present: bool) {
        if self.index.lock().set_addon(cluster, present) {
            self.profiles.enqueue_of(cluster);
        }
    }

    /// Records with this method of the index whether a kind can be read.
    pub(crate) fn set_read(&self, set: fn(&mut AccessIndex, bool) -> bool, is_read: bool) {
        if set(&mut self.index.lock(), is_read) && is_read {
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
        let subject = Subject::ProxyConfiguration(CLUSTER_PROXY.to_owned());
        self.reporter.report(&subject, None, findings);
    }

    /// Reports the findings on a reading of the trust anchors, and on the overlap that it started.
    pub(crate) fn report_anchors(
        &self,
        subject: &Subject,
        uid: Option<&Uid>,
        reading: Option<Finding>,
    ) {
        let reported = AnchorReport { subject: subject.clone(), uid: uid.cloned(), reading };
        let mut last = self.anchor_report.lock();
        self.report_again(last.insert(reported));
    }

    fn report_again(&self, last: &AnchorReport) {
        let (overlap, server) = {
            let index = self.index.lock();
            (index.overlap_finding(), index.server_finding())
        };
        let findings = last.reading.iter().cloned().chain(overlap).chain(server).collect();
        self.reporter.report(&last.subject, last.uid.as_ref(), findings);
    }

    /// Begins to visit our profiles for what they have published.
    fn visit(self: &Arc<Self>) -> Inheritance {
        let this = Arc::clone(self);
        self.host.tasks.spawn_once("the trust anchors of before the start", async move {
            let inherit = |key: &ProfileKey, observed: &ObservedProfile| {
                if this.is_ours(observed) {
                    let mut inheritance = this.inheritance.lock();
                    inheritance.inherit(&mut this.index.lock(), key, observed);
                }
            };
            this.profiles.visit(inherit).await;
            let visited = std::mem::replace(&mut *this.inheritance.lock(), Inheritance::Known);
            if matches!(visited, Inheritance::Visiting { any: true, .. }) {
                this.after_inherited();
            }
        });
        Inheritance::Visiting { reader: AnchorReader::default(), any: false }
    }

    fn after_inherited(self: &Arc<Self>) {
        let overlap = self.settings.overlap;
        info!(
            ?overlap,
            "profiles publish trust anchors that were replaced while no provisioner ran"
        );
        self.after_overlap(Overlap::INHERITED);
    }

    fn enqueue_all(&self) {
        let manager = self.manager.clone();
        self.profiles.enqueue_where(move |observed| access::is_ours(observed, &manager));
    }

    fn after_overlap(self: &Arc<Self>, overlap: Overlap) {
        self.server_changed.notify_one();
        let this = Arc::clone(self);
        self.host.tasks.spawn_once("the overlap of trust anchors", async move {
            loop {
                sleep(this.settings.overlap).await;
                let ended = this.index.lock().end_overlap(overlap);
                match ended {
                    OverlapEnd::Over => return,
                    OverlapEnd::Ended => info!("the overlap of trust anchors has ended"),
                    OverlapEnd::Extended => {
                        info!("the server presents a certificate of replaced trust anchors, which stay published");
                    }
                }
                this.withdraw_replaced();
                if ended == OverlapEnd::Ended {
                    return;
                }
            }
        });
    }

    /// Checks the published server: every few minutes, and more often during an overlap or after a failure.
    async fn check_server(&self) {
        loop {
            let server = self.index.lock().server();
            if let Some(server) = server {
                let sighting = (self.settings.handshake)(server.clone()).await;
                let (state, detail) = server.judge(&sighting);
                debug!(
                    "checked the published server {}: {} {detail}",
                    server.address.host,
                    state.into_str()
                );
                if self.index.lock().observe(&server, &sighting) {
                    info!(
                        "{} presents another certificate, access providers follow",
                        server.address.host
                    );
                    self.withdraw_replaced();
                }
            }
            let (checked, is_overlapping) = {
                let index = self.index.lock();
                (index.checked(), index.is_overlapping())
            };
            let state = checked.map(|(state, _)| state);
            let expires = checked.and_then(|(_, expires)| expires).map(Timestamp::as_second);
            self.gauges.set_server(state, expires);
            self.report_anchors_again();
            let interval = self.settings.check_interval;
            let interval = match state {
                _ if is_overlapping => OVERLAP_INTERVAL.min(self.settings.overlap / 3),
                Some(ServerState::Ok) | None => interval,
                Some(_) => interval.min(FAILED_INTERVAL),
            };
            // What changes meanwhile is checked at once.
            let _ = timeout(interval, self.server_changed.notified()).await;
        }
    }

    fn withdraw_replaced(&self) {
        self.report_anchors_again();
        self.enqueue_all();
    }

    fn report_anchors_again(&self) {
        if let Some(last) = &*self.anchor_report.lock() {
            self.report_again(last);
        }
    }

    fn is_ours(&self, observed: &ObservedProfile) -> bool {
        access::is_ours(observed, &self.manager)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::pending;
    use hub_core::access::{AccessSource, entry};
    use hub_process::process::{Process, Setup};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::{Client, Config};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use serde_json::json;
    use tokio::task::yield_now;

    use super::*;

    fn authority() -> TrustBundle {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        TrustBundle::from_pem(certificate.pem().as_bytes()).unwrap()
    }

    #[tokio::test]
    async fn a_profile_keeps_what_it_published_before_the_start_also_if_its_plan_comes_first() {
        let client = Client::try_from(Config::new("http://localhost:1".parse().unwrap())).unwrap();
        let process = Process::new(Setup::new(client));
        let settings = ProvisionerSettings {
            provider: "proxy".to_owned(),
            source: AccessSource::Static("https://proxy.example/{cluster}".parse().unwrap()),
            ca: None,
            overlap: Duration::from_mins(1),
            check_interval: Duration::ZERO,
            handshake: Arc::new(|_| pending().boxed()),
        };
        let (before, now) = (authority(), authority());
        let key = ProfileKey { namespace: "team".into(), cluster: "c1".into() };
        let manager = process.shared.manager.as_str();
        let labels = [
            ("x-k8s.io/cluster-manager", manager),
            ("open-cluster-management.io/cluster-name", "c1"),
        ];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let metadata = ObjectMeta { labels: Some(labels.into()), ..ObjectMeta::default() };
        let published =
            entry("proxy", &key.cluster, "https://proxy.example/c1".to_owned(), before.pem());
        let observed = ObservedProfile::read(
            &metadata,
            &json!({
                "spec": { "clusterManager": { "name": manager } },
                "status": { "accessProviders": [published] },
            }),
        );
        for is_read_before in [true, false] {
            let store = Store::new(&process.shared, settings.clone(), EntryMetrics::default());
            let read = || store.set_anchors(store.place(), now.pem().as_bytes(), Ok(now.clone()));
            if is_read_before {
                read();
            }
            store.begin();
            if !is_read_before {
                read();
            }
            let wanted = |key: &ProfileKey| {
                let entry = store.desired(key, Some(&observed)).status.access_providers.remove(0).1;
                let ca = entry.unwrap().cluster.unwrap().certificate_authority_data.unwrap();
                TrustBundle::from_published(&ca.0).unwrap()
            };
            let is_kept = |wanted: TrustBundle| wanted.without(&now).eq(before.anchors());
            assert!(is_kept(wanted(&key)));
            while !matches!(*store.inheritance.lock(), Inheritance::Known) {
                yield_now().await;
            }
            assert!(is_kept(wanted(&key)));
            let other = ProfileKey { namespace: "other".into(), ..key.clone() };
            assert_eq!(wanted(&other), now, "what is added after the start is not inherited");
        }
    }
}
