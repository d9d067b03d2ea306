//! Findings: an Event on the object that a person would inspect, a line in the log, a metric.
//!
//! Controllers report all current findings on a subject each time they reconcile it; only new ones are logged. The API
//! server deletes an Event after an hour, so each Event is published again while its finding persists. An Event that
//! could not be published is retried. A task of its own publishes Events at a bounded rate, new findings first, and
//! never delays or fails other work.

mod events;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use hub_core::finding::{Finding, Subject};
use hub_core::version::Uid;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::flow::backoff;
use crate::observe::metrics::Metrics;
use crate::write::error::Category;

pub(crate) use self::events::Publisher;

/// Shortest time until an Event is published again. Jitter can double it, so that an Event is always repeated before
/// the API server deletes it after an hour.
const REPEAT_MIN: Duration = Duration::from_mins(28);
/// First delay for an Event that the API server refused.
const REFUSED_MIN: Duration = Duration::from_secs(30);
/// Longest delay for an Event that the API server refuses.
const REFUSED_MAX: Duration = Duration::from_mins(30);
/// First delay of the Events of a namespace after one of them was throttled, timed out or did not reach the API server.
const UNSENT_MIN: Duration = Duration::from_secs(1);
/// Longest delay of the Events of a namespace while that persists; jitter can double it.
const UNSENT_MAX: Duration = Duration::from_mins(1);

/// Reports the findings of one controller. Cheap to clone; clones share the findings of the process.
#[derive(Clone)]
pub struct Reporter {
    controller: &'static str,
    findings: Arc<Mutex<FindingIndex>>,
    changed: Arc<Notify>,
    metrics: Metrics,
    references: References,
}

/// How Events refer to the object of a finding, without its uid.
pub type References = Arc<dyn Fn(&Subject) -> ObjectReference + Send + Sync>;

/// The wall clock. It never affects decisions, only what people read.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The persisting findings, and when their Events are due.
#[derive(Default)]
struct FindingIndex {
    /// By controller, too: two controllers can report on the same object, each all of its own findings.
    by_subject: HashMap<(&'static str, Subject), BTreeMap<Finding, Id>>,
    by_id: BTreeMap<Id, OpenFinding>,
    /// The namespaces in which an Event is sent, or could not be delivered. That delays only its own namespace:
    /// admission webhooks and quotas are chosen by namespace.
    lanes: HashMap<String, Lane>,
    last_id: Id,
}

/// The number of a finding, in order of report.
type Id = u64;

/// A finding that persists.
struct OpenFinding {
    about: Arc<ObjectReference>,
    finding: Finding,
    /// When its Event is repeated or retried; `None` if it has none so far.
    due: Option<Instant>,
    refused: Option<ExponentialBackoff>,
}

/// The Events of one namespace.
enum Lane {
    /// A request is under way; with the backoff for the next failure, if the one before has failed.
    Busy(Option<ExponentialBackoff>),
    /// Nothing is sent until this time, since an Event could not be delivered.
    Unsent(Instant, ExponentialBackoff),
}

impl FindingIndex {
    fn add(&mut self, about: &Arc<ObjectReference>, finding: Finding) -> Id {
        self.last_id += 1;
        let open = OpenFinding { about: Arc::clone(about), finding, due: None, refused: None };
        self.by_id.insert(self.last_id, open);
        self.last_id
    }

    /// The finding whose Event is due, or else when one will be. Namespaces that accept Events go first, and new findings
    /// before repetitions. All findings are visited, at the pace of Events.
    fn next(&mut self, now: Instant) -> Result<Id, Option<Instant>> {
        // A namespace whose Event was not tried again has no finding any more.
        self.lanes.retain(|_, lane| match lane {
            Lane::Busy(_) => true,
            Lane::Unsent(until, _) => now < *until + 2 * UNSENT_MAX,
        });
        let mut soonest = None;
        let ready = self.by_id.iter().filter_map(|(id, finding)| {
            let until = match self.lanes.get(finding.namespace()) {
                Some(Lane::Busy(_)) => return None,
                Some(Lane::Unsent(until, _)) => Some(*until),
                None => None,
            };
            let due = finding.due.max(until).filter(|due| *due > now);
            soonest = [soonest, due].into_iter().flatten().min();
            due.is_none().then_some((until.is_some(), finding.due, *id))
        });
        ready.min().map(|(.., id)| id).ok_or(soonest)
    }

    /// Records that the Event of a finding is sent: no other one of its namespace is until [`Self::ended`].
    fn begin(&mut self, id: Id) -> Option<&OpenFinding> {
        let finding = self.by_id.get(&id)?;
        let backoff = match self.lanes.remove(finding.namespace()) {
            Some(Lane::Unsent(_, backoff)) => Some(backoff),
            Some(Lane::Busy(_)) | None => None,
        };
        self.lanes.insert(finding.namespace().to_owned(), Lane::Busy(backoff));
        Some(finding)
    }

    /// Records the result of the request for the Event of a finding, which may have been resolved since.
    fn ended(&mut self, id: Id, namespace: &str, now: Instant, result: Result<(), Category>) {
        let lane = self.lanes.remove(namespace);
        match (result, self.by_id.get_mut(&id)) {
            (Err(Category::Timeout | Category::Unavailable | Category::Throttled), _) => {
                let mut waits = match lane {
                    Some(Lane::Busy(Some(waits))) => waits,
                    _ => backoff::between(UNSENT_MIN, UNSENT_MAX),
                };
                let until = now + waits.next().unwrap_or(UNSENT_MAX);
                self.lanes.insert(namespace.to_owned(), Lane::Unsent(until, waits));
            }
            (Ok(()), Some(finding)) => finding.published(now),
            (Err(_), Some(finding)) => finding.refused(now),
            (_, None) => {}
        }
    }
}

impl OpenFinding {
    /// The namespace of its Event: `default` for a cluster-scoped object, where kubectl expects it.
    fn namespace(&self) -> &str {
        self.about.namespace.as_deref().unwrap_or("default")
    }

    /// Schedules the repetition of its Event, which was published.
    fn published(&mut self, now: Instant) {
        self.refused = None;
        let wait = backoff::between(REPEAT_MIN, REPEAT_MIN).next().unwrap_or(REPEAT_MIN);
        self.due = Some(now + wait);
    }

    /// Schedules the retry of its Event, which the API server refused, with backoff.
    fn refused(&mut self, now: Instant) {
        let waits = self.refused.get_or_insert_with(|| backoff::between(REFUSED_MIN, REFUSED_MAX));
        self.due = Some(now + waits.next().unwrap_or(REFUSED_MAX));
    }
}

impl Reporter {
    /// A reporter without findings.
    pub(crate) fn new(controller: &'static str, metrics: Metrics, references: References) -> Self {
        Self { controller, findings: Arc::default(), changed: Arc::default(), metrics, references }
    }

    /// A reporter for another controller that shares the findings.
    pub(crate) fn of(&self, controller: &'static str) -> Self {
        Self { controller, ..self.clone() }
    }

    /// Reports all current findings of the controller on a subject. `uid` ties the Event to this object, so that
    /// `kubectl describe` shows it.
    pub fn report(&self, subject: &Subject, uid: Option<&Uid>, findings: Vec<Finding>) {
        let mut index = self.findings.lock();
        let key = (self.controller, subject.clone());
        let mut before = index.by_subject.remove(&key).unwrap_or_default();
        let mut about = None;
        let mut now = BTreeMap::new();
        for mut finding in findings {
            // It may quote a tenant or a cluster, and people read logs and Events on terminals.
            finding.message = object_names::visible(&finding.message);
            let id = before.remove(&finding).or_else(|| now.get(&finding).copied()).unwrap_or_else(
                || {
                    self.metrics.finding(finding.reason, true);
                    warn!(%subject, reason = finding.reason.into_str(), "{}", finding.message);
                    let about = about.get_or_insert_with(|| {
                        let uid = uid.map(Uid::to_string);
                        Arc::new(ObjectReference { uid, ..(self.references)(subject) })
                    });
                    index.add(about, finding.clone())
                },
            );
            now.insert(finding, id);
        }
        for (finding, id) in before {
            self.metrics.finding(finding.reason, false);
            index.by_id.remove(&id);
        }
        if !now.is_empty() {
            index.by_subject.insert(key, now);
        }
        drop(index);
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

#[cfg(test)]
mod tests;
