//! The statuses of ClusterAccesses: computed some seconds apart at most, from what has changed on each cluster, and written
//! only where they differ.

use std::collections::BTreeSet;
use std::time::Duration;

use hub_api::cluster_access::ClusterAccessStatus;
use hub_api::names::ApiKind;
use hub_core::action::Action;
use hub_core::consumer_access::{AccessKind, AccessName, AccessSettings, Consumer, Unread};
use hub_runtime::reconciler::Planned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::state::Reading;
use crate::store::Store;
use crate::watch_name::WatchName;

/// The shortest time between two computations of a status, each of which may be written.
const INTERVAL: Duration = Duration::from_secs(3);

impl Store {
    /// Records that a ClusterAccess is gone.
    pub(crate) fn forget_status(&self, name: &AccessName) {
        let mut state = self.state.lock();
        state.counted.remove(name);
        state.counting.remove_right(name);
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
        let computed = state.counted.get(name).and_then(|counted| counted.computed);
        let since = computed.map(|before| now - before);
        if let Some(wait) =
            since.and_then(|since| INTERVAL.checked_sub(since)).filter(|wait| !wait.is_zero())
        {
            return Planned::Wait(wait);
        }
        let finding = settings.consumers.finding(name);
        let is_readable = finding.is_none();
        let nothing = Planned::Write(Action::Nothing, Some(finding.into_iter().collect()));
        let object = settings.consumers.object(name).filter(|_| is_readable);
        let Some(object) = object else { return nothing };
        let consumer = settings.consumers.get(name);
        let reading = |watch: &WatchName| state.read.get(watch).copied();
        let needed = consumer.map(|consumer| awaited(&settings, consumer)).unwrap_or_default();
        // What has not been listed yet is not missing: the status is queued again.
        if consumer.is_some_and(|consumer| settings.consumers.awaits_decisions(consumer))
            || needed.iter().any(|watch| reading(watch).is_none())
        {
            return Planned::Unknown;
        }
        let having = |why| Some((needed.iter().find(|watch| reading(watch) == Some(why))?, why));
        let unread = having(Reading::OutOfDate).or_else(|| having(Reading::Unavailable));
        let unread = consumer.zip(unread).map(|(consumer, (watch, why))| {
            let is_unlisted =
                |kind: &AccessKind| !state.is_listed(&WatchName::of(*kind, &consumer.account));
            let (reason, message) = why_not_ready(watch, why);
            Unread {
                reason,
                message,
                kinds: AccessKind::ALL.into_iter().filter(is_unlisted).collect(),
            }
        });
        let mut counted = state.counted.remove(name).unwrap_or_default();
        let changed = counted.changed.replace(BTreeSet::new());
        let observed = |kind, key: &_| state.objects.get(&AccessKind::of(kind, key));
        let (unread_of, clusters) = (unread.as_ref(), &mut counted.clusters);
        for cluster in settings.count(&fleet, name, changed, unread_of, observed, clusters) {
            if clusters.contains_key(&cluster) {
                state.counting.insert(&cluster, name);
            } else {
                state.counting.remove(&cluster, name);
            }
        }
        counted.computed = Some(now);
        let status = settings.status(&fleet, name, unread, &counted.clusters, self.host.now());
        state.counted.insert(name.clone(), counted);
        let Some(mut status) = status else { return nothing };
        // If this process ends before Secrets that are not asked for any more, the next one must look for them.
        if object.has_secrets
            && settings.consumers.argo_cd(&name.namespace).is_none()
            && !state.have_secrets_ended(&settings, &name.namespace)
        {
            status.observed_generation = object.status.observed_generation;
        }
        if status == object.status {
            return nothing;
        }
        let action = Action::PatchStatus(object.version.clone(), patch(&status));
        Planned::Write(action, Some(Vec::new()))
    }
}

/// The watches on what a consumer gets, and on what that depends on.
fn awaited(settings: &AccessSettings, consumer: &Consumer) -> Vec<WatchName> {
    let namespace = consumer.namespace();
    let permissions = WatchName::of(settings.permission_kind(), &consumer.account);
    let mut watches = vec![WatchName::Accounts, permissions];
    if consumer.spec.multi_kueue.is_some() {
        watches.extend(WatchName::KUEUE);
    }
    if consumer.spec.argo_cd.is_some() {
        watches.push(WatchName::Secrets(namespace.clone()));
        // Of two objects that ask for cluster Secrets, one has them.
        watches.extend(settings.consumers.argo_cd(namespace).map(|owner| {
            WatchName::Profiles(namespace.clone(), settings.provider_of(owner).to_owned())
        }));
    }
    watches
}

/// The reason and the message of the condition Ready while a watch on this kind cannot read it.
fn why_not_ready(watch: &WatchName, why: Reading) -> (&'static str, String) {
    let ApiKind { group, version, kind, plural } = watch.api();
    match watch {
        _ if why == Reading::OutOfDate => {
            ("Unknown", format!("{kind}s cannot be read: see the log of the controller."))
        }
        WatchName::Secrets(_) => (
            "Unavailable",
            "The Secrets of this namespace cannot be read: does consumerAccess.argoCDNamespaces of the chart list it?"
                .to_owned(),
        ),
        _ => {
            let message = format!(
                "{kind}s cannot be read: does the hub serve {version} of the CRD {plural}.{group}?"
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
