//! The watches. All ManagedServiceAccounts and all objects of Kueue are watched from the start, to see also those of other
//! owners and what has to end. The others follow the ClusterAccesses:
//!
//! - the ManifestWorks and ClusterPermissions with the name of each account's permissions, while a consumer uses the
//!   account, or it exists;
//! - the cluster Secrets and the ClusterProfiles in each namespace with cluster Secrets of Argo CD;
//! - the decisions of each Placement that a ClusterAccess refers to: those of Open Cluster Management, and those of SIG
//!   Multicluster in the versions that the hub serves. What cannot be read is unknown: what ClusterAccesses have given
//!   stays, and nothing is created.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hub_api::cluster_access::{CLUSTER_ACCESSES, ClusterAccess};
use hub_api::cluster_profile::ProfileVersion;
use hub_api::managed_cluster_addon::ManagedClusterAddOn;
use hub_api::names::{AccountKey, AccountName, ClusterName, Namespace, ProfileKey, is_dns_label};
use hub_core::access::is_ours;
use hub_core::consumer_access::{
    AccessKey, AccessKind, AccessName, CLUSTER_SECRET, DecisionKind, ObservedObject, PlacementName,
    PublishedCluster, cluster_in_secret, cluster_of_secret, permissions_name,
};
use hub_core::known::Known;
use hub_core::profile::ObservedProfile;
use hub_runtime::host::{HeldWatch, Watches};
use hub_runtime::watch::{Each, ObjectKey, Sink, Unreadable, Watch};
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use tokio::time::sleep;

use crate::state::WatchName;
use crate::store::Store;

/// The name of the addon that creates accounts on clusters.
const MANAGED_SERVICE_ACCOUNT: &str = "managed-serviceaccount";

/// How long a cluster that no PlacementDecision has may be on its way between two.
const LEAVING: Duration = Duration::from_secs(5);
/// How much longer if the hub no longer serves their version: another one is asked for every two minutes at least.
const REPLACED: Duration = Duration::from_secs(150);

/// A key of each of Kueue's kinds.
pub(crate) fn kueue() -> [AccessKey; 2] {
    [AccessKey::MultiKueueCluster("".into()), AccessKey::MultiKueueConfig(String::new())]
}

/// The API of the kind of an object.
pub(crate) fn api_resource(key: &AccessKey) -> ApiResource {
    let (group, version, kind) = key.gvk();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), key.resource())
}

/// Starts the watches that do not depend on ClusterAccesses, and that on these.
pub(crate) fn watch(store: &Arc<Store>, watches: &Watches) {
    let account = AccessKind::Account.of(&AccountKey { cluster: "".into(), account: "".into() });
    for example in kueue().into_iter().chain([account]) {
        let watch = of_kind(&example, None).optional().expected();
        watches.watch(watch, object_sink(store, example));
    }
    if store.settings().account_namespace.is_none() {
        let addons = Watch::<ManagedClusterAddOn>::all("managedclusteraddons")
            .named(MANAGED_SERVICE_ACCOUNT);
        watches.watch(addons.optional(), AgentSink(Arc::clone(store)));
    }
    watches.watch(Watch::<ClusterAccess>::all(CLUSTER_ACCESSES), access_sink(store));
}

/// Watches the permissions of an account.
pub(crate) fn watch_permissions(
    store: &Arc<Store>,
    watches: &Watches,
    kind: AccessKind,
    account: &AccountName,
) -> HeldWatch {
    let example = kind.of(&AccountKey { cluster: "".into(), account: account.clone() });
    let watch = of_kind(&example, None).named(permissions_name(account)).late();
    let watch = if store.needs(&WatchName::of(&example)) { watch.expected() } else { watch };
    watches.watch_while_held(watch, object_sink(store, example))
}

/// Watches the cluster Secrets in a namespace.
pub(crate) fn watch_secrets(
    store: &Arc<Store>,
    watches: &Watches,
    namespace: &Namespace,
) -> HeldWatch {
    let example =
        AccessKey::ClusterSecret(ProfileKey { namespace: namespace.clone(), cluster: "".into() });
    let watch = of_kind(&example, Some(namespace));
    let labels = format!("{}={}", CLUSTER_SECRET.0, CLUSTER_SECRET.1);
    watches.watch_while_held(watch.labelled(labels).late(), object_sink(store, example))
}

/// Watches the profiles in a namespace, in v1alpha1, for what they publish by an access provider.
pub(crate) fn watch_profiles(
    store: &Arc<Store>,
    watches: &Watches,
    namespace: &Namespace,
    provider: &str,
) -> HeldWatch {
    let kind = ProfileVersion::V1alpha1.resource();
    let watch = Watch::dynamic("clusterprofiles", &kind, Some(namespace.as_str()));
    watches.watch_while_held(watch.late().expected(), published_sink(store, namespace, provider))
}

/// Watches the decisions of a Placement in one kind, by the label with its name.
pub(crate) fn watch_decisions(
    store: &Arc<Store>,
    watches: &Watches,
    kind: DecisionKind,
    placement: &PlacementName,
) -> HeldWatch {
    let resource = match kind {
        DecisionKind::Ocm => "placementdecisions",
        DecisionKind::SigV1alpha1 => "placementdecisions (SIG v1alpha1)",
        DecisionKind::SigV1alpha2 => "placementdecisions (SIG v1alpha2)",
    };
    let (group, version, name) = kind.gvk();
    let gvk = GroupVersionKind::gvk(group, version, name);
    let api = ApiResource::from_gvk_with_plural(&gvk, "placementdecisions");
    let (namespace, name) = placement;
    let watch = Watch::dynamic(resource, &api, Some(namespace.as_str()));
    let sink = DecisionSink::new(store, kind, placement);
    watches.watch_while_held(watch.labelled(kind.selector(name)).late(), sink)
}

fn of_kind(example: &AccessKey, namespace: Option<&Namespace>) -> Watch<DynamicObject> {
    Watch::dynamic(example.resource(), &api_resource(example), namespace.map(Namespace::as_str))
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
            store.mark(&name);
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

/// An object as a watch shows it, or that it does not exist any more.
type Shown = Option<Result<DynamicObject, Unreadable>>;

/// Receives the objects of one watch, and what is known of them.
pub(crate) struct WatchSink<T> {
    store: Arc<Store>,
    name: WatchName,
    /// What its objects have in common.
    of: T,
    set: fn(&Arc<Store>, &T, &ObjectKey, Shown),
}

impl<T: Send + 'static> Sink<DynamicObject> for WatchSink<T> {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        (self.set)(&self.store, &self.of, key, Some(object));
    }

    fn delete(&mut self, key: &ObjectKey) {
        (self.set)(&self.store, &self.of, key, None);
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

    fn not_served(&mut self) -> bool {
        self.store.not_served(&self.name)
    }
}

/// Receives the objects of the watch that shows this one.
pub(crate) fn object_sink(store: &Arc<Store>, example: AccessKey) -> WatchSink<AccessKey> {
    WatchSink {
        store: Arc::clone(store),
        name: WatchName::of(&example),
        of: example,
        set: |store, example, key, object| {
            if let AccessKey::ClusterSecret(ProfileKey { namespace, .. }) = example {
                match &object {
                    Some(Ok(secret)) => {
                        let cluster = cluster_in_secret(&secret.data["data"]);
                        store.set_rival(namespace, &key.name, cluster);
                    }
                    Some(Err(_)) => {}
                    None => store.set_rival(namespace, &key.name, None),
                }
            }
            if let Some(key) = key_like(example, key) {
                store.set(&key, object.map(|object| observed(&key, object)));
            }
        },
    }
}

/// The key of an object of the same watch; `None` for a Secret whose name we do not use.
fn key_like(example: &AccessKey, key: &ObjectKey) -> Option<AccessKey> {
    Some(match example {
        AccessKey::Access(AccessKind::Account, _) => AccessKind::Account.of(&AccountKey::from(key)),
        // Permissions have another name than their account.
        AccessKey::Access(kind, AccountKey { account, .. }) => {
            kind.of(&AccountKey { account: account.clone(), ..AccountKey::from(key) })
        }
        AccessKey::MultiKueueCluster(_) => {
            AccessKey::MultiKueueCluster(ClusterName::new(key.name.clone()))
        }
        AccessKey::MultiKueueConfig(_) => AccessKey::MultiKueueConfig(key.name.to_string()),
        AccessKey::ClusterSecret(_) => AccessKey::ClusterSecret(ProfileKey {
            namespace: Namespace::new(key.namespace.clone()),
            cluster: cluster_of_secret(&key.name)?,
        }),
        AccessKey::ClusterAccess(_) => AccessKey::ClusterAccess(AccessName::from(key)),
    })
}

/// Receives the profiles in a namespace, for its cluster Secrets: what they publish by this access provider.
pub(crate) fn published_sink(
    store: &Arc<Store>,
    namespace: &Namespace,
    provider: &str,
) -> WatchSink<String> {
    WatchSink {
        store: Arc::clone(store),
        name: WatchName::Profiles(namespace.clone(), provider.to_owned()),
        of: provider.to_owned(),
        set: |store, provider, key, profile| {
            let published = match profile {
                Some(Ok(profile)) => {
                    let observed = ObservedProfile::read(&profile.metadata, &profile.data);
                    let is_ours = is_ours(&observed, &store.manager);
                    is_ours.then(|| PublishedCluster::read(&observed, provider)).flatten()
                }
                // The last readable state of a profile stays in use.
                Some(Err(_)) => return,
                None => None,
            };
            store.set_published(&ProfileKey::from(key), published.as_ref());
        },
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
        let (slice, now) = ((self.kind, &*key.name), self.store.host.now());
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
        let (kind, since) = (self.kind, self.store.host.now() + wait);
        if self
            .store
            .change(|consumers| consumers.set_decisions(&self.placement, kind, listed, since))
        {
            self.store.decided(&self.placement, None);
            self.settle_later(since, wait);
        }
    }

    /// Ends the doubt that counts since then, after this and [`LEAVING`], and queues what that affects.
    fn settle_later(&self, since: Timestamp, wait: Duration) {
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
        let (kind, is_failing, now) = (self.kind, since.is_some(), self.store.host.now());
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
