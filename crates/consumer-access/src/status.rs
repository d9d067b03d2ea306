//! The statuses of ClusterAccesses: computed some seconds apart at most, and written only where they differ.

use std::time::Duration;

use hub_api::cluster_access::ClusterAccessStatus;
use hub_api::names::{AccountKey, ProfileKey};
use hub_core::action::Action;
use hub_core::consumer_access::{
    AccessKey, AccessKind, AccessName, AccessSettings, Consumer, Unread,
};
use hub_runtime::reconciler::Planned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::state::{Reading, WatchName};
use crate::store::Store;
use crate::watches::kueue;

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
        let consumer = settings.consumers.get(name);
        let reading = |key: &AccessKey| state.read.get(&WatchName::of(key)).copied();
        let needed = consumer.map(|consumer| needed(&settings, consumer)).unwrap_or_default();
        // What has not been listed yet is not missing: the status is queued again.
        if consumer.is_some_and(|consumer| settings.consumers.awaits_decisions(consumer))
            || needed.iter().any(|key| reading(key).is_none())
        {
            return Planned::Unknown;
        }
        let having = |why| Some((needed.iter().find(|key| reading(key) == Some(why))?, why));
        let unread = having(Reading::OutOfDate).or_else(|| having(Reading::Unavailable));
        let is_unlisted = |key: &AccessKey| reading(key) != Some(Reading::Listed);
        let kinds = needed.iter().filter(|key| is_unlisted(key)).filter_map(|key| match key {
            AccessKey::Access(kind, _) => Some(*kind),
            _ => None,
        });
        let unread = unread.map(|(key, why)| {
            let (reason, message) = why_not_ready(key, why);
            Unread { reason, message, kinds: kinds.collect() }
        });
        let observed = |kind, key: &_| state.objects.get(&AccessKind::of(kind, key));
        let Some((status, counted)) =
            settings.status(&fleet, name, unread, observed, self.host.now())
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

/// A key of each kind of objects that a consumer gets.
fn needed(settings: &AccessSettings, consumer: &Consumer) -> Vec<AccessKey> {
    let account = AccountKey { cluster: "".into(), account: consumer.account.clone() };
    let kinds = [AccessKind::Account, settings.permission_kind()];
    let secret = ProfileKey { namespace: consumer.namespace().clone(), cluster: "".into() };
    let kueue = consumer.spec.multi_kueue.iter().flat_map(|_| kueue());
    let secrets = consumer.spec.argo_cd.iter().map(|_| AccessKey::ClusterSecret(secret.clone()));
    kinds.into_iter().map(|kind| kind.of(&account)).chain(kueue).chain(secrets).collect()
}

/// The reason and the message of the condition Ready while objects like this cannot be read.
fn why_not_ready(key: &AccessKey, why: Reading) -> (&'static str, String) {
    let (group, version, kind) = key.gvk();
    match key {
        _ if why == Reading::OutOfDate => {
            ("Unknown", format!("{kind}s cannot be read: see the log of the controller."))
        }
        AccessKey::ClusterSecret(_) => (
            "Unavailable",
            "The Secrets of this namespace cannot be read: does consumerAccess.argoCDNamespaces of the chart list it?"
                .to_owned(),
        ),
        _ => {
            let message = format!(
                "{kind}s cannot be read: does the hub serve {version} of the CRD {}.{group}?",
                key.resource()
            );
            ("Unavailable", message)
        }
    }
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
