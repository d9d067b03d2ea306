//! The watches. All ManagedServiceAccounts and all objects of Kueue are watched from the start, to see also those of other
//! owners and what has to end. The others follow the ClusterAccesses:
//!
//! - the ManifestWorks and ClusterPermissions with the name of each account's permissions, while a consumer uses the
//!   account, or it exists;
//! - the cluster Secrets and the ClusterProfiles in each namespace with cluster Secrets of Argo CD;
//! - the decisions of each Placement that a ClusterAccess refers to: those of Open Cluster Management, and those of SIG
//!   Multicluster in the versions that the hub serves. What cannot be read is unknown: what ClusterAccesses have given
//!   stays, and nothing is created.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hub_api::cluster_access::{CLUSTER_ACCESSES, ClusterAccess};
use hub_api::managed_cluster_addon::ManagedClusterAddOn;
use hub_api::names::{ClusterName, Namespace, ProfileKey, is_dns_label};
use hub_core::access::is_ours;
use hub_core::consumer_access::{
    AccessKey, AccessName, CLUSTER_SECRET, DecisionKind, ObservedObject, PlacementName,
    PublishedCluster, cluster_in_secret, permissions_name,
};
use hub_core::known::Known;
use hub_core::profile::ObservedProfile;
use hub_runtime::host::{HeldWatch, Watches};
use hub_runtime::watch::{Each, ObjectKey, Sink, Unreadable, Watch};
use kube::api::DynamicObject;
use serde_json::json;
use tokio::task::yield_now;
use tokio::time::{self, sleep};

use crate::store::Store;
use crate::watch_name::{Scope, WatchName};

/// The name of the addon that creates accounts on clusters.
const MANAGED_SERVICE_ACCOUNT: &str = "managed-serviceaccount";

/// How long a cluster that no PlacementDecision has may be on its way between two.
const LEAVING: Duration = Duration::from_secs(5);
/// How much longer if the hub no longer serves their version: another one is asked for every two minutes at least.
const REPLACED: Duration = Duration::from_secs(150);

/// How long an API server that starts may refuse everything, until it knows the RBAC rules.
const STARTING: Duration = Duration::from_secs(10);

/// Starts the watches that do not depend on ClusterAccesses, that on these, and what follows them.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let always = [WatchName::Accounts].into_iter().chain(WatchName::KUEUE);
    let held = always.map(|name| start(store, watches, &name)).collect();
    if store.settings().account_namespace.is_none() {
        let addons = Watch::<ManagedClusterAddOn>::all("managedclusteraddons")
            .named(MANAGED_SERVICE_ACCOUNT);
        watches.watch(addons.optional(), AgentSink(Arc::clone(store)));
    }
    watches.watch(Watch::<ClusterAccess>::all(CLUSTER_ACCESSES), access_sink(store));
    let followed = follow(Arc::clone(store), watches.clone(), held);
    watches.spawn("the watches of consumer access", followed);
    watches.spawn("the queue of consumer access", Arc::clone(store).queue_backlog());
}

/// Begins and ends the watches that depend on ClusterAccesses, for as long as the process runs; holds the others.
async fn follow(store: Arc<Store>, watches: Watches, _always: Vec<HeldWatch>) {
    let mut held = BTreeMap::<Scope, BTreeMap<WatchName, HeldWatch>>::new();
    loop {
        for scope in store.unfollowed().await {
            let needed = store.needed(&scope);
            let of_scope = held.entry(scope.clone()).or_default();
            // What a watch has shown is forgotten with it.
            of_scope.retain(|name, _| needed.contains(name) || !store.end(name));
            for name in needed {
                of_scope.entry(name).or_insert_with_key(|name| start(&store, &watches, name));
            }
            if of_scope.is_empty() {
                held.remove(&scope);
            }
            yield_now().await;
        }
    }
}

fn start(store: &Arc<Store>, watches: &Watches, name: &WatchName) -> HeldWatch {
    let kind = name.api();
    let resource = match name {
        WatchName::Decisions(DecisionKind::SigV1alpha1, _) => "placementdecisions (SIG v1alpha1)",
        WatchName::Decisions(DecisionKind::SigV1alpha2, _) => "placementdecisions (SIG v1alpha2)",
        _ => kind.plural,
    };
    let namespace = match name.scope() {
        Some(Scope::Namespace(namespace)) => Some(namespace),
        Some(Scope::Account(_)) | None => None,
    };
    let namespace = namespace.as_ref().map(Namespace::as_str);
    let watch = Watch::dynamic(resource, &kind.resource(), namespace);
    let watch = match name {
        WatchName::Accounts | WatchName::MultiKueueClusters | WatchName::MultiKueueConfigs => {
            watch.optional().expected()
        }
        WatchName::Permissions(_, account) => {
            let watch = watch.named(permissions_name(account)).late();
            if store.needs(name) { watch.expected() } else { watch }
        }
        WatchName::Secrets(_) => {
            watch.labelled(format!("{}={}", CLUSTER_SECRET.0, CLUSTER_SECRET.1)).late()
        }
        WatchName::Profiles(..) => watch.late().expected(),
        WatchName::Decisions(kind, placement) => {
            let sink = DecisionSink::new(store, *kind, placement);
            return watches
                .watch_while_held(watch.labelled(kind.selector(&placement.1)).late(), sink);
        }
    };
    watches.watch_while_held(watch, WatchSink { store: Arc::clone(store), name: name.clone() })
}

/// Reads an object: the data of a Secret takes the place of a spec.
pub(crate) fn observed(
    key: &AccessKey,
    object: Result<DynamicObject, Unreadable>,
) -> ObservedObject {
    match object {
        Ok(object) if matches!(key, AccessKey::ClusterSecret(_)) => {
            ObservedObject::read(&object.metadata, Some(&json!({ "spec": object.data["data"] })))
        }
        Ok(object) => ObservedObject::read(&object.metadata, Some(&object.data)),
        // No write depends on the status, so the spec suffices.
        Err(unreadable) => {
            let spec = unreadable.spec.map(|spec| json!({ "spec": spec }));
            ObservedObject::read(&unreadable.metadata, spec.as_ref())
        }
    }
}

/// Receives the ClusterAccesses.
fn access_sink(store: &Arc<Store>) -> Each<Arc<Store>, ClusterAccess> {
    Each {
        store: Arc::clone(store),
        set: |store, key, object| {
            let name = AccessName::from(key);
            let is_gone = object.is_none();
            store.change_objects(|consumers| match object {
                Some(object) => consumers.apply(&name, object),
                None => consumers.remove(&name),
            });
            if is_gone {
                store.forget_status(&name);
            }
            store.queue_status(&name);
        },
        set_read: |store, is_read| store.set_read(is_read),
    }
}

/// Receives the addons whose agents create the accounts on the clusters.
struct AgentSink(Arc<Store>);

impl Sink<ManagedClusterAddOn> for AgentSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<ManagedClusterAddOn, Unreadable>) {
        // An addon that cannot be read changes nothing.
        let Ok(addon) = object else { return };
        let namespace = addon.agent_namespace().filter(|namespace| is_dns_label(namespace));
        let namespace = namespace.map(Namespace::from);
        self.0.set_agent_namespace(&ClusterName::new(key.namespace.clone()), namespace.as_ref());
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.set_agent_namespace(&ClusterName::new(key.namespace.clone()), None);
    }

    fn set_read(&mut self, is_read: bool) {
        self.0.set_agents_read(is_read);
    }

    fn not_served(&mut self) -> bool {
        self.0.set_agents_read(true);
        true
    }
}

/// Receives the objects of one watch, and what is known of them.
pub(crate) struct WatchSink {
    pub(crate) store: Arc<Store>,
    pub(crate) name: WatchName,
}

impl WatchSink {
    /// Records an object as the watch shows it, or that it does not exist any more.
    fn set(&self, key: &ObjectKey, object: Option<Result<DynamicObject, Unreadable>>) {
        let store = &self.store;
        // The last readable state of a profile stays in use, and so does the cluster of a Secret.
        match (&self.name, &object) {
            (WatchName::Profiles(..) | WatchName::Secrets(_), Some(Err(_))) => {}
            (WatchName::Profiles(_, provider), profile) => {
                let published = profile.as_ref().and_then(|profile| {
                    let profile = profile.as_ref().ok()?;
                    let observed = ObservedProfile::read(&profile.metadata, &profile.data);
                    let is_ours = is_ours(&observed, &store.manager);
                    is_ours.then(|| PublishedCluster::read(&observed, provider)).flatten()
                });
                store.set_published(&ProfileKey::from(key), published.as_ref());
            }
            (WatchName::Secrets(namespace), secret) => {
                let cluster = secret
                    .as_ref()
                    .and_then(|secret| cluster_in_secret(&secret.as_ref().ok()?.data["data"]));
                store.set_rival(namespace, &key.name, cluster);
            }
            _ => {}
        }
        if let Some(key) = self.name.key(key) {
            store.set(&key, object.map(|object| observed(&key, object)));
        }
    }
}

impl Sink<DynamicObject> for WatchSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        self.set(key, Some(object));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.set(key, None);
    }

    fn listed(&mut self) {
        self.store.listed(&self.name);
    }

    fn unread(&mut self) {
        self.store.unread(&self.name);
    }

    fn refused(&mut self) {
        self.store.refused(&self.name);
    }

    fn failing(&mut self, since: Option<Duration>) {
        if since.is_some_and(|since| since >= STARTING) {
            self.store.still_failing(&self.name);
        }
    }

    fn not_served(&mut self) -> bool {
        self.store.not_served(&self.name)
    }
}

/// Receives the decisions of a Placement.
pub(crate) struct DecisionSink {
    store: Arc<Store>,
    kind: DecisionKind,
    placement: PlacementName,
    is_listed: bool,
}

impl DecisionSink {
    pub(crate) fn new(store: &Arc<Store>, kind: DecisionKind, placement: &PlacementName) -> Self {
        Self { store: Arc::clone(store), kind, placement: placement.clone(), is_listed: false }
    }

    fn set(&self, key: &ObjectKey, clusters: Option<BTreeSet<ClusterName>>) {
        let (slice, now) = ((self.kind, &*key.name), now());
        let changed = self
            .store
            .change(|consumers| consumers.set_decision(&self.placement, slice, clusters, now));
        if changed.is_some() {
            self.store.decided(&self.placement, changed.as_ref());
            self.settle_later(now, Duration::ZERO);
        }
    }

    fn set_listed(&mut self, listed: Known<()>) {
        let was_listed = std::mem::replace(&mut self.is_listed, listed.present().is_some());
        let wait = if was_listed && listed == Known::Absent { REPLACED } else { Duration::ZERO };
        let (kind, since) = (self.kind, now() + wait);
        if self
            .store
            .change(|consumers| consumers.set_decisions(&self.placement, kind, listed, since))
        {
            self.store.decided(&self.placement, None);
            self.settle_later(since, wait);
        }
    }

    /// Ends the doubt that counts since then, after this and [`LEAVING`], and queues what that affects.
    fn settle_later(&self, since: Instant, wait: Duration) {
        let (store, placement) = (Arc::clone(&self.store), self.placement.clone());
        self.store.host.tasks.spawn_once("the end of decisions", async move {
            sleep(wait + LEAVING).await;
            let lost = store.change(|consumers| consumers.settle_decisions(&placement, since));
            if lost.as_ref().is_none_or(|lost| !lost.is_empty()) {
                store.decided(&placement, lost.as_ref());
            }
        });
    }
}

/// The time of a clock that never steps back.
pub(crate) fn now() -> Instant {
    time::Instant::now().into_std()
}

impl Sink<DynamicObject> for DecisionSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        // The last readable decisions stay in use.
        let Ok(object) = object else { return };
        self.set(key, Some(self.kind.clusters(&key.namespace, &object.data)));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.set(key, None);
    }

    fn set_read(&mut self, is_read: bool) {
        self.set_listed(if is_read { Known::Present(()) } else { Known::Unknown });
    }

    fn failing(&mut self, since: Option<Duration>) {
        let (kind, is_failing, now) = (self.kind, since.is_some(), now());
        if self
            .store
            .change(|consumers| consumers.set_failing(&self.placement, kind, is_failing, now))
        {
            self.settle_later(now, Duration::ZERO);
        }
    }

    // Once they are listed, a watch may continue without another list.
    fn refused(&mut self) {
        if !self.is_listed {
            self.set_listed(Known::Unknown);
        }
    }

    fn not_served(&mut self) -> bool {
        self.set_listed(Known::Absent);
        self.kind != DecisionKind::Ocm
    }
}
