//! The single writer of ClusterProfiles, for all owners of their parts.
//!
//! Watches ClusterProfile and caches what plans need. For every queued key it asks each owner in this process what it
//! desires, plans one action ([`hub_core::profile::plan`]) and writes it, so that two controllers in one process need no
//! more writes for a new profile than one. The response to a write goes into the cache, so that no plan uses a state
//! older than our own writes. Controllers that own no part can follow the same watch; without owners, nothing is cached.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use hub_api::cluster_profile::{ClusterProfile, StoredProfile};
use hub_api::names::{ClusterName, ManagerName, Namespace, ProfileKey};
use hub_core::concerned::KnownProfiles;
use hub_core::finding::{Finding, Reason, Subject};
use hub_core::member_id::{FIELD_MANAGER, MemberIds};
use hub_core::priority::Priority;
use hub_core::profile::{Desired, ObservedProfile, Presence, ProfileAction, plan};
use hub_core::status_request::{StatusRequest, status_request};
use hub_core::version::Version;
use kube::api::{ApiResource, DynamicObject, GetParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource as _};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::controller::{Controller, ProfileFollower};
use crate::profile_cache::ProfileCache;
use hub_runtime::host::{Host, Watches};
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::watch::{self, LARGE_PAGE, ObjectKey, OwnWrites, Seen, Sink, Unreadable, Watch};
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::{Request, delete_exactly};

/// The plural of the kind; also the name of this loop in metrics.
const RESOURCE: &str = "clusterprofiles";
/// Number of workers. Each has one request in flight, which needs one connection; API Priority and Fairness allows a
/// client some hundreds.
const WORKERS: usize = 16;
/// The maximum number of writes in a row for a key: create or repair, then status, and once more after a conflict.
const MAX_ROUNDS: usize = 4;
/// How long a new profile of another process without status is left alone.
const PROJECTION_GRACE: Duration = Duration::from_secs(1);

/// The cache, the queue and the writer of ClusterProfiles.
pub struct Profiles {
    host: Arc<Host>,
    reporter: Reporter,
    manager: ManagerName,
    owners: OnceLock<Vec<Weak<dyn Controller>>>,
    /// If both locks are needed, this one is taken before the cache.
    writes: Mutex<OwnWrites<ProfileKey>>,
    cache: Mutex<ProfileCache>,
    member_ids: Mutex<MemberIds>,
    queue: Arc<Work<ProfileKey>>,
}

impl Profiles {
    /// An empty cache; [`Self::watch`] fills it.
    pub(crate) fn new(host: Arc<Host>, manager: ManagerName) -> Arc<Self> {
        host.metrics.declare_written(RESOURCE);
        let (reporter, queue) = (host.reporter(RESOURCE), Work::new(&host, RESOURCE));
        let (owners, writes, cache) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Arc::new(Self { host, reporter, manager, owners, writes, cache, member_ids: Mutex::default(), queue })
    }

    /// Starts the watch, if any of these controllers owns a part of profiles or follows them. A second call changes
    /// nothing.
    pub(crate) fn watch(self: &Arc<Self>, controllers: &[Arc<dyn Controller>]) {
        let owners = controllers.iter().filter(|controller| controller.owner().is_some());
        let owners: Vec<_> = owners.map(Arc::downgrade).collect();
        let followers = controllers.iter().filter(|controller| controller.follower().is_some());
        let followers: Vec<_> = followers.map(Arc::downgrade).collect();
        let cached = (!owners.is_empty()).then(|| Arc::clone(self));
        if (cached.is_some() || !followers.is_empty()) && self.owners.set(owners).is_ok() {
            let watches = Watches::new(&self.host, RESOURCE);
            let watch = Watch::<StoredProfile>::all(RESOURCE);
            // Followers alone need little of an object.
            let watch = if cached.is_some() { watch.with_managed_fields() } else { watch.paged(LARGE_PAGE) };
            watches.watch(watch.served_in(watches.served_version()), ProfileSink { cached, followers });
        }
    }

    /// Processes the queue until `stop`, then returns when all writes in flight have finished.
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

    /// Whether the cache contains a profile.
    pub fn exists(&self, key: &ProfileKey) -> bool {
        self.cache().get(key).is_some()
    }

    /// Visits every cached profile.
    pub fn for_each(&self, mut visit: impl FnMut(&ProfileKey, &ObservedProfile)) {
        for (key, observed) in self.cache().iter() {
            visit(&key, observed);
        }
    }

    /// Queues every cached profile that satisfies a condition, as an update.
    pub fn enqueue_where(&self, mut concerned: impl FnMut(&ObservedProfile) -> bool) {
        let cache = self.cache();
        let keys = cache.iter().filter(|(_, observed)| concerned(observed)).map(|(key, _)| key);
        let keys: Vec<_> = keys.collect();
        drop(cache);
        self.queue.add_all(keys);
    }

    /// Queues the profiles of a cluster, as updates.
    pub fn enqueue_of(&self, cluster: &ClusterName) {
        let keys = self.cache().of_cluster(cluster);
        self.queue.add_all(keys);
    }

    /// Ends the pause of a namespace, since it may have been recreated.
    pub fn resume(&self, namespace: &Namespace) {
        self.queue.resume(namespace);
    }

    /// Reconciles one profile, one write after the other.
    async fn reconcile(&self, key: &ProfileKey) -> Outcome {
        let mut before = None;
        for _ in 0..MAX_ROUNDS {
            let observed = self.observed(key);
            let desired = self.desired(key, observed.as_ref());
            if let Some(wait) = self.wait_for_projection(key, observed.as_ref(), &desired) {
                return Outcome::RetryAfter(wait);
            }
            let projects = desired.iter().any(|desired| desired.presence.is_wanted_or_kept());
            let mut plan = plan(key, &self.manager, observed.as_ref(), desired);
            let uid = observed.as_ref().map(|observed| observed.uid.as_str());
            // A reported failure persists until nothing is left to write: a retry alone does not resolve it.
            let Some(verb) = plan.action.verb() else {
                if projects
                    && observed.as_ref().is_some_and(|observed| observed.manager == self.manager.as_str())
                {
                    plan.findings.extend(self.member_ids.lock().finding(key));
                }
                self.reporter.report(&Subject::Profile(key.clone()), uid, plan.findings);
                return Outcome::Done;
            };
            // After a write by another client, the same patch may be needed again.
            let version = observed.as_ref().map(|observed| observed.resource_version.clone());
            if before.is_some_and(|(action, left)| left == version && same_patch(&action, &plan.action)) {
                return self.failed(key, uid, &WriteError::ineffective(RESOURCE, key.to_string()));
            }
            if let Some(delayed) = self.queue.delays(key, RESOURCE, verb) {
                if let Some(error) = delayed.error {
                    self.report_refused(key, uid, &error);
                }
                return delayed.outcome;
            }
            match self.execute(key, &plan.action).await {
                Ok(left) => {
                    self.queue.written(key, RESOURCE, verb);
                    before = Some((plan.action, left));
                }
                Err(error) => return self.failed(key, uid, &error),
            }
        }
        Outcome::Retry
    }

    fn desired(&self, key: &ProfileKey, observed: Option<&ObservedProfile>) -> Vec<Desired> {
        self.owners().filter_map(|controller| Some(controller.owner()?.desired(key, observed))).collect()
    }

    /// Queues a profile that has changed or been deleted.
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

    /// How long to wait for another process that has created a profile and not yet written its status: two writers at
    /// the same moment would only cause conflicts.
    fn wait_for_projection(
        &self,
        key: &ProfileKey,
        observed: Option<&ObservedProfile>,
        desired: &[Desired],
    ) -> Option<Duration> {
        let another_projects = desired.iter().all(|desired| desired.presence == Presence::Undecided);
        if !another_projects || observed?.has_status() {
            return None;
        }
        let since = self.cache().get(key)?.since;
        PROJECTION_GRACE.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
    }

    /// Sends a write, and returns the resulting resourceVersion.
    async fn execute(&self, key: &ProfileKey, action: &ProfileAction) -> Result<Option<String>, WriteError> {
        let (client, resource) = (&self.host.client, self.host.served.current().resource());
        let (profiles, name) = (profiles_in(&resource, &key.namespace), key.cluster.as_str());
        let full_name = key.to_string();
        let request = |verb| Request { verb, resource: RESOURCE, name: &full_name };
        let field_manager = Some(FIELD_MANAGER.to_owned());
        let writer = &self.host.writer;
        let params = PatchParams { field_manager: field_manager.clone(), ..PatchParams::default() };
        match action {
            ProfileAction::Nothing => Ok(None),
            ProfileAction::Create(object) => {
                let body = without_status(object, &resource).to_string().into_bytes();
                let params = PostParams { field_manager, ..PostParams::default() };
                let creating = send(client, profiles.create(&params, body));
                match self.find(key, request("create"), creating).await {
                    // Created by an earlier attempt whose response was lost, or by another client, and not yet in an
                    // event: the next plan decides.
                    Err(error) if error.category == Category::AlreadyExists => {
                        let getting = send(client, profiles.get(name, &GetParams::default()));
                        match self.find(key, request("get"), getting).await {
                            Err(error) if error.category == Category::NotFound => Ok(None),
                            found => found,
                        }
                    }
                    created => {
                        if created.is_ok() {
                            info!(profile = %key, "created");
                        }
                        created
                    }
                }
            }
            ProfileAction::PatchObject(version, patch) => {
                debug!(profile = %key, %patch, "repairing");
                let patch = Patch::Merge(under(version, patch));
                let patching = send(client, profiles.patch(name, &params, &patch));
                let patched = writer.send(request("patch"), patching).await?;
                self.observe_patched(key, &patched);
                Ok(patched.metadata.resource_version)
            }
            ProfileAction::PatchStatus(version, patch) => {
                debug!(profile = %key, "writing the status");
                let patch = status_request(version, patch);
                let patching = patch_status(client, &resource, key, &params, patch);
                let patched = writer.send(request("patch_status"), patching).await?;
                self.observe_patched(key, &patched);
                Ok(patched.metadata.resource_version)
            }
            ProfileAction::Delete(version) => {
                let params = delete_exactly(version);
                let deleting = profiles.delete(name, &params).map_err(kube::Error::BuildRequest);
                let deleting = async { client.request_status::<StoredProfile>(deleting?).await };
                writer.send(request("delete"), deleting).await?;
                info!(profile = %key, "deleted");
                self.mark_deleted(key, &version.uid);
                Ok(None)
            }
        }
    }

    /// Sends a create or a read, and stores the profile that the response shows. Returns its resourceVersion, or `None` if it
    /// has ended since.
    async fn find(
        &self,
        key: &ProfileKey,
        request: Request<'_>,
        call: impl Future<Output = kube::Result<StoredProfile>>,
    ) -> Result<Option<String>, WriteError> {
        self.writes.lock().sending(key);
        match self.host.writer.send(request, call).await {
            Ok(profile) => Ok(self.observe(key, &profile)),
            Err(error) => {
                self.writes.lock().received(key);
                Err(error)
            }
        }
    }

    fn failed(&self, key: &ProfileKey, uid: Option<&str>, error: &WriteError) -> Outcome {
        let failed = self.queue.failed(key, error);
        if failed.gone {
            self.forget(key, uid);
        }
        if failed.refused {
            self.report_refused(key, uid, error);
        }
        failed.outcome
    }

    fn report_refused(&self, key: &ProfileKey, uid: Option<&str>, error: &WriteError) {
        let finding = Finding::new(Reason::WriteRefused, error.to_string());
        self.reporter.report(&Subject::Profile(key.clone()), uid, vec![finding]);
    }

    fn observed(&self, key: &ProfileKey) -> Option<ObservedProfile> {
        self.cache().get(key).map(|known| known.observed.clone())
    }

    /// Stores a profile from an event or a list. Returns whether it is new.
    fn show(&self, key: &ProfileKey, observed: ObservedProfile) -> bool {
        let (mut writes, mut cache) = (self.writes.lock(), self.cache());
        let known = cache.get(key).map(|known| &known.observed);
        let takes = writes.takes_shown(key, known.map(seen), seen(&observed));
        let is_news = takes && known != Some(&observed);
        if is_news {
            cache.put(key, observed);
        }
        is_news
    }

    /// Stores the response to a create or a read, unless the watch has shown the end of the profile since it was sent.
    /// Returns its resourceVersion otherwise.
    fn observe(&self, key: &ProfileKey, profile: &StoredProfile) -> Option<String> {
        let observed = ObservedProfile::of(profile);
        let (mut writes, mut cache) = (self.writes.lock(), self.cache());
        let known = cache.get(key).map(|known| seen(&known.observed));
        if writes.received(key).has_ended(seen(&observed), known) {
            return None;
        }
        let version = observed.resource_version.clone();
        if writes.takes_found(key, known, seen(&observed)) {
            cache.put(key, observed);
        }
        Some(version)
    }

    /// Stores the response to a patch.
    fn observe_patched(&self, key: &ProfileKey, profile: &StoredProfile) {
        let observed = ObservedProfile::of(profile);
        let (mut writes, mut cache) = (self.writes.lock(), self.cache());
        let known = cache.get(key).map(|known| seen(&known.observed));
        if writes.takes_patched(key, known, seen(&observed)) {
            cache.put(key, observed);
        }
    }

    /// The API server accepted our delete: until the object is gone, there is nothing more to do.
    fn mark_deleted(&self, key: &ProfileKey, uid: &str) {
        let (mut writes, mut cache) = (self.writes.lock(), self.cache());
        let Some(mut observed) = cache.get(key).map(|known| known.observed.clone()) else { return };
        if writes.takes_deleted(key, Some(seen(&observed)), uid) {
            observed.terminating = true;
            cache.put(key, observed);
        }
    }

    /// Whether the deletion that the watch shows applies.
    fn ends(&self, key: &ProfileKey) -> bool {
        let (mut writes, cache) = (self.writes.lock(), self.cache());
        writes.ended(key, cache.get(key).map(|known| seen(&known.observed)))
    }

    /// A profile does not exist any more.
    fn gone(&self, key: ProfileKey) {
        self.forget(&key, None);
        self.carries(&key, None);
        self.reporter.forget(&Subject::Profile(key.clone()));
        self.changed(key);
    }

    fn forget(&self, key: &ProfileKey, uid: Option<&str>) {
        let mut cache = self.cache();
        if cache.get(key).is_some_and(|known| uid.is_none_or(|uid| known.observed.uid == uid)) {
            cache.remove(key);
        }
    }

    /// Records the member ID of a profile; if other profiles have the same ID, each of them has a finding.
    fn carries(&self, key: &ProfileKey, id: Option<&str>) {
        let concerned = self.member_ids.lock().set(key, id);
        self.queue.add_all(concerned);
    }

    fn cache(&self) -> MutexGuard<'_, ProfileCache> {
        self.cache.lock()
    }
}

impl KnownProfiles for Profiles {
    fn namespaces_with(&self, cluster: &ClusterName) -> Vec<Namespace> {
        self.cache().namespaces_with(cluster).cloned().collect()
    }

    fn clusters_in(&self, namespace: &Namespace) -> Vec<ClusterName> {
        self.cache().names_in(namespace).cloned().collect()
    }

    fn is_pending(&self, key: &ProfileKey) -> bool {
        self.queue.holds(key)
    }
}

fn seen(observed: &ObservedProfile) -> Seen<'_> {
    Seen { uid: &observed.uid, version: &observed.resource_version }
}

/// Passes on what the watch shows: to the cache, if there are owners, and to the followers.
struct ProfileSink {
    cached: Option<Arc<Profiles>>,
    followers: Vec<Weak<dyn Controller>>,
}

impl ProfileSink {
    fn follow(&self, pass_on: impl Fn(&dyn ProfileFollower)) {
        for controller in self.followers.iter().filter_map(Weak::upgrade) {
            controller.follower().into_iter().for_each(&pass_on);
        }
    }
}

impl Sink<StoredProfile> for ProfileSink {
    fn apply(&mut self, key: &ObjectKey, object: Result<StoredProfile, Unreadable>) {
        let key = ProfileKey::from(key);
        let (metadata, spec) = match &object {
            Ok(profile) => (&profile.metadata, Some(&profile.spec)),
            Err(unreadable) => (&*unreadable.metadata, unreadable.spec.as_ref()),
        };
        let manager = spec.and_then(|spec| spec["clusterManager"]["name"].as_str());
        self.follow(|follower| follower.shown(&key, metadata, manager));
        let Some(profiles) = &self.cached else { return };
        let observed = match object {
            Ok(profile) => ObservedProfile::of(&profile),
            Err(Unreadable { metadata, spec, error }) => {
                ObservedProfile::unreadable(&metadata, &spec.unwrap_or_default(), error)
            }
        };
        let member_id = observed.member_id().map(str::to_owned);
        if profiles.show(&key, observed) {
            profiles.changed(key.clone());
        }
        profiles.carries(&key, member_id.as_deref());
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = ProfileKey::from(key);
        self.follow(|follower| follower.gone(&key));
        if let Some(profiles) = &self.cached
            && profiles.ends(&key)
        {
            profiles.gone(key);
        }
    }

    fn listing(&mut self) {
        if let Some(profiles) = &self.cached {
            profiles.writes.lock().begin_list();
        }
    }

    fn listed(&mut self, version: &str) {
        if let Some(profiles) = &self.cached {
            let gone = profiles.writes.lock().end_list(version);
            for key in gone {
                profiles.gone(key);
            }
        }
    }
}

/// A profile without status, to create it; the API server ignores the status in a create.
fn without_status(profile: &ClusterProfile, resource: &ApiResource) -> Value {
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": profile.metadata,
        "spec": profile.spec,
    })
}

/// The requests for the profiles of a namespace, in this version.
fn profiles_in(resource: &ApiResource, namespace: &Namespace) -> kube::api::Request {
    kube::api::Request::new(DynamicObject::url_path(resource, Some(namespace.as_str())))
}

/// Sends a request that returns a profile, which is decoded as the watch decodes it.
async fn send(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> kube::Result<StoredProfile> {
    let text = client.request_text(request.map_err(kube::Error::BuildRequest)?).await?;
    watch::decode_with_managed_fields(text.as_bytes()).map_err(kube::Error::SerdeError)
}

/// Changes the status of a profile.
///
/// # Errors
///
/// The error of the API server, or of the connection to it.
pub async fn patch_status(
    client: &Client,
    resource: &ApiResource,
    key: &ProfileKey,
    params: &PatchParams,
    patch: StatusRequest,
) -> kube::Result<StoredProfile> {
    let (body, content_type) = match patch {
        StatusRequest::Merge(body) => (body, "application/merge-patch+json"),
        StatusRequest::Json(body) => (body, "application/json-patch+json"),
    };
    let mut request = profiles_in(resource, &key.namespace).patch_subresource(
        "status",
        key.cluster.as_str(),
        params,
        &Patch::Merge(body),
    );
    if let Ok(request) = &mut request {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    send(client, request).await
}

/// A merge patch that applies only to this version of the object.
fn under(version: &Version, patch: &Value) -> Value {
    let mut patch = patch.clone();
    patch["metadata"]["uid"] = json!(version.uid);
    patch["metadata"]["resourceVersion"] = json!(version.resource_version);
    patch
}

/// Whether two actions have the same patch, regardless of the version: the first had no effect.
fn same_patch(one: &ProfileAction, other: &ProfileAction) -> bool {
    match (one, other) {
        (ProfileAction::PatchObject(_, one), ProfileAction::PatchObject(_, other))
        | (ProfileAction::PatchStatus(_, one), ProfileAction::PatchStatus(_, other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
