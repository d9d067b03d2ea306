//! The statuses of ClusterAccesses: computed some seconds apart at most, and written only where they differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hub_api::cluster_access::{CLUSTER_ACCESSES, ClusterAccess, ClusterAccessStatus};
use hub_api::names::ClusterName;
use hub_core::action::Action;
use hub_core::consumer_access::{AccessKind, AccessName, AccessSettings};
use hub_core::finding::{Finding, Reason, Subject};
use hub_core::fleet::Touched;
use hub_core::version::Version;
use hub_runtime::host::Host;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read};
use hub_runtime::write::error::WriteError;
use hub_runtime::write::execute::Target;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::store::Store;

/// The shortest time between two computations of a status: a cost of all clusters, for a change of one.
const INTERVAL: Duration = Duration::from_secs(3);

/// The queue of statuses.
pub(crate) struct Statuses {
    work: Arc<Work<AccessName>>,
    state: Mutex<StatusState>,
}

#[derive(Default)]
struct StatusState {
    /// When each status was last computed.
    computed: BTreeMap<AccessName, Instant>,
    /// The objects whose status counts a cluster.
    counting: BTreeMap<ClusterName, BTreeSet<AccessName>>,
}

impl Statuses {
    pub(crate) fn new(host: &Arc<Host>) -> Self {
        host.metrics.declare_written(CLUSTER_ACCESSES);
        Self { work: Work::new(host, "consumer-access-status"), state: Mutex::default() }
    }

    /// Queues the status of an object.
    pub(crate) fn mark(&self, name: &AccessName) {
        if self.work.host().is_working() {
            self.work.add(name.clone());
        }
    }

    /// Records that an object is gone.
    pub(crate) fn forget(&self, name: &AccessName) {
        let mut state = self.state.lock();
        state.computed.remove(name);
        state.counting.retain(|_, names| {
            names.remove(name);
            !names.is_empty()
        });
    }

    /// Queues the statuses that count a cluster, or are in these namespaces.
    pub(crate) fn fleet_changed(&self, settings: &AccessSettings, touched: &Touched) {
        match touched {
            Touched::Nothing => {}
            Touched::Cluster(cluster) => {
                let counting = self.state.lock().counting.get(cluster).cloned().unwrap_or_default();
                for name in &counting {
                    self.mark(name);
                }
            }
            Touched::Namespaces(namespaces) => {
                let names = namespaces.iter().flat_map(|namespace| settings.consumers.names_in(namespace));
                for name in names {
                    self.mark(name);
                }
            }
        }
    }
}

/// Writes the statuses.
pub(crate) struct StatusWriter(pub(crate) Arc<Store>);

impl Objects for StatusWriter {
    type Key = AccessName;
    type Create = Value;
    type Patch = Value;
    type Plan = ();

    const WORKERS: usize = 4;

    fn work(&self) -> &Arc<Work<AccessName>> {
        &self.0.statuses.work
    }

    fn target(&self, name: &AccessName) -> Target {
        Target::of::<ClusterAccess>(CLUSTER_ACCESSES, &(), Some(name.namespace.as_str()), &name.name)
    }

    fn known(&self, name: &AccessName) -> Option<Version> {
        self.0.settings().consumers.object(name).map(|object| object.version.clone())
    }

    fn plan(&self, name: &AccessName, read: Option<&Read>) -> Planned<Self> {
        // After a conflict, the watch shows the object that has replaced this version.
        if read.is_some() {
            return Planned::Wait(INTERVAL);
        }
        let (fleet, settings) = (self.0.fleet.read(), self.0.settings());
        let now = Instant::now();
        let mut statuses = self.0.statuses.state.lock();
        let since = statuses.computed.get(name).map(|before| now - *before);
        if let Some(wait) = since.and_then(|since| INTERVAL.checked_sub(since)).filter(|wait| !wait.is_zero())
        {
            return Planned::Wait(wait);
        }
        let Some(object) = settings.consumers.object(name) else {
            return Planned::Write(Action::Nothing, ());
        };
        let state = self.0.state.lock();
        // What has not been listed yet is not missing: every list queues the status again.
        let is_listed = match settings.consumers.get(name) {
            Some(consumer) if settings.consumers.awaits_decisions(consumer) => None,
            Some(consumer) => self.0.is_listed(&state, &consumer.account),
            None => Some(true),
        };
        let Some(is_listed) = is_listed else { return Planned::Unknown };
        let observed = |kind, key: &_| state.objects.get(&AccessKind::of(kind, key));
        let status = settings.status(&fleet, name, is_listed, observed, self.0.host.now());
        let Some((status, counted)) = status else {
            return Planned::Write(Action::Nothing, ());
        };
        statuses.computed.insert(name.clone(), now);
        for cluster in counted {
            statuses.counting.entry(cluster).or_default().insert(name.clone());
        }
        let action = if status == object.status {
            Action::Nothing
        } else {
            Action::PatchStatus(object.version.clone(), patch(&status))
        };
        Planned::Write(action, ())
    }

    fn settled(&self, name: &AccessName, (): ()) -> Outcome {
        self.report(name, Vec::new());
        Outcome::Done
    }

    fn refused(&self, name: &AccessName, (): &(), error: &WriteError) {
        self.report(name, vec![Finding::new(Reason::WriteRefused, error.to_string())]);
    }
}

impl StatusWriter {
    fn report(&self, name: &AccessName, findings: Vec<Finding>) {
        let uid = self.known(name).map(|version| version.uid);
        self.0.reporter.report(&Subject::ClusterAccess(name.clone()), uid.as_ref(), findings);
    }
}

/// The merge patch that makes a status like this.
fn patch(status: &ClusterAccessStatus) -> Value {
    let mut patch = json!(status);
    for field in ["notReady", "moreNotReady"] {
        if let Some(fields) = patch.as_object_mut() {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    json!({ "status": patch })
}
