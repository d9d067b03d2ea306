//! Findings, told once: an Event on the object that a person would look at, a line in the log, a metric.
//!
//! Whoever finds something reports all findings on a subject each time it looks; only what is new is told.
//! Events are sent from a task of their own with a bounded backlog: they never hold up or fail any work.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use hub_api::cluster_profile::ClusterProfile;
use hub_api::managed_cluster::ManagedCluster;
use hub_api::managed_cluster_set::ManagedClusterSet;
use hub_api::managed_cluster_set_binding::ManagedClusterSetBinding;
use hub_api::managed_proxy_configuration::ManagedProxyConfiguration;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_core::note::{Note, Subject};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::error::summary;
use crate::lease::Fence;
use crate::metrics::Metrics;

/// Events that may wait to be sent. More are dropped, and counted: the log and the metric have them.
const BACKLOG: usize = 256;
/// Longest wait for the answer to one Event.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest `note` of an Event, in bytes: the API server takes less than 1 KiB.
const NOTE_MAX_LENGTH: usize = 1000;

/// Tells findings. Cheap to clone; clones know what the others have told.
#[derive(Clone)]
pub struct Reporter {
    told: Arc<Mutex<HashMap<Subject, BTreeSet<Note>>>>,
    outbox: mpsc::Sender<Finding>,
    metrics: Metrics,
}

/// Tells the time of day. It never decides anything: it stands in what people read.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A note that is new, on its way to become an Event.
struct Finding {
    about: ObjectReference,
    note: Note,
}

impl Reporter {
    /// A reporter, and the task that publishes Events as `controller`, while `fence` is open.
    pub(crate) fn new(
        client: Client,
        controller: &'static str,
        fence: Fence,
        metrics: Metrics,
        clock: Clock,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (outbox, inbox) = mpsc::channel(BACKLOG);
        let publish = publish(client, controller, inbox, fence, metrics.clone(), clock);
        (Self { told: Arc::default(), outbox, metrics }, publish)
    }

    /// Takes all there is to say about a subject now. `uid` ties the Event to this very object, so that
    /// `kubectl describe` shows it.
    pub fn report(&self, subject: &Subject, uid: Option<&str>, notes: Vec<Note>) {
        let new = {
            let mut told = self.told.lock();
            let before = told.remove(subject).unwrap_or_default();
            let now: BTreeSet<Note> = notes.into_iter().collect();
            for over in before.difference(&now) {
                self.metrics.finding(over.reason, false);
            }
            let new: Vec<Note> = now.difference(&before).cloned().collect();
            if !now.is_empty() {
                told.insert(subject.clone(), now);
            }
            new
        };
        for note in new {
            self.metrics.finding(note.reason, true);
            warn!(%subject, reason = note.reason.as_str(), "{}", note.message);
            if self.outbox.try_send(Finding { about: reference(subject, uid), note }).is_err() {
                self.metrics.event("dropped");
            }
        }
    }

    /// The subject is gone, and with it all there was to say.
    pub fn forget(&self, subject: &Subject) {
        self.report(subject, None, Vec::new());
    }
}

/// Sends Events, one object each. kube's `Recorder` is for events that repeat: it takes two findings of one
/// reason on one object for the same and keeps the first one's text. Here nothing repeats.
async fn publish(
    client: Client,
    controller: &'static str,
    mut inbox: mpsc::Receiver<Finding>,
    fence: Fence,
    metrics: Metrics,
    clock: Clock,
) {
    let instance = hostname::get().ok().and_then(|name| name.into_string().ok());
    let instance = instance.unwrap_or_else(|| controller.to_owned());
    while let Some(finding) = inbox.recv().await {
        if fence.remaining().is_none() {
            metrics.event("dropped");
            continue;
        }
        let event = event(finding, controller, &instance, clock());
        // About a cluster-scoped object an Event stands in the namespace where kubectl looks for it.
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        match timeout(PUBLISH_TIMEOUT, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => metrics.event("published"),
            Ok(Err(error)) => {
                metrics.event("failed");
                debug!(reason = event.reason, error = summary(&error), "cannot publish an Event");
            }
            Err(_) => metrics.event("failed"),
        }
    }
}

fn event(finding: Finding, controller: &str, instance: &str, now: Timestamp) -> Event {
    let Finding { about, note } = finding;
    let name = about.name.as_deref().unwrap_or(controller);
    Event {
        metadata: ObjectMeta {
            // With a dash: the API server refuses a prefix that ends with the dot of client-go's names.
            generate_name: Some(format!("{name}-")),
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

fn reference(subject: &Subject, uid: Option<&str>) -> ObjectReference {
    fn to<K: Resource<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        }
    }
    let reference = match subject {
        Subject::Cluster(name) => to::<ManagedCluster>(None, name.as_str()),
        Subject::ClusterSet(name) => to::<ManagedClusterSet>(None, name.as_str()),
        Subject::Binding(namespace, name) => {
            to::<ManagedClusterSetBinding>(Some(namespace.as_str()), name.as_str())
        }
        Subject::Profile(key) => to::<ClusterProfile>(Some(key.namespace.as_str()), key.cluster.as_str()),
        Subject::ProxyConfiguration(name) => to::<ManagedProxyConfiguration>(None, name),
        Subject::Account(key) => {
            to::<ManagedServiceAccount>(Some(key.cluster.as_str()), key.account.as_str())
        }
        Subject::Secret(namespace, name) => to::<Secret>(Some(namespace.as_str()), name),
        Subject::ConfigMap(namespace, name) => to::<ConfigMap>(Some(namespace.as_str()), name),
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
mod tests {
    use hub_api::names::ProfileKey;
    use hub_core::note::Reason;

    use super::*;

    fn reporter() -> (Reporter, mpsc::Receiver<Finding>) {
        let (outbox, inbox) = mpsc::channel(4);
        (Reporter { told: Arc::default(), outbox, metrics: Metrics::new("0") }, inbox)
    }

    fn events(inbox: &mut mpsc::Receiver<Finding>) -> Vec<&'static str> {
        std::iter::from_fn(|| inbox.try_recv().ok()).map(|finding| finding.note.reason.as_str()).collect()
    }

    #[test]
    fn a_finding_is_told_once_until_it_is_over() {
        let (reporter, mut inbox) = reporter();
        let subject = Subject::ClusterSet("prod".into());
        let note = || Note::new(Reason::InvalidSelector, "broken");
        reporter.report(&subject, Some("u1"), vec![note()]);
        reporter.report(&subject, Some("u1"), vec![note()]);
        assert_eq!(events(&mut inbox), ["InvalidSelector"]);
        reporter.report(&subject, Some("u1"), Vec::new());
        reporter.report(&subject, Some("u1"), vec![note()]);
        assert_eq!(events(&mut inbox), ["InvalidSelector"]);
        assert!(reporter.metrics.text().contains("findings{reason=\"InvalidSelector\"} 1"));
    }

    #[test]
    fn too_many_events_are_dropped_and_counted_and_hold_up_nobody() {
        let (reporter, mut inbox) = reporter();
        for cluster in 0..10 {
            let subject = Subject::Cluster(format!("c{cluster}").as_str().into());
            reporter.report(&subject, None, vec![Note::new(Reason::ClaimSkipped, "x")]);
        }
        assert_eq!(events(&mut inbox).len(), 4);
        assert!(reporter.metrics.text().contains("hub_addons_events_total{result=\"dropped\"} 6"));
    }

    #[test]
    fn an_event_about_a_cluster_names_it_whole() {
        let about = reference(&Subject::Cluster("c1".into()), Some("u1"));
        assert_eq!(about.api_version.as_deref(), Some("cluster.open-cluster-management.io/v1"));
        assert_eq!(about.kind.as_deref(), Some("ManagedCluster"));
        assert_eq!((about.name.as_deref(), about.uid.as_deref()), (Some("c1"), Some("u1")));
    }

    #[test]
    fn an_event_stands_where_kubectl_looks_for_it() {
        let now = Timestamp::UNIX_EPOCH;
        let on = |subject: Subject| {
            let note = Note::new(Reason::Unreadable, "x");
            event(Finding { about: reference(&subject, None), note }, "hub-addons", "pod", now)
        };
        let profile = ProfileKey { namespace: "app".into(), cluster: "c1".into() };
        assert_eq!(on(Subject::Profile(profile)).metadata.namespace.as_deref(), Some("app"));
        assert_eq!(on(Subject::Cluster("c1".into())).metadata.namespace.as_deref(), Some("default"));
    }

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        let text = shortened(&"ü".repeat(2000));
        assert!(text.len() < 1024 && text.ends_with('…'));
    }
}
