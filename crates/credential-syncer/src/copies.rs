//! The writer of the copies: for every place that is queued it plans the one difference and writes it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::SecretKey;
use hub_api::secret::Secret;
use hub_core::credential::copy::{FIELD_MANAGER, ObservedCopy};
use hub_core::credential::plan::{CopyAction, CopyPlan, plan};
use hub_core::note::{Note, Reason, Subject};
use hub_core::version::Version;
use hub_runtime::error::Category;
use hub_runtime::host::Host;
use hub_runtime::queue::Outcome;
use hub_runtime::watch::is_newer;
use hub_runtime::work::{PausedNamespaces, Work};
use hub_runtime::write::{Request, WriteError, delete_exactly};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::syncer::Syncer;
use crate::tally::Tally;

/// The plural of the kind, which names this loop in metrics, too.
const RESOURCE: &str = "secrets";
/// Copies that are worked on at the same time.
const WORKERS: usize = 16;
/// The writes that a copy can need one after the other: delete, create; and once more where somebody else was
/// faster.
const MAX_ROUNDS: usize = 4;
/// How often it is tried anew whether a Secret that is not ours still stands where a copy belongs. It is not
/// watched: it is none of our business. Soon at first, for whoever reads the Event and deletes it; then after about
/// the time that it has been there.
const FOREIGN_PAUSE_MIN: Duration = Duration::from_secs(3);
const FOREIGN_PAUSE_MAX: Duration = Duration::from_mins(1);
/// Longest wait for the watch to show the end of a copy that we have deleted.
const END_PAUSE: Duration = Duration::from_secs(30);

/// What the work on copies keeps between two looks.
pub(crate) struct CopyWriter {
    pub(crate) work: Arc<Work<SecretKey>>,
    pub(crate) paused: PausedNamespaces,
    pub(crate) tally: Tally,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// When the source of a copy changed that is not written yet.
    changed: HashMap<SecretKey, Instant>,
    /// Secrets without our label, met by a create.
    foreign: HashMap<SecretKey, Met>,
    /// Copies that we have deleted and whose end the watch has not shown yet, by uid, and when.
    deleted: HashMap<SecretKey, (String, Instant)>,
}

/// When a Secret that is not ours was met.
#[derive(Clone, Copy)]
struct Met {
    first: Instant,
    last: Instant,
}

impl Met {
    /// How long it is still taken to be there, if it is.
    fn left(self) -> Option<Duration> {
        let pause = (self.last - self.first).clamp(FOREIGN_PAUSE_MIN, FOREIGN_PAUSE_MAX);
        pause.checked_sub(self.last.elapsed()).filter(|left| !left.is_zero())
    }
}

impl CopyWriter {
    pub(crate) fn new(host: &Arc<Host>) -> Self {
        host.metrics.declare_written(RESOURCE);
        let tally = Tally::new(host.metrics.clone());
        let (paused, memory) = (PausedNamespaces::default(), Mutex::default());
        Self { work: Work::new(host, RESOURCE), paused, tally, memory }
    }
}

impl Syncer {
    pub(crate) async fn sync_copies(&self) {
        let this = self.clone();
        let reconcile = move |place| {
            let this = this.clone();
            async move { this.sync(&place).await }
        };
        self.inner.copies.work.run(WORKERS, reconcile).await;
    }

    /// Measures from now how long these copies take.
    pub(crate) fn note_change(&self, places: &[SecretKey]) {
        if self.has_begun() {
            let (now, mut memory) = (Instant::now(), self.inner.copies.memory.lock());
            for place in places {
                memory.changed.entry(place.clone()).or_insert(now);
            }
        }
    }

    /// Takes in a Secret as an event or an answer shows it; answers whether that is news. An event that is older
    /// than the answer to our own write is not.
    pub(crate) fn observe(&self, place: &SecretKey, observed: ObservedCopy) -> bool {
        let deleted = self.inner.copies.memory.lock().deleted.get(place).map(|(uid, _)| uid.clone());
        if deleted.is_some_and(|uid| uid == observed.version.uid) && !observed.terminating {
            return false;
        }
        let mut index = self.inner.index.lock();
        let known = index.copy(place).filter(|known| known.version.uid == observed.version.uid);
        let is_older = known.is_some_and(|known| {
            !is_newer(&observed.version.resource_version, &known.version.resource_version)
        });
        !is_older && index.apply_copy(place, observed)
    }

    /// Forgets a Secret that is gone, or no longer carries our label.
    pub(crate) fn forget(&self, place: &SecretKey) {
        let mut memory = self.inner.copies.memory.lock();
        memory.deleted.remove(place);
        memory.foreign.remove(place);
        self.inner.index.lock().delete_copy(place);
    }

    /// Brings one copy to its end, one write after the other.
    async fn sync(&self, place: &SecretKey) -> Outcome {
        let (mut wrote, mut left) = (false, None);
        for _ in 0..MAX_ROUNDS {
            if let Some(wait) = self.wait_for_end(place) {
                return Outcome::RetryAfter(wait);
            }
            let foreign = self.wait_for_foreign(place);
            let (plan, version) = self.plan(place);
            let subject = Subject::Secret(place.namespace.clone(), place.name.to_string());
            let uid = version.as_ref().map(|version| version.uid.clone());
            if plan.action == CopyAction::Nothing {
                if foreign.is_none() {
                    self.end_of_foreign(place);
                }
                self.inner.host.reporter.report(&subject, uid.as_deref(), plan.notes);
                self.measure(place, wrote);
                return foreign.map_or(Outcome::Done, Outcome::RetryAfter);
            }
            let patches = matches!(plan.action, CopyAction::Patch(_));
            // Where somebody else has written meanwhile, the same patch may well be needed again.
            if patches && left.is_some() && left == version {
                let error = WriteError {
                    category: Category::Ineffective,
                    verb: "patch",
                    resource: RESOURCE,
                    name: place.to_string(),
                    text: "the API server accepted the patch and did not keep it".to_owned(),
                };
                return self.failed(place, uid.as_deref(), &error);
            }
            if matches!(plan.action, CopyAction::Create(_))
                && let Some(pause) = self.inner.copies.paused.pause_of(&place.namespace)
            {
                return Outcome::RetryAfter(pause);
            }
            match self.execute(place, plan.action).await {
                // What a create has met is as somebody else left it.
                Ok(version) => (wrote, left) = (true, version.filter(|_| patches)),
                Err(error) => return self.failed(place, uid.as_deref(), &error),
            }
        }
        Outcome::Retry
    }

    /// Plans, and has what is counted and said follow the plan.
    fn plan(&self, place: &SecretKey) -> (CopyPlan, Option<Version>) {
        let (plan, version, expires) = self.change(|fleet, index| {
            let plan = plan(index, fleet, place);
            let version = index.copy(place).map(|observed| observed.version.clone());
            let expires = plan.synced().and_then(|account| index.expiry(account));
            (plan, version, expires)
        });
        for account in self.inner.copies.tally.set(place, &plan.states, expires) {
            self.enqueue_account(account);
        }
        (plan, version)
    }

    /// Sends a write, and answers which version it left.
    async fn execute(&self, place: &SecretKey, action: CopyAction) -> Result<Option<Version>, WriteError> {
        let host = &self.inner.host;
        let api: Api<Secret> = Api::namespaced(host.client.clone(), place.namespace.as_str());
        let (name, full_name) = (&*place.name, place.to_string());
        let request = |verb| Request { verb, resource: RESOURCE, name: &full_name };
        let secret = match action {
            CopyAction::Nothing => return Ok(None),
            CopyAction::Create(secret) => {
                let params =
                    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                match host.writer.send(request("create"), api.create(&params, &secret)).await {
                    Ok(created) => {
                        self.end_of_foreign(place);
                        info!(copy = %place, "created");
                        created
                    }
                    // Ours from a try whose answer was lost or without its label, or somebody else's: the next plan
                    // knows what to do with it.
                    Err(error) if error.category == Category::AlreadyExists => {
                        let found = host.writer.send(request("get"), api.get(name)).await?;
                        self.meet(place, &found);
                        found
                    }
                    Err(error) => return Err(error),
                }
            }
            CopyAction::Patch(patch) => {
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                let patch = Patch::Merge(&patch);
                let patched = host.writer.send(request("patch"), api.patch(name, &params, &patch)).await?;
                info!(copy = %place, "updated");
                patched
            }
            CopyAction::Delete(version) => {
                let params = delete_exactly(&version);
                let answer = host.writer.send(request("delete"), api.delete(name, &params)).await?;
                info!(copy = %place, "deleted");
                // What is answered with the object is held by a finalizer.
                let Some(held) = answer.left() else {
                    self.mark_deleted(place, version.uid);
                    return Ok(None);
                };
                held
            }
        };
        let observed = ObservedCopy::read(place, &secret);
        let version = observed.version.clone();
        self.observe(place, observed);
        Ok(Some(version))
    }

    /// Decides how a failed write goes on, and tells it in the one place that does.
    fn failed(&self, place: &SecretKey, uid: Option<&str>, error: &WriteError) -> Outcome {
        self.inner.host.metrics.reconcile_error(RESOURCE, error.category);
        match error.category {
            Category::NotLeader => Outcome::Retry,
            Category::Conflict => {
                debug!(copy = %place, %error, "somebody else was faster");
                Outcome::Retry
            }
            Category::NamespaceTerminating => self.inner.copies.paused.pause(&place.namespace, error),
            Category::NotFound if error.verb == "create" => {
                self.inner.copies.paused.pause(&place.namespace, error)
            }
            Category::NotFound => {
                self.forget(place);
                Outcome::Retry
            }
            Category::Invalid | Category::Ineffective | Category::Forbidden => {
                let subject = Subject::Secret(place.namespace.clone(), place.name.to_string());
                let note = Note::new(Reason::WriteRefused, error.to_string());
                self.inner.host.reporter.report(&subject, uid, vec![note]);
                Outcome::Refused
            }
            _ => {
                warn!(copy = %place, category = error.category.as_str(), "{error}; trying again");
                Outcome::Retry
            }
        }
    }

    /// A create has met a Secret. Without our label no watch will show its end.
    fn meet(&self, place: &SecretKey, found: &Secret) {
        let (now, mut memory) = (Instant::now(), self.inner.copies.memory.lock());
        if ObservedCopy::read(place, found).is_ours {
            memory.foreign.remove(place);
        } else {
            memory.foreign.entry(place.clone()).or_insert(Met { first: now, last: now }).last = now;
        }
    }

    /// How long a Secret that is not ours and not watched is still taken to be there.
    fn wait_for_foreign(&self, place: &SecretKey) -> Option<Duration> {
        let left = self.inner.copies.memory.lock().foreign.get(place)?.left();
        if left.is_none() {
            // Not when it was met first: it may still be there.
            self.inner.index.lock().delete_copy(place);
        }
        left
    }

    /// No Secret stands in the way that is not watched: it is gone, or is watched, or is in nobody's way.
    pub(crate) fn end_of_foreign(&self, place: &SecretKey) {
        self.inner.copies.memory.lock().foreign.remove(place);
    }

    /// Our delete was accepted. Its event may have been faster than its answer.
    fn mark_deleted(&self, place: &SecretKey, uid: String) {
        let (mut memory, mut index) = (self.inner.copies.memory.lock(), self.inner.index.lock());
        if index.copy(place).is_some_and(|known| known.version.uid == uid) {
            index.delete_copy(place);
            memory.deleted.insert(place.clone(), (uid, Instant::now()));
        }
    }

    /// How long to wait for the watch to show the end of a copy that we have deleted: what is made before would be
    /// taken for the one that ends.
    fn wait_for_end(&self, place: &SecretKey) -> Option<Duration> {
        let mut memory = self.inner.copies.memory.lock();
        let since = memory.deleted.get(place)?.1;
        let left = END_PAUSE.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
        if left.is_none() {
            memory.deleted.remove(place);
        }
        left
    }

    /// There is nothing left to write.
    fn measure(&self, place: &SecretKey, wrote: bool) {
        let changed = self.inner.copies.memory.lock().changed.remove(place);
        if let Some(changed) = changed.filter(|_| wrote) {
            self.inner.host.metrics.credential_synced(changed.elapsed());
        }
    }
}
