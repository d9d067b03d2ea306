//! The single writer of ClusterProfiles, for all owners of their parts.
//!
//! Watches ClusterProfile and caches what plans need. For every queued key it combines the desired states of all owners
//! in this process, plans one action ([`hub_core::profile::plan`]) and writes it, so that a new profile needs as many
//! writes for two controllers in one process as for one. The next plan waits until the watch has shown the write
//! ([`Written`](hub_runtime::written::Written)).
//! Controllers that own no part can follow the same watch; without owners, nothing is cached.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hub_api::cluster_profile::StoredProfile;
use hub_api::names::{ClusterName, ManagerName, Namespace, ProfileKey};
use hub_core::action::Action;
use hub_core::concerned::KnownProfiles;
use hub_core::finding::{Finding, Reason, Subject};
use hub_core::member_id::{FIELD_MANAGER, MemberIds};
use hub_core::priority::Priority;
use hub_core::profile::{
    Desired, ObservedProfile, Presence, ProfilePlan, changed_properties, plan,
};
use hub_core::version::{Uid, Version};
use kube::api::DynamicObject;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::task::yield_now;

use crate::controller::{Controller, ProfileFollower};
use crate::profile_cache::ProfileCache;
use crate::property_pace::PropertyPace;
use crate::served::ServedVersion;
use hub_runtime::host::{Host, Watches};
use hub_runtime::observe::report::Reporter;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read};
use hub_runtime::watch::{Each, LARGE_PAGE, Unreadable, Watch};
use hub_runtime::write::error::WriteError;
use hub_runtime::write::execute::Target;
use hub_runtime::written::Left;

/// The plural of the kind; also the name of this loop in metrics.
const RESOURCE: &str = "clusterprofiles";
/// How long after another process has created a profile this one waits for its status.
const PROJECTION_GRACE: Duration = Duration::from_secs(1);

/// How often a write that waits until profiles can be read is planned again.
const UNREAD: Duration = Duration::from_secs(5);

/// How many profiles are queued before other tasks run: a millisecond of work.
const AT_ONCE: usize = 256;

/// What was planned for a profile beside the write.
pub struct PlannedProfile {
    /// The uid of the observed profile.
    uid: Option<Uid>,
    findings: Vec<Finding>,
    /// Whether the write changes properties.
    changes_properties: bool,
    /// How long properties are held back.
    held: Option<Duration>,
}

/// The cache, the queue and the writer of ClusterProfiles.
pub struct Profiles {
    host: Arc<Host>,
    reporter: Reporter,
    manager: ManagerName,
    served: ServedVersion,
    controllers: OnceLock<Vec<Weak<dyn Controller>>>,
    cache: Mutex<ProfileCache>,
    member_ids: Mutex<MemberIds>,
    pace: Mutex<PropertyPace>,
    /// Whether profiles cannot be read, so that the cache is out of date.
    unread: AtomicBool,
    /// The profiles to write.
    pub queue: Arc<Work<ProfileKey>>,
}

impl Profiles {
    /// An empty cache; [`Self::watch`] fills it.
    pub(crate) fn new(host: Arc<Host>, manager: ManagerName, served: ServedVersion) -> Arc<Self> {
        Arc::new(Self {
            reporter: host.reporter(RESOURCE),
            queue: Work::new(&host, RESOURCE, |key| key.namespace.clone()),
            host,
            manager,
            served,
            controllers: OnceLock::new(),
            cache: Mutex::default(),
            member_ids: Mutex::default(),
            pace: Mutex::default(),
            unread: AtomicBool::new(false),
        })
    }

    /// Starts the watch, if any of these controllers owns a part of profiles or follows them. A second call changes
    /// nothing.
    pub(crate) fn watch(self: &Arc<Self>, controllers: &[Arc<dyn Controller>]) {
        let is_owned = controllers.iter().any(|controller| controller.owner().is_some());
        let is_followed = controllers.iter().any(|controller| controller.follower().is_some());
        if is_owned {
            self.host.metrics.declare_written(RESOURCE);
        }
        let controllers = controllers.iter().map(Arc::downgrade).collect();
        if (is_owned || is_followed) && self.controllers.set(controllers).is_ok() {
            let watches = Watches::new(&self.host, RESOURCE);
            let watch = Watch::<StoredProfile>::all(RESOURCE);
            // Followers alone need little of an object.
            let watch =
                if is_owned { watch.with_managed_fields() } else { watch.paged(LARGE_PAGE) };
            self.served.watch(&watches);
            let sink = Each {
                store: Arc::clone(self),
                set: |this, key, profile| this.set(&ProfileKey::from(key), profile),
                set_read: |this, is_read| this.set_read(is_read),
            };
            watches.watch(watch.served_at(self.served.clone()), sink);
        }
    }

    /// Whether the cache contains a profile.
    pub fn exists(&self, key: &ProfileKey) -> bool {
        self.cache().get(key).is_some()
    }

    /// Visits every cached profile: a few at once, so that nothing else waits for long. One that changes meanwhile is
    /// visited as it was or as it is.
    pub async fn visit(&self, mut visit: impl FnMut(&ProfileKey, &ObservedProfile)) {
        let mut last = None;
        loop {
            last = self.cache().visit_after(last.as_ref(), AT_ONCE, &mut visit);
            if last.is_none() {
                return;
            }
            yield_now().await;
        }
    }

    /// Queues every cached profile that satisfies a condition, as an update.
    pub fn enqueue_where(
        self: &Arc<Self>,
        concerned: impl Fn(&ObservedProfile) -> bool + Send + 'static,
    ) {
        let (this, queue) = (Arc::clone(self), Arc::clone(&self.queue));
        self.host.tasks.spawn_once("the queue of profiles", async move {
            let add = move |key: &ProfileKey, observed: &ObservedProfile| {
                if concerned(observed) {
                    queue.add_with(key.clone(), Priority::Update);
                }
            };
            this.visit(add).await;
        });
    }

    /// Queues the profiles of a cluster, as updates.
    pub fn enqueue_of(&self, cluster: &ClusterName) {
        let keys = self.cache().of_cluster(cluster);
        self.queue.add_all(keys);
    }

    /// Queues a profile that has changed or been deleted.
    fn changed(&self, key: &ProfileKey) {
        let exists = self.exists(key);
        let priorities = self
            .controllers()
            .filter_map(|controller| Some(controller.owner()?.priority(key, exists)));
        let priority = priorities.min().unwrap_or(Priority::Update);
        self.queue.add_with(key.clone(), priority);
    }

    fn controllers(&self) -> impl Iterator<Item = Arc<dyn Controller>> {
        self.controllers.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    /// Passes on what the watch shows to the followers.
    fn follow(&self, pass_on: impl Fn(&dyn ProfileFollower)) {
        for controller in self.controllers() {
            controller.follower().into_iter().for_each(&pass_on);
        }
    }

    /// Whether there are owners, who need the cache.
    fn is_cached(&self) -> bool {
        self.controllers().any(|controller| controller.owner().is_some())
    }

    /// How long to wait for another process that has created a profile and not yet written its status: two writers at
    /// the same moment would only cause conflicts.
    fn wait_for_projection(
        &self,
        key: &ProfileKey,
        observed: Option<&ObservedProfile>,
        desired: &[Desired],
    ) -> Option<Duration> {
        let another_projects =
            desired.iter().all(|desired| desired.presence == Presence::Undecided);
        if !another_projects || observed?.has_status() {
            return None;
        }
        let since = self.cache().get(key)?.since;
        PROJECTION_GRACE.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
    }

    /// Records a profile as the watch shows it, or that it does not exist any more.
    fn set(&self, key: &ProfileKey, profile: Option<Result<StoredProfile, Unreadable>>) {
        let Some(profile) = profile else {
            self.follow(|follower| follower.gone(key));
            if self.is_cached() {
                self.gone(key);
            }
            return;
        };
        let (metadata, spec) = match &profile {
            Ok(profile) => (&profile.metadata, Some(&profile.spec)),
            Err(unreadable) => (&*unreadable.metadata, unreadable.spec.as_ref()),
        };
        let manager = spec.and_then(|spec| spec["clusterManager"]["name"].as_str());
        self.follow(|follower| follower.shown(key, metadata, manager));
        if self.is_cached() {
            self.show(key, observe(profile));
        }
    }

    /// Stores a profile that the watch shows.
    fn show(&self, key: &ProfileKey, observed: ObservedProfile) {
        let member_id = observed.member_id().map(str::to_owned);
        let mut cache = self.cache();
        let is_change = cache.get(key).map(|known| &known.observed) != Some(&observed);
        let is_news = self.queue.written.shown(key, &observed.version);
        if is_change {
            cache.put(key, observed);
        }
        drop(cache);
        if is_change && is_news {
            self.changed(key);
        }
        self.carries(key, member_id.as_deref());
    }

    /// Records that a profile does not exist any more.
    fn gone(&self, key: &ProfileKey) {
        if let Some(known) = self.cache().remove(key) {
            self.queue.written.ended(key, &known.version.uid);
        }
        self.carries(key, None);
        self.pace.lock().forget(key);
        self.reporter.forget(&Subject::Profile(key.clone()));
        self.changed(key);
    }

    /// Records whether profiles can be read.
    fn set_read(&self, is_read: bool) {
        self.follow(|follower| follower.set_read(is_read));
        self.unread.store(!is_read, Ordering::Relaxed);
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
        let first = ProfileKey { namespace: namespace.clone(), cluster: "".into() };
        let pending = self.queue.held_from(&first, |key| key.namespace == *namespace);
        let pending = pending.into_iter().map(|key| key.cluster);
        self.cache().names_in(namespace).cloned().chain(pending).collect()
    }

    fn has(&self, key: &ProfileKey) -> bool {
        self.exists(key) || self.queue.holds(key)
    }
}

impl Objects for Profiles {
    type Key = ProfileKey;
    type Create = Value;
    type Patch = Value;
    type Plan = PlannedProfile;

    const WORKERS: usize = 16;
    const HAS_STATUS: bool = true;

    fn work(&self) -> &Arc<Work<ProfileKey>> {
        &self.queue
    }

    fn target(&self, key: &ProfileKey) -> Target {
        let resource = self.served.current().resource();
        let (namespace, name) = (Some(key.namespace.as_str()), key.cluster.as_str());
        Target::of::<DynamicObject>(RESOURCE, &resource, namespace, name).managed_by(FIELD_MANAGER)
    }

    fn known(&self, key: &ProfileKey) -> Option<Version> {
        self.cache().get(key).map(|known| known.observed.version.clone())
    }

    fn plan(&self, key: &ProfileKey, read: Option<&Read>) -> Planned<Self> {
        let observed = match read {
            None => self.cache().get(key).map(|known| known.observed.clone()),
            Some(read) => read.decode().map(observe),
        };
        let desired: Vec<_> = self
            .controllers()
            .filter_map(|controller| Some(controller.owner()?.desired(key, observed.as_ref())))
            .collect();
        if let Some(wait) = self.wait_for_projection(key, observed.as_ref(), &desired) {
            return Planned::Wait(wait);
        }
        let projects = desired.iter().any(|desired| desired.presence.identity().is_some());
        let ProfilePlan { mut action, mut findings } =
            plan(key, &self.manager, observed.as_ref(), desired);
        if projects
            && observed.as_ref().is_some_and(|observed| observed.manager == self.manager.as_str())
        {
            findings.extend(self.member_ids.lock().finding(key));
        }
        self.cache().set_pending(key, observed.is_some() || action != Action::Nothing);
        let held = self.pace.lock().hold(key, observed.as_ref(), &mut action);
        let held = held.map(|(wait, finding)| {
            findings.push(finding);
            wait
        });
        let changes_properties = !changed_properties(observed.as_ref(), &action).is_empty();
        // Of what is known to exist, the end of a grant can still be written.
        let is_end = matches!(action, Action::Nothing | Action::Delete(_) | Action::DeleteByUid(_));
        if !is_end && self.unread.load(Ordering::Relaxed) {
            return Planned::Wait(UNREAD);
        }
        let created = |object| {
            let mut object = json!(object);
            object["apiVersion"] = json!(self.served.current().resource().api_version);
            object
        };
        let action = action.map(created, |patch| patch);
        Planned::Write(
            action,
            PlannedProfile {
                uid: observed.map(|observed| observed.version.uid),
                findings,
                changes_properties,
                held,
            },
        )
    }

    // A reported failure persists until nothing is left to write: a retry alone does not resolve it.
    fn settled(&self, key: &ProfileKey, plan: PlannedProfile) -> Outcome {
        self.reporter.report(&Subject::Profile(key.clone()), plan.uid.as_ref(), plan.findings);
        plan.held.map_or(Outcome::Done, Outcome::RetryAfter)
    }

    fn wrote(&self, key: &ProfileKey, plan: &PlannedProfile, _: &str, _: &Left) {
        if plan.changes_properties {
            self.pace.lock().wrote(key);
        }
    }

    fn refused(&self, key: &ProfileKey, plan: &PlannedProfile, error: &WriteError) {
        let finding = Finding::new(Reason::WriteRefused, error.to_string());
        self.reporter.report(&Subject::Profile(key.clone()), plan.uid.as_ref(), vec![finding]);
    }
}

/// What plans need of a profile.
fn observe(profile: Result<StoredProfile, Unreadable>) -> ObservedProfile {
    match profile {
        Ok(profile) => ObservedProfile::of(&profile),
        Err(Unreadable { metadata, spec, error }) => {
            ObservedProfile::unreadable(&metadata, &spec.unwrap_or_default(), error)
        }
    }
}
