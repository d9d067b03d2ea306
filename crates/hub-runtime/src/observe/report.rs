//! Findings: an Event on the object that a person would inspect, a line in the log, a metric.
//!
//! Controllers report all current findings on a subject each time they reconcile it; only new ones are logged. The API
//! server deletes an Event after an hour, so each Event is published again while its finding persists. An Event that
//! could not be published is retried. A task of its own publishes Events at a bounded rate, new findings first, and
//! never delays or fails other work.

mod events;

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    by_id: HashMap<Id, OpenFinding>,
    /// By the namespace of the Event. An Event that cannot be delivered delays only its own namespace: admission
    /// webhooks and quotas are chosen by namespace.
    lanes: BTreeMap<String, Lane>,
    last_id: Id,
}

/// The number of a finding, in order of report.
type Id = u64;

/// A finding that persists.
struct OpenFinding {
    about: Arc<ObjectReference>,
    finding: Finding,
    due: Option<Instant>,
    refused: Option<ExponentialBackoff>,
}

/// The findings whose Events belong to one namespace.
#[derive(Default)]
struct Lane {
    /// Findings without an Event so far.
    new: BTreeSet<Id>,
    /// Findings whose Event is repeated or retried, by due time.
    due: BTreeSet<(Instant, Id)>,
    /// Whether a request is under way.
    busy: bool,
    /// Until when nothing is sent, since an Event could not be delivered, and the backoff for the next one.
    unsent: Option<(Instant, ExponentialBackoff)>,
}

/// The order in which Events are published: of namespaces that accept them first, new findings before repetitions.
type Rank = (bool, Option<Instant>, Id);

impl Lane {
    /// The rank of the Event that is due in this namespace, or else when one will be.
    fn next(&self, now: Instant) -> Result<Rank, Option<Instant>> {
        if self.busy {
            return Err(None);
        }
        let is_failing = self.unsent.is_some();
        let first_due = self.due.first().map(|(due, id)| (*due, (is_failing, Some(*due), *id)));
        let new = self.new.first().map(|id| (now, (is_failing, None, *id)));
        let Some((due, rank)) = new.or(first_due) else { return Err(None) };
        let due = self.unsent.as_ref().map_or(due, |(until, _)| due.max(*until));
        if due <= now { Ok(rank) } else { Err(Some(due)) }
    }
}

impl FindingIndex {
    fn add(&mut self, about: &Arc<ObjectReference>, finding: Finding) -> Id {
        self.last_id += 1;
        let open = OpenFinding { about: Arc::clone(about), finding, due: None, refused: None };
        self.lanes.entry(open.namespace().to_owned()).or_default().new.insert(self.last_id);
        self.by_id.insert(self.last_id, open);
        self.last_id
    }

    fn remove(&mut self, id: Id) {
        let Some(finding) = self.by_id.remove(&id) else { return };
        let Some(lane) = self.lanes.get_mut(finding.namespace()) else { return };
        lane.new.remove(&id);
        if let Some(due) = finding.due {
            lane.due.remove(&(due, id));
        }
        self.drop_if_empty(finding.namespace());
    }

    fn drop_if_empty(&mut self, namespace: &str) {
        if self
            .lanes
            .get(namespace)
            .is_some_and(|it| !it.busy && it.new.is_empty() && it.due.is_empty())
        {
            self.lanes.remove(namespace);
        }
    }

    /// The finding whose Event is due, or else when one will be.
    fn next(&self, now: Instant) -> Result<Id, Option<Instant>> {
        let (mut first, mut soonest): (Option<Rank>, Option<Instant>) = (None, None);
        for lane in self.lanes.values() {
            match lane.next(now) {
                Ok(rank) => first = Some(first.map_or(rank, |it| it.min(rank))),
                Err(due) => soonest = [soonest, due].into_iter().flatten().min(),
            }
        }
        first.map(|(.., id)| id).ok_or(soonest)
    }

    /// Records that the Event of a finding is sent: no other one of its namespace is until [`Self::ended`].
    fn begin(&mut self, id: Id) -> Option<&OpenFinding> {
        let finding = self.by_id.get(&id)?;
        self.lanes.entry(finding.namespace().to_owned()).or_default().busy = true;
        Some(finding)
    }

    /// Records the result of the request for the Event of a finding.
    fn ended(&mut self, id: Id, namespace: &str, now: Instant, result: Result<(), Category>) {
        let unsent = self.lanes.get_mut(namespace).and_then(|lane| {
            lane.busy = false;
            lane.unsent.take()
        });
        match result {
            Ok(()) => self.published(id, now),
            Err(Category::Timeout | Category::Unavailable | Category::Throttled) => {
                let mut waits = unsent
                    .map_or_else(|| backoff::between(UNSENT_MIN, UNSENT_MAX), |(_, waits)| waits);
                let until = now + waits.next().unwrap_or(UNSENT_MAX);
                if let Some(lane) = self.lanes.get_mut(namespace) {
                    lane.unsent = Some((until, waits));
                }
            }
            Err(_) => self.refused(id, now),
        }
        self.drop_if_empty(namespace);
    }

    fn schedule(&mut self, id: Id, due: Instant) {
        // The finding may have been resolved since.
        let Some(finding) = self.by_id.get_mut(&id) else { return };
        let before = finding.due.replace(due);
        let lane = self.lanes.entry(finding.namespace().to_owned()).or_default();
        lane.new.remove(&id);
        if let Some(before) = before {
            lane.due.remove(&(before, id));
        }
        lane.due.insert((due, id));
    }

    /// Schedules the repetition of an Event that was published.
    fn published(&mut self, id: Id, now: Instant) {
        if let Some(finding) = self.by_id.get_mut(&id) {
            finding.refused = None;
        }
        self.schedule(
            id,
            now + backoff::between(REPEAT_MIN, REPEAT_MIN).next().unwrap_or(REPEAT_MIN),
        );
    }

    /// Schedules the retry of an Event that the API server refused, with backoff.
    fn refused(&mut self, id: Id, now: Instant) {
        let Some(finding) = self.by_id.get_mut(&id) else { return };
        let waits =
            finding.refused.get_or_insert_with(|| backoff::between(REFUSED_MIN, REFUSED_MAX));
        let wait = waits.next().unwrap_or(REFUSED_MAX);
        self.schedule(id, now + wait);
    }
}

impl OpenFinding {
    /// The namespace of its Event: `default` for a cluster-scoped object, where kubectl expects it.
    fn namespace(&self) -> &str {
        self.about.namespace.as_deref().unwrap_or("default")
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
            index.remove(id);
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
