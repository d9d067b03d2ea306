//! The writer of the copies: plans one write for every queued key and sends it.

use std::sync::Arc;

use hub_api::names::SecretKey;
use hub_api::secret::Secret;
use hub_core::credential::copy::{self, FIELD_MANAGER, ObservedCopy};
use hub_core::credential::index::{CreatedCopy, CredentialIndex, Refused};
use hub_core::credential::plan::{CopyAction, CopyPlan, plan};
use hub_core::finding::{Finding, Reason, Subject};
use hub_core::fleet::Fleet;
use hub_core::rights::GRACE;
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::{Request, delete_by_uid, delete_exactly};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::memory::Unwatched;
use crate::store::{COPIES, Store};

/// Number of workers.
const WORKERS: usize = 16;
/// The maximum number of writes in a row for a copy: delete, create, and once more after a conflict.
const MAX_ROUNDS: usize = 4;

/// What a write has led to.
#[derive(Default)]
struct Sent {
    /// The version that a patch has left.
    left: Option<Version>,
    /// Whether a create has met a Secret, and written nothing.
    met_another: bool,
}

/// Writes the copies.
#[derive(Clone)]
pub(crate) struct CopyWriter {
    store: Arc<Store>,
}

impl CopyWriter {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store) }
    }

    /// Processes the queue until `stop`, then returns when all writes in flight have finished.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let work = Arc::clone(&self.store.copies);
        let reconcile = move |key| {
            let this = self.clone();
            async move { this.sync(&key).await }
        };
        work.run(WORKERS, stop, reconcile).await;
    }

    /// Reconciles one copy, one write after the other.
    async fn sync(&self, key: &SecretKey) -> Outcome {
        let mut wrote = false;
        // Only the next plan shows whether a patch had an effect.
        let mut before: Option<(Box<copy::Patch>, Option<Version>)> = None;
        for _ in 0..MAX_ROUNDS {
            if let Some(wait) = self.store.memory.wait_for_end(key) {
                return Outcome::RetryAfter(wait);
            }
            let unwatched = self.store.memory.unwatched(key);
            let (plan, version) = self.plan(key, matches!(unwatched, Unwatched::Stale));
            let subject = Subject::Secret(key.namespace.clone(), key.name.to_string());
            let uid = version.as_ref().map(|version| version.uid.clone());
            let patch = match &plan.action {
                CopyAction::Patch(patch) => Some(patch.clone()),
                _ => None,
            };
            // After a write by another client, the same patch may be needed again, and after a rotation, another one.
            let is_ineffective = match (before.take(), &patch) {
                (Some((sent, left)), Some(patch)) => left == version && patch.has_content_of(&sent),
                _ => false,
            };
            let Some(verb) = plan.action.verb() else {
                let wait = match unwatched {
                    Unwatched::There(left) => Some(left),
                    Unwatched::None | Unwatched::Stale => {
                        self.store.memory.end_of_unwatched(key);
                        None
                    }
                };
                self.store.memory.end_of_abandoned(key);
                self.store.change(|_, index| index.set_refused(key, None));
                self.store.reporter.report(&subject, uid.as_deref(), plan.findings);
                self.measure(key, wrote);
                return wait.map_or(Outcome::Done, Outcome::RetryAfter);
            };
            if is_ineffective {
                let error = WriteError::ineffective(COPIES, key.to_string());
                return self.failed(key, plan.refused(), uid.as_deref(), &error);
            }
            let what = plan.refused();
            if let Some(delayed) = self.store.copies.delays(key, COPIES, verb) {
                if let Some(error) = delayed.error {
                    self.report_refused(key, what, uid.as_deref(), &error);
                }
                return delayed.outcome;
            }
            match self.execute(key, plan).await {
                Ok(sent) => {
                    self.store.copies.written(key, COPIES, verb);
                    // A create that meets a Secret says nothing of the delete that failed before.
                    if !sent.met_another {
                        self.store.change(|_, index| index.set_refused(key, None));
                        wrote = true;
                    }
                    before = patch.map(|patch| (patch, sent.left));
                }
                Err(error) => return self.failed(key, what, uid.as_deref(), &error),
            }
        }
        Outcome::Retry
    }

    /// Plans, and updates metrics and findings accordingly. With `retries`, an unwatched Secret may have been deleted.
    fn plan(&self, key: &SecretKey, retries: bool) -> (CopyPlan, Option<Version>) {
        let served = self.store.host.served.versions();
        let (plan, version, expires) = self.store.change(|fleet, index| {
            index.set_served_versions(served);
            let plan = if retries { plan_again(index, fleet, key) } else { plan(index, fleet, key) };
            let version = index.copy(key).map(|observed| observed.version.clone());
            let expires = plan.synced().and_then(|account| index.expiry(account));
            (plan, version, expires)
        });
        for account in self.store.gauges.set(key, &plan.states, expires) {
            self.store.accounts.add(account);
        }
        (plan, version)
    }

    /// Records whether the planned write is refused, which changes states.
    fn set_refused(&self, key: &SecretKey, refused: Option<Refused>) {
        self.store.change(|_, index| index.set_refused(key, refused));
        self.plan(key, false);
    }

    /// Sends a write.
    async fn execute(&self, key: &SecretKey, plan: CopyPlan) -> Result<Sent, WriteError> {
        let api: Api<Secret> = Api::namespaced(self.store.host.client.clone(), key.namespace.as_str());
        let (name, mut sent) = (&*key.name, Sent::default());
        let shown = match plan.action {
            CopyAction::Nothing => return Ok(sent),
            CopyAction::Create(secret) => {
                let params =
                    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                match self.send("create", key, api.create(&params, &secret)).await {
                    Ok((created, has_ended)) => {
                        info!(copy = %key, "created");
                        let uid = created.metadata.uid.clone().unwrap_or_default();
                        let copy = plan.holder.map(|account| CreatedCopy { uid, account });
                        self.store.change(|_, index| index.set_created(key, copy));
                        (!has_ended).then_some(created)
                    }
                    // Created by an earlier attempt whose response was lost, or without its label, or by another
                    // client: the next plan decides.
                    Err(error) if error.category == Category::AlreadyExists => {
                        sent.met_another = true;
                        None
                    }
                    Err(error) => return Err(error),
                }
            }
            CopyAction::Patch(patch) => {
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                let patch = Patch::Merge(&patch);
                let (patched, has_ended) = self.send("patch", key, api.patch(name, &params, &patch)).await?;
                info!(copy = %key, "updated");
                sent.left = Some(Version::of(&patched.metadata));
                (!has_ended).then_some(patched)
            }
            CopyAction::Delete(version) => {
                let params = delete_exactly(&version);
                let (response, has_ended) = self.send("delete", key, api.delete(name, &params)).await?;
                info!(copy = %key, "deleted");
                // The response contains an object that a finalizer delays.
                let Some(held) = response.left() else {
                    self.store.mark_deleted(key, &version.uid);
                    return Ok(sent);
                };
                (!has_ended).then_some(held)
            }
            CopyAction::DeleteOurs(uid) => {
                let params = delete_by_uid(&uid);
                match self.send("delete", key, api.delete(name, &params)).await {
                    Ok((response, has_ended)) => {
                        info!(copy = %key, "deleted");
                        let Some(held) = response.left() else {
                            self.store.mark_deleted(key, &uid);
                            return Ok(sent);
                        };
                        (!has_ended).then_some(held)
                    }
                    // The Secret has been deleted, and perhaps another one has its name: the next plan decides.
                    Err(error) if matches!(error.category, Category::NotFound | Category::Conflict) => {
                        self.store.missed(key, Some(&uid));
                        return Ok(sent);
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let secret = if let Some(secret) = shown {
            secret
        } else {
            match self.send("get", key, api.get(name)).await {
                Ok((secret, false)) => secret,
                Ok((_, true)) => return Ok(sent),
                Err(error) if error.category == Category::NotFound => return Ok(sent),
                Err(error) => return Err(error),
            }
        };
        let observed = ObservedCopy::read(key, &secret);
        if observed.is_labelled {
            self.store.memory.end_of_unwatched(key);
        } else {
            self.store.memory.met_unwatched(key);
        }
        self.store.observe(key, observed);
        Ok(sent)
    }

    /// Sends a request. Returns also whether the response may show a Secret that has since been deleted or lost its
    /// label, as the watch shows.
    async fn send<T>(
        &self,
        verb: &'static str,
        key: &SecretKey,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<(T, bool), WriteError> {
        let name = key.to_string();
        self.store.sending(key);
        let request = Request { verb, resource: COPIES, name: &name };
        let response = self.store.host.writer.send(request, call).await;
        let has_ended = self.store.received(key);
        Ok((response?, has_ended))
    }

    /// Decides what follows from a failed write.
    fn failed(&self, key: &SecretKey, what: Refused, uid: Option<&str>, error: &WriteError) -> Outcome {
        let failed = self.store.copies.failed(key, error);
        if failed.gone {
            self.store.missed(key, uid);
        }
        if failed.refused {
            self.report_refused(key, what, uid, error);
        }
        failed.outcome
    }

    /// Reports a write that is refused or fails.
    fn report_refused(&self, key: &SecretKey, what: Refused, uid: Option<&str>, error: &WriteError) {
        let subject = Subject::Secret(key.namespace.clone(), key.name.to_string());
        if self.ends_with_namespace(key, what) {
            // The permission may have ended before its namespace was known to end.
            self.set_refused(key, None);
            self.store.reporter.forget(&subject);
            if self.store.memory.abandoned(key) >= GRACE {
                self.store.abandon(key);
            }
            return;
        }
        self.set_refused(key, Some(what));
        let finding = Finding::new(Reason::WriteRefused, error.to_string());
        self.store.reporter.report(&subject, uid, vec![finding]);
    }

    /// Whether a refused delete is no finding: when a namespace ends, its permissions and its copies end, too. Only if
    /// the permission alone was withdrawn for a moment does a copy remain to be deleted.
    fn ends_with_namespace(&self, key: &SecretKey, what: Refused) -> bool {
        what == Refused::Delete && self.store.is_abandoned(key)
    }

    /// Records that nothing is left to write.
    fn measure(&self, key: &SecretKey, wrote: bool) {
        if let Some(took) = self.store.memory.source_settled(key).filter(|_| wrote) {
            self.store.host.metrics.credential_synced(took);
        }
    }
}

/// Plans as if the unwatched Secret had been deleted, since only a write can find out whether it exists. Until then the
/// states stay as they were, and with them the account's condition. If there is nothing to write, the Secret blocks no
/// copy, and is forgotten.
fn plan_again(index: &mut CredentialIndex, fleet: &Fleet, key: &SecretKey) -> CopyPlan {
    let states = plan(index, fleet, key).states;
    let known = index.copy(key).cloned();
    index.delete_copy(key);
    let mut again = plan(index, fleet, key);
    if let Some(known) = known.filter(|_| again.action != CopyAction::Nothing) {
        index.apply_copy(key, known);
        again.states = states;
    }
    again
}
