//! Findings: an Event on the object that a person would inspect, a line in the log, a metric.
//!
//! Controllers report all current findings on a subject each time they reconcile it; only new ones are logged. The API
//! server deletes an Event after an hour, so each Event is published again while its finding persists. An Event that
//! could not be published is retried. A task of its own publishes Events at a bounded rate, new findings first, and
//! never delays or fails other work.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use hub_api::cluster_profile::{ClusterProfile, ProfileVersion};
use hub_api::managed_cluster::ManagedCluster;
use hub_api::managed_cluster_set::ManagedClusterSet;
use hub_api::managed_cluster_set_binding::ManagedClusterSetBinding;
use hub_api::managed_proxy_configuration::ManagedProxyConfiguration;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::manifest_work::ManifestWork;
use hub_core::consumer_access::{AccessKind, KUEUE_API};
use hub_core::note::{Note, Subject};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, warn};

use crate::backoff;
use crate::error::{Category, summary};
use crate::flow::circuit_breaker::CircuitBreaker;
use crate::lease::Fence;
use crate::metrics::Metrics;
use crate::served::ServedVersion;

/// Shortest time until an Event is published again. The jitter is up to as much again, so that an Event is repeated
/// before the API server deletes it after an hour.
const REPEAT_MIN: Duration = Duration::from_mins(28);
/// First delay for an Event that the API server refused.
const REFUSED_MIN: Duration = Duration::from_secs(30);
/// Longest delay for an Event that the API server refuses.
const REFUSED_MAX: Duration = Duration::from_mins(30);
/// First delay of all Events after one could not be sent.
const UNSENT_MIN: Duration = Duration::from_secs(1);
/// Longest delay of all Events while none can be sent.
const UNSENT_MAX: Duration = Duration::from_mins(1);
/// How long Events wait before they check the Lease again.
const FENCED_WAIT: Duration = Duration::from_secs(1);
/// Interval between two Events on average: 120 a minute.
const INTERVAL: Duration = Duration::from_millis(500);
/// How many Events may be published at once after a quiet time.
const BURST: u32 = 64;
/// Timeout for one Event.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest `note` of an Event, in bytes: the API server's limit is 1 KiB.
const NOTE_MAX_LENGTH: usize = 1000;

/// Reports the findings of one controller. Cheap to clone; clones share the findings of the process.
#[derive(Clone)]
pub struct Reporter {
    controller: &'static str,
    findings: Arc<Mutex<FindingIndex>>,
    changed: Arc<Notify>,
    metrics: Metrics,
    served: ServedVersion,
}

/// The wall clock. It never affects decisions, only what people read.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The persisting findings, and when their Events are due.
#[derive(Default)]
struct FindingIndex {
    /// By controller, too: each of two controllers reports all its findings on an object, and none of the other's.
    by_subject: HashMap<(&'static str, Subject), BTreeMap<Note, Id>>,
    by_id: HashMap<Id, OpenFinding>,
    /// Findings without an Event so far.
    new: BTreeSet<Id>,
    /// Findings whose Event is repeated or retried, by due time.
    due: BTreeSet<(Instant, Id)>,
    last_id: Id,
}

/// The number of a finding, in order of report.
type Id = u64;

/// A finding that persists.
struct OpenFinding {
    about: Arc<ObjectReference>,
    note: Note,
    due: Option<Instant>,
    refused: Option<ExponentialBackoff>,
}

impl FindingIndex {
    fn add(&mut self, about: &Arc<ObjectReference>, note: Note) -> Id {
        self.last_id += 1;
        let finding = OpenFinding { about: Arc::clone(about), note, due: None, refused: None };
        self.by_id.insert(self.last_id, finding);
        self.new.insert(self.last_id);
        self.last_id
    }

    fn remove(&mut self, id: Id) {
        self.new.remove(&id);
        if let Some(due) = self.by_id.remove(&id).and_then(|finding| finding.due) {
            self.due.remove(&(due, id));
        }
    }

    /// The finding whose Event is due; else when the next one is.
    fn next(&self, now: Instant) -> Result<Id, Option<Instant>> {
        let first_due = self.due.first();
        let is_due = first_due.filter(|(due, _)| *due <= now).map(|(_, id)| *id);
        self.new.first().copied().or(is_due).ok_or(first_due.map(|(due, _)| *due))
    }

    fn schedule(&mut self, id: Id, due: Instant) {
        // The finding may have been resolved since.
        let Some(finding) = self.by_id.get_mut(&id) else { return };
        self.new.remove(&id);
        if let Some(before) = finding.due.replace(due) {
            self.due.remove(&(before, id));
        }
        self.due.insert((due, id));
    }

    /// Its Event was published, and is repeated later.
    fn published(&mut self, id: Id, now: Instant) {
        if let Some(finding) = self.by_id.get_mut(&id) {
            finding.refused = None;
        }
        self.schedule(id, now + backoff::between(REPEAT_MIN, REPEAT_MIN).next().unwrap_or(REPEAT_MIN));
    }

    /// The API server refused its Event: retry with backoff.
    fn refused(&mut self, id: Id, now: Instant) {
        let Some(finding) = self.by_id.get_mut(&id) else { return };
        let waits = finding.refused.get_or_insert_with(|| backoff::between(REFUSED_MIN, REFUSED_MAX));
        let wait = waits.next().unwrap_or(REFUSED_MAX);
        self.schedule(id, now + wait);
    }
}

impl Reporter {
    /// A reporter without findings.
    pub(crate) fn new(controller: &'static str, metrics: Metrics, served: ServedVersion) -> Self {
        Self { controller, findings: Arc::default(), changed: Arc::default(), metrics, served }
    }

    /// The same for another controller.
    pub(crate) fn of(&self, controller: &'static str) -> Self {
        Self { controller, ..self.clone() }
    }

    /// Reports all current findings of the controller on a subject. `uid` ties the Event to this object, so that
    /// `kubectl describe` shows it.
    pub fn report(&self, subject: &Subject, uid: Option<&str>, notes: Vec<Note>) {
        let mut findings = self.findings.lock();
        let key = (self.controller, subject.clone());
        let mut before = findings.by_subject.remove(&key).unwrap_or_default();
        let mut about = None;
        let mut now = BTreeMap::new();
        for note in notes {
            let id = before.remove(&note).or_else(|| now.get(&note).copied()).unwrap_or_else(|| {
                self.metrics.finding(note.reason, true);
                warn!(%subject, reason = note.reason.as_str(), "{}", note.message);
                let about =
                    about.get_or_insert_with(|| Arc::new(reference(subject, uid, self.served.current())));
                findings.add(about, note.clone())
            });
            now.insert(note, id);
        }
        for (note, id) in before {
            self.metrics.finding(note.reason, false);
            findings.remove(id);
        }
        if !now.is_empty() {
            findings.by_subject.insert(key, now);
        }
        drop(findings);
        if about.is_some() {
            self.changed.notify_one();
        }
    }

    /// The subject is gone, and so are the controller's findings on it.
    pub fn forget(&self, subject: &Subject) {
        self.report(subject, None, Vec::new());
    }

    /// Waits until the Event of a finding is due.
    async fn next(&self) -> Id {
        loop {
            let next = self.findings.lock().next(Instant::now());
            match next {
                Ok(id) => return id,
                Err(Some(due)) => {
                    let _ = timeout_at(due, self.changed.notified()).await;
                }
                Err(None) => self.changed.notified().await,
            }
        }
    }
}

/// Publishes Events, one object for each. kube's `Recorder` treats two findings with the same reason on one object as
/// one Event and keeps the first text.
pub(crate) struct Publisher {
    pub(crate) client: Client,
    pub(crate) controller: &'static str,
    pub(crate) reporter: Reporter,
    pub(crate) fence: Fence,
    pub(crate) breaker: CircuitBreaker,
    pub(crate) clock: Clock,
}

impl Publisher {
    /// Publishes Events for as long as the process runs, while it leads and the breaker is closed.
    pub(crate) async fn run(self) {
        let instance = hostname::get().ok().and_then(|name| name.into_string().ok());
        let instance = instance.unwrap_or_else(|| self.controller.to_owned());
        let mut pace = Pace { next: Instant::now() };
        let unsent = || backoff::between(UNSENT_MIN, UNSENT_MAX);
        let mut waits = unsent();
        loop {
            let id = self.reporter.next().await;
            pace.wait().await;
            self.breaker.closed().await;
            let Some(remaining) = self.fence.remaining() else {
                sleep(FENCED_WAIT).await;
                continue;
            };
            let event = {
                let findings = self.reporter.findings.lock();
                let finding = findings.by_id.get(&id);
                finding.map(|finding| event(finding, self.controller, &instance, (self.clock)()))
            };
            let Some(event) = event else { continue };
            let result = self.publish(&event, remaining.min(PUBLISH_TIMEOUT)).await;
            self.reporter.metrics.event(if result.is_ok() { "published" } else { "failed" });
            let now = Instant::now();
            match result {
                Ok(()) => {
                    waits = unsent();
                    self.reporter.findings.lock().published(id, now);
                }
                Err(Category::Timeout | Category::Unavailable | Category::Throttled) => {
                    sleep(waits.next().unwrap_or(UNSENT_MAX)).await;
                }
                Err(_) => self.reporter.findings.lock().refused(id, now),
            }
        }
    }

    async fn publish(&self, event: &Event, longest: Duration) -> Result<(), Category> {
        // An Event about a cluster-scoped object is in the namespace where kubectl expects it.
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        match timeout(longest, api.create(&PostParams::default(), event)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                debug!(reason = event.reason, error = summary(&error), "cannot publish an Event");
                Err(Category::of(&error))
            }
            Err(_) => Err(Category::Timeout),
        }
    }
}

/// The rate of Events.
struct Pace {
    /// When the next Event is due, if none has been sent early.
    next: Instant,
}

impl Pace {
    async fn wait(&mut self) {
        self.next = self.next.max(Instant::now()) + INTERVAL;
        if let Some(at) = self.next.checked_sub(INTERVAL * BURST) {
            sleep_until(at).await;
        }
    }
}

fn event(finding: &OpenFinding, controller: &str, instance: &str, now: Timestamp) -> Event {
    let OpenFinding { about, note, .. } = finding;
    let about = ObjectReference::clone(about);
    let name = about.name.as_deref().unwrap_or(controller);
    Event {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(name)),
            namespace: Some(about.namespace.clone().unwrap_or_else(|| "default".to_owned())),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some("Warning".to_owned()),
        reason: Some(note.reason.as_str().to_owned()),
        note: Some(shortened(&note.message)),
        action: Some("Reconcile".to_owned()),
        regarding: Some(about),
        reporting_controller: Some(controller.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..Event::default()
    }
}

/// The beginning of the name of an Event about an object. It ends with a dash, because the API server refuses a prefix
/// that ends with the dot of client-go's names. What only names of some kinds contain, such as the colons of a Role's,
/// is replaced.
fn name_prefix(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.';
    let name: String = name.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    format!("{}-", name.trim_start_matches(['-', '.']))
}

fn reference(subject: &Subject, uid: Option<&str>, profiles: ProfileVersion) -> ObjectReference {
    fn of(api_version: String, kind: &str, namespace: Option<&str>, name: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind.to_owned()),
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        }
    }
    fn to<K: Resource<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> ObjectReference {
        of(K::api_version(&()).into_owned(), &K::kind(&()), namespace, name)
    }
    let reference = match subject {
        Subject::Cluster(name) => to::<ManagedCluster>(None, name.as_str()),
        Subject::ClusterSet(name) => to::<ManagedClusterSet>(None, name.as_str()),
        Subject::Binding(namespace, name) => {
            to::<ManagedClusterSetBinding>(Some(namespace.as_str()), name.as_str())
        }
        Subject::Profile(key) => ObjectReference {
            api_version: Some(profiles.resource().api_version),
            ..to::<ClusterProfile>(Some(key.namespace.as_str()), key.cluster.as_str())
        },
        Subject::ProxyConfiguration(name) => to::<ManagedProxyConfiguration>(None, name),
        Subject::Account(key) => {
            to::<ManagedServiceAccount>(Some(key.cluster.as_str()), key.account.as_str())
        }
        Subject::Secret(namespace, name) => to::<Secret>(Some(namespace.as_str()), name),
        Subject::ConfigMap(namespace, name) => to::<ConfigMap>(Some(namespace.as_str()), name),
        Subject::Role(namespace, name) => to::<Role>(Some(namespace.as_str()), name),
        Subject::ManifestWork(cluster, name) => to::<ManifestWork>(Some(cluster.as_str()), name),
        Subject::ClusterPermission(cluster, name) => {
            let (group, version, kind) = AccessKind::ClusterPermission.gvk();
            of(format!("{group}/{version}"), kind, Some(cluster.as_str()), name)
        }
        Subject::Crd(name) => to::<CustomResourceDefinition>(None, name),
        Subject::Kueue(key) => of(format!("{}/{}", KUEUE_API.0, KUEUE_API.1), key.kind().0, None, key.name()),
    };
    ObjectReference { uid: uid.map(str::to_owned), ..reference }
}

fn shortened(text: &str) -> String {
    if text.len() <= NOTE_MAX_LENGTH {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(NOTE_MAX_LENGTH);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests;
