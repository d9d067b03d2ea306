//! One writer for all ClusterProfiles, whoever owns their parts.
//!
//! Watches ClusterProfile and keeps of each what plans read. For every key that is queued it asks each owner
//! of this process for its share, plans the one difference ([`hub_core::profile::plan`]) and writes it, so
//! that two controllers in one process cost a new profile no more writes than one. What a write returns goes
//! straight into the cache: no plan is made twice because an event is late.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hub_api::cluster_profile::ClusterProfile;
use hub_api::names::{ClusterName, ManagerName, Namespace, ProfileKey};
use hub_core::concerned::KnownProfiles;
use hub_core::member_id::{FIELD_MANAGER, MemberIds};
use hub_core::note::{Note, Reason, Subject};
use hub_core::priority::Priority;
use hub_core::profile::{ObservedProfile, Presence, ProfileAction, Share, plan};
use hub_core::version::Version;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams, TypeMeta};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::controller::Controller;
use crate::error::Category;
use crate::host::{Host, Watches};
use crate::queue::Outcome;
use crate::watch::{ObjectKey, OwnWrites, Sink, Unreadable, Watch, is_newer};
use crate::work::Work;
use crate::write::{Request, WriteError, delete_exactly};

/// The plural of the kind, which names this loop in metrics, too.
const RESOURCE: &str = "clusterprofiles";
/// Keys that are worked on at the same time. Each is one request in flight and so one connection; the API
/// server's own fairness gives a client some hundreds.
const WORKERS: usize = 16;
/// The writes that a key can need one after the other: create or repair, then status; and once more where
/// somebody else was faster.
const MAX_ROUNDS: usize = 4;
/// How long a new profile of another process is left alone that has no status yet.
const PROJECTION_GRACE: Duration = Duration::from_secs(1);

/// The cache, the queue and the writer of ClusterProfiles.
pub struct Profiles {
    host: Arc<Host>,
    manager: ManagerName,
    owners: OnceLock<Vec<Weak<dyn Controller>>>,
    /// Taken before the cache where both are needed.
    writes: Mutex<OwnWrites<ProfileKey>>,
    cache: Mutex<Cache>,
    member_ids: Mutex<MemberIds>,
    queue: Arc<Work<ProfileKey>>,
}

type Cache = BTreeMap<Namespace, BTreeMap<ClusterName, Known>>;

struct Known {
    observed: ObservedProfile,
    /// When we first saw an object of this uid.
    since: Instant,
}

impl Profiles {
    /// An empty cache, that nothing fills yet.
    pub(crate) fn new(host: Arc<Host>, manager: ManagerName) -> Arc<Self> {
        host.metrics.declare_written(RESOURCE);
        let queue = Work::new(&host, RESOURCE);
        let (owners, writes, cache) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Arc::new(Self { host, manager, owners, writes, cache, member_ids: Mutex::default(), queue })
    }

    /// Starts the watch, for those of these controllers that own a part of profiles. A second call changes nothing.
    pub(crate) fn watch(self: &Arc<Self>, controllers: &[Arc<dyn Controller>]) {
        let owners = controllers.iter().filter(|controller| controller.owner().is_some());
        let owners: Vec<_> = owners.map(Arc::downgrade).collect();
        if !owners.is_empty() && self.owners.set(owners).is_ok() {
            let watches = Watches::new(&self.host, RESOURCE);
            let served = watches.served_version();
            let watch = Watch::<DynamicObject>::dynamic(RESOURCE, served.current().resource());
            watches.watch(watch.served_in(served), ProfileSink(Arc::clone(self)));
        }
    }

    /// Works on the queue until `stop`; then returns when what is in flight is done.
    pub(crate) async fn work(self: &Arc<Self>, stop: CancellationToken) {
        let this = Arc::clone(self);
        let reconcile = move |key| {
            let this = Arc::clone(&this);
            async move { this.reconcile(&key).await }
        };
        self.queue.run(WORKERS, stop, reconcile).await;
    }

    /// Queues a profile.
    pub fn enqueue(&self, key: ProfileKey, priority: Priority) {
        self.queue.add_with(key, priority);
    }

    /// Whether a profile exists, as far as is known.
    pub fn exists(&self, key: &ProfileKey) -> bool {
        self.cache().get(&key.namespace).is_some_and(|profiles| profiles.contains_key(&key.cluster))
    }

    /// Visits every profile that is known.
    pub fn for_each(&self, mut visit: impl FnMut(&ProfileKey, &ObservedProfile)) {
        for (namespace, profiles) in self.cache().iter() {
            for (cluster, known) in profiles {
                let key = ProfileKey { namespace: namespace.clone(), cluster: cluster.clone() };
                visit(&key, &known.observed);
            }
        }
    }

    /// Queues every known profile that satisfies a condition, as an update.
    pub fn enqueue_where(&self, mut concerned: impl FnMut(&ObservedProfile) -> bool) {
        let mut keys = Vec::new();
        self.for_each(|key, observed| {
            if concerned(observed) {
                keys.push(key.clone());
            }
        });
        self.queue.add_all(keys);
    }

    /// Forgets that a namespace took nothing new: it may be another one by now.
    pub fn resume(&self, namespace: &Namespace) {
        self.queue.resume(namespace);
    }

    /// Brings one profile to its end, one write after the other.
    async fn reconcile(&self, key: &ProfileKey) -> Outcome {
        let mut before = None;
        for _ in 0..MAX_ROUNDS {
            let observed = self.observed(key);
            let shares = self.shares(key, observed.as_ref());
            if let Some(wait) = self.wait_for_projection(key, observed.as_ref(), &shares) {
                return Outcome::RetryAfter(wait);
            }
            let projects = shares.iter().any(|share| share.presence.is_wanted_or_kept());
            let mut plan = plan(key, &self.manager, observed.as_ref(), shares);
            let uid = observed.as_ref().map(|observed| observed.uid.as_str());
            // What is told of a write that failed stays told until there is none left to do: to try once more
            // is not the end of it.
            if plan.action == ProfileAction::Nothing {
                if projects
                    && observed.as_ref().is_some_and(|observed| observed.manager == self.manager.as_str())
                {
                    plan.notes.extend(self.member_ids.lock().note(key));
                }
                self.host.reporter.report(&Subject::Profile(key.clone()), uid, plan.notes);
                return Outcome::Done;
            }
            // Where somebody else has written meanwhile, the same patch may well be needed again.
            let version = observed.as_ref().map(|observed| observed.resource_version.clone());
            if before.is_some_and(|(action, left)| left == version && same_patch(&action, &plan.action)) {
                return self.failed(key, uid, &WriteError::ineffective(RESOURCE, key.to_string()));
            }
            let creates = matches!(plan.action, ProfileAction::Create(_));
            if let Some(pause) = self.queue.pause(&key.namespace, creates) {
                return Outcome::RetryAfter(pause);
            }
            match self.execute(key, &plan.action).await {
                Ok(left) => {
                    self.queue.written();
                    before = Some((plan.action, left));
                }
                Err(error) => return self.failed(key, uid, &error),
            }
        }
        Outcome::Retry
    }

    fn shares(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Vec<Share> {
        self.owners().filter_map(|controller| Some(controller.owner()?.share(key, observed))).collect()
    }

    /// Queues a profile that has changed or is gone.
    fn changed(&self, key: ProfileKey) {
        let exists = self.exists(&key);
        let priorities =
            self.owners().filter_map(|controller| Some(controller.owner()?.priority(&key, exists)));
        let priority = priorities.min().unwrap_or(Priority::Update);
        self.enqueue(key, priority);
    }

    fn owners(&self) -> impl Iterator<Item = Arc<dyn Controller>> {
        self.owners.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    /// How long to leave a profile alone that another process has made and not yet given a status: it is
    /// about to write one, and two writers at the same moment would only be in each other's way.
    fn wait_for_projection(
        &self,
        key: &ProfileKey,
        observed: Option<&ObservedProfile>,
        shares: &[Share],
    ) -> Option<Duration> {
        let another_projects = shares.iter().all(|share| share.presence == Presence::Undecided);
        if !another_projects || observed?.has_status() {
            return None;
        }
        let since = self.cache().get(&key.namespace)?.get(&key.cluster)?.since;
        PROJECTION_GRACE.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
    }

    /// Sends a write, and answers the resourceVersion that it left.
    async fn execute(&self, key: &ProfileKey, action: &ProfileAction) -> Result<Option<String>, WriteError> {
        let resource = self.host.served.current().resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.host.client.clone(), key.namespace.as_str(), &resource);
        let name = key.cluster.as_str();
        let full_name = key.to_string();
        let request = |verb| Request { verb, resource: RESOURCE, name: &full_name };
        let field_manager = Some(FIELD_MANAGER.to_owned());
        let writer = &self.host.writer;
        let params = PatchParams { field_manager: field_manager.clone(), ..PatchParams::default() };
        let written = match action {
            ProfileAction::Nothing => return Ok(None),
            ProfileAction::Create(object) => {
                let object = without_status(object, &resource);
                let params = PostParams { field_manager, ..PostParams::default() };
                match writer.send(request("create"), api.create(&params, &object)).await {
                    Ok(created) => {
                        info!(profile = %key, "created");
                        created
                    }
                    // Ours from a try whose answer was lost, or somebody else's that no event has shown yet:
                    // the next plan knows what to do with it.
                    Err(error) if error.category == Category::AlreadyExists => {
                        writer.send(request("get"), api.get(name)).await?
                    }
                    Err(error) => return Err(error),
                }
            }
            ProfileAction::PatchObject(version, patch) => {
                debug!(profile = %key, %patch, "repairing");
                let patch = Patch::Merge(under(version, patch));
                let patched = writer.send(request("patch"), api.patch(name, &params, &patch)).await?;
                self.observe_patched(key, &patched);
                return Ok(patched.metadata.resource_version);
            }
            ProfileAction::PatchStatus(version, patch) => {
                debug!(profile = %key, "writing the status");
                let patch = Patch::Merge(under(version, patch));
                let patched =
                    writer.send(request("patch_status"), api.patch_status(name, &params, &patch)).await?;
                self.observe_patched(key, &patched);
                return Ok(patched.metadata.resource_version);
            }
            ProfileAction::Delete(version) => {
                let params = delete_exactly(version);
                writer.send(request("delete"), api.delete(name, &params)).await?;
                info!(profile = %key, "deleted");
                self.mark_deleted(key, &version.uid);
                return Ok(None);
            }
        };
        self.observe(key, &written);
        Ok(written.metadata.resource_version)
    }

    fn failed(&self, key: &ProfileKey, uid: Option<&str>, error: &WriteError) -> Outcome {
        let failed = self.queue.failed(key, Some(&key.namespace), error);
        if failed.gone {
            self.forget(key, uid);
        }
        if failed.refused {
            let note = Note::new(Reason::WriteRefused, error.to_string());
            self.host.reporter.report(&Subject::Profile(key.clone()), uid, vec![note]);
        }
        failed.outcome
    }

    fn observed(&self, key: &ProfileKey) -> Option<ObservedProfile> {
        self.cache().get(&key.namespace)?.get(&key.cluster).map(|known| known.observed.clone())
    }

    /// Takes in a profile as an event or a list shows it. Returns whether that is news.
    fn show(&self, key: &ProfileKey, observed: ObservedProfile) -> bool {
        let mut writes = self.writes.lock();
        let replaces = writes.shown(key);
        self.take(key, observed, replaces)
    }

    /// Takes in a profile as the response to a request of ours shows it.
    fn observe(&self, key: &ProfileKey, object: &DynamicObject) {
        let mut writes = self.writes.lock();
        if self.take(key, ObservedProfile::read(&object.metadata, &object.data), false) {
            writes.wrote(key);
        }
    }

    /// Puts a profile into the cache and returns whether it was not there. An event that is older than the response to
    /// our own write is stale, but not what a list shows that `replaces` what is there.
    fn take(&self, key: &ProfileKey, observed: ObservedProfile, replaces: bool) -> bool {
        let mut cache = self.cache();
        let profiles = cache.entry(key.namespace.clone()).or_default();
        let mut since = Instant::now();
        if let Some(known) = profiles.get(&key.cluster)
            && known.observed.uid == observed.uid
        {
            let is_news = if replaces {
                known.observed != observed
            } else {
                is_newer(&observed.resource_version, &known.observed.resource_version)
            };
            if !is_news {
                return false;
            }
            since = known.since;
        }
        profiles.insert(key.cluster.clone(), Known { observed, since });
        true
    }

    /// Takes in the answer to a patch, unless an event has shown the object's end meanwhile: no other would ever
    /// take it out of the cache again.
    fn observe_patched(&self, key: &ProfileKey, object: &DynamicObject) {
        let observed = ObservedProfile::read(&object.metadata, &object.data);
        let mut writes = self.writes.lock();
        let mut cache = self.cache();
        let known = cache.get_mut(&key.namespace).and_then(|profiles| profiles.get_mut(&key.cluster));
        if let Some(known) = known
            && known.observed.uid == observed.uid
            && is_newer(&observed.resource_version, &known.observed.resource_version)
        {
            known.observed = observed;
            writes.wrote(key);
        }
    }

    /// Our delete was accepted: whatever is left of the object until it is gone, there is nothing to do to it.
    fn mark_deleted(&self, key: &ProfileKey, uid: &str) {
        let mut writes = self.writes.lock();
        let mut cache = self.cache();
        let profile = cache.get_mut(&key.namespace).and_then(|profiles| profiles.get_mut(&key.cluster));
        if let Some(profile) = profile.filter(|profile| profile.observed.uid == uid) {
            profile.observed.terminating = true;
            writes.wrote(key);
        }
    }

    fn forget(&self, key: &ProfileKey, uid: Option<&str>) {
        let mut cache = self.cache();
        let Some(profiles) = cache.get_mut(&key.namespace) else { return };
        if profiles.get(&key.cluster).is_some_and(|profile| uid.is_none_or(|uid| profile.observed.uid == uid))
        {
            profiles.remove(&key.cluster);
        }
        if profiles.is_empty() {
            cache.remove(&key.namespace);
        }
    }

    /// Takes in the member ID of a profile, which others may have too: then there is something to report of each.
    fn carries(&self, key: &ProfileKey, id: Option<&str>) {
        let concerned = self.member_ids.lock().set(key, id);
        self.queue.add_all(concerned);
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }
}

impl KnownProfiles for Profiles {
    fn namespaces_with(&self, cluster: &ClusterName) -> Vec<Namespace> {
        let cache = self.cache();
        let namespaces = cache.iter().filter(|(_, profiles)| profiles.contains_key(cluster));
        namespaces.map(|(namespace, _)| namespace.clone()).collect()
    }

    fn clusters_in(&self, namespace: &Namespace) -> Vec<ClusterName> {
        self.cache().get(namespace).into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    fn is_pending(&self, key: &ProfileKey) -> bool {
        self.queue.holds(key)
    }
}

struct ProfileSink(Arc<Profiles>);

impl ProfileSink {
    fn gone(&self, key: ProfileKey) {
        self.0.forget(&key, None);
        self.0.carries(&key, None);
        self.0.host.reporter.forget(&Subject::Profile(key.clone()));
        self.0.changed(key);
    }
}

impl Sink<DynamicObject> for ProfileSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        let key = ProfileKey::from(key);
        let observed = match object {
            Ok(object) => ObservedProfile::read(&object.metadata, &object.data),
            Err(Unreadable { metadata, spec, error }) => {
                ObservedProfile::unreadable(&metadata, &spec.unwrap_or_default(), error)
            }
        };
        let member_id = observed.member_id().map(str::to_owned);
        if self.0.show(&key, observed) {
            self.0.changed(key.clone());
        }
        self.0.carries(&key, member_id.as_deref());
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = ProfileKey::from(key);
        let counts = self.0.writes.lock().ended(&key);
        if counts {
            self.gone(key);
        }
    }

    fn listing(&mut self) {
        self.0.writes.lock().begin_list();
    }

    fn listed(&mut self) {
        let gone = self.0.writes.lock().end_list();
        for key in gone {
            self.gone(key);
        }
    }
}

/// A profile as the API takes it to create one; the status subresource ignores a status here.
fn without_status(profile: &ClusterProfile, resource: &ApiResource) -> DynamicObject {
    let types = TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
    DynamicObject {
        types: Some(types),
        metadata: profile.metadata.clone(),
        data: json!({ "spec": profile.spec }),
    }
}

/// A merge patch that applies to this version of the object only.
fn under(version: &Version, patch: &Value) -> Value {
    let mut patch = patch.clone();
    patch["metadata"]["uid"] = json!(version.uid);
    patch["metadata"]["resourceVersion"] = json!(version.resource_version);
    patch
}

/// Whether two actions ask for the same patch, whatever the version: the first had no effect.
fn same_patch(one: &ProfileAction, other: &ProfileAction) -> bool {
    match (one, other) {
        (ProfileAction::PatchObject(_, one), ProfileAction::PatchObject(_, other))
        | (ProfileAction::PatchStatus(_, one), ProfileAction::PatchStatus(_, other)) => one == other,
        _ => false,
    }
}
