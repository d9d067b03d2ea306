//! The statuses of ClusterAccesses: computed some seconds apart at most, and written only where they differ.

use std::time::Duration;

use hub_api::cluster_access::ClusterAccessStatus;
use hub_core::action::Action;
use hub_core::consumer_access::{AccessKind, AccessName, Consumer};
use hub_runtime::reconciler::Planned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::state::WatchName;
use crate::store::Store;
use crate::watches::kueue;

const NO_KUEUE: &str = "MultiKueueClusters and MultiKueueConfigs cannot be read: does the hub serve kueue.x-k8s.io/v1beta2?";
const NO_SECRETS: &str = "The Secrets of this namespace cannot be read: does consumerAccess.argoCDNamespaces of the chart list it?";

/// The shortest time between two computations of a status: a cost of all clusters, for a change of one.
const INTERVAL: Duration = Duration::from_secs(3);

impl Store {
    /// Records that a ClusterAccess is gone.
    pub(crate) fn forget_status(&self, name: &AccessName) {
        let mut state = self.state.lock();
        state.computed.remove(name);
        state.counting.retain(|_, names| {
            names.remove(name);
            !names.is_empty()
        });
    }

    /// Plans the status of a ClusterAccess.
    pub(crate) fn plan_status(&self, name: &AccessName, has_read: bool) -> Planned<Self> {
        // After a conflict, the watch shows the object that has replaced this version.
        if has_read {
            return Planned::Wait(INTERVAL);
        }
        let (fleet, settings) = (self.fleet.read(), self.settings());
        let now = Instant::now();
        let mut state = self.state.lock();
        let since = state.computed.get(name).map(|before| now - *before);
        if let Some(wait) =
            since.and_then(|since| INTERVAL.checked_sub(since)).filter(|wait| !wait.is_zero())
        {
            return Planned::Wait(wait);
        }
        let nothing = Planned::Write(Action::Nothing, Some(Vec::new()));
        let Some(object) = settings.consumers.object(name) else { return nothing };
        // What has not been listed yet is not missing: every list queues the status again.
        let is_read = match settings.consumers.get(name) {
            Some(consumer) if settings.consumers.awaits_decisions(consumer) => None,
            Some(consumer) => state.is_read(settings.permission_kind(), &consumer.account),
            None => Some(true),
        };
        let needed = settings.consumers.get(name).map(needed).unwrap_or_default();
        let Some(is_read) = is_read else { return Planned::Unknown };
        if needed.iter().any(|(watch, _)| !state.read.contains_key(watch)) {
            return Planned::Unknown;
        }
        let unavailable = needed.iter().find(|(watch, _)| !state.is_listed(watch)).map(|it| it.1);
        let observed = |kind, key: &_| state.objects.get(&AccessKind::of(kind, key));
        let Some((status, counted)) =
            settings.status(&fleet, name, is_read, unavailable, observed, self.host.now())
        else {
            return nothing;
        };
        state.computed.insert(name.clone(), now);
        for cluster in counted {
            state.counting.entry(cluster).or_default().insert(name.clone());
        }
        if status == object.status {
            return nothing;
        }
        let action = Action::PatchStatus(object.version.clone(), patch(&status));
        Planned::Write(action, Some(Vec::new()))
    }
}

/// The watches on objects that a consumer asks for, and what is said where one cannot be read.
fn needed(consumer: &Consumer) -> Vec<(WatchName, &'static str)> {
    let kueue = consumer.spec.multi_kueue.iter().flat_map(|_| kueue());
    let kueue = kueue.map(|key| (WatchName::of(&key), NO_KUEUE));
    let secrets = WatchName::Secrets(consumer.namespace().clone());
    kueue.chain(consumer.spec.argo_cd.iter().map(|_| (secrets.clone(), NO_SECRETS))).collect()
}

/// The merge patch that makes a status like this.
fn patch(status: &ClusterAccessStatus) -> Value {
    let mut patch = json!(status);
    for field in ["clusters", "notReady", "moreNotReady"] {
        if let Some(fields) = patch.as_object_mut() {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    json!({ "status": patch })
}
