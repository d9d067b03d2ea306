//! The writer of the copies: for every place that is queued it plans the one difference and writes it.

use std::sync::Arc;
use std::time::Duration;

use hub_api::names::SecretKey;
use hub_api::secret::Secret;
use hub_core::credential::copy::{FIELD_MANAGER, ObservedCopy};
use hub_core::credential::plan::{CopyAction, CopyPlan, plan};
use hub_core::note::{Note, Reason, Subject};
use hub_core::version::Version;
use hub_runtime::error::Category;
use hub_runtime::queue::Outcome;
use hub_runtime::write::{Request, WriteError, delete_exactly};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::memory::Foreign;
use crate::store::{COPIES, Store};

/// Copies that are worked on at the same time.
const WORKERS: usize = 16;
/// The writes that a copy can need one after the other: delete, create; and once more where somebody else was
/// faster.
const MAX_ROUNDS: usize = 4;

/// Writes the copies.
#[derive(Clone)]
pub(crate) struct CopyWriter {
    store: Arc<Store>,
}

impl CopyWriter {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store) }
    }

    /// Works until `stop`; then returns when what is in flight is done.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let work = Arc::clone(&self.store.copies);
        let reconcile = move |place| {
            let this = self.clone();
            async move { this.sync(&place).await }
        };
        work.run(WORKERS, stop, reconcile).await;
    }

    /// Brings one copy to its end, one write after the other.
    async fn sync(&self, place: &SecretKey) -> Outcome {
        let (mut wrote, mut left) = (false, None);
        for _ in 0..MAX_ROUNDS {
            if let Some(wait) = self.store.memory.wait_for_end(place) {
                return Outcome::RetryAfter(wait);
            }
            let foreign = self.wait_for_foreign(place);
            let (plan, version) = self.plan(place);
            let subject = Subject::Secret(place.namespace.clone(), place.name.to_string());
            let uid = version.as_ref().map(|version| version.uid.clone());
            if plan.action == CopyAction::Nothing {
                if foreign.is_none() {
                    self.store.memory.end_of_foreign(place);
                }
                self.store.host.reporter.report(&subject, uid.as_deref(), plan.notes);
                self.measure(place, wrote);
                return foreign.map_or(Outcome::Done, Outcome::RetryAfter);
            }
            let patches = matches!(plan.action, CopyAction::Patch(_));
            // Where somebody else has written meanwhile, the same patch may well be needed again.
            if patches && left.is_some() && left == version {
                let error = WriteError::ineffective(COPIES, place.to_string());
                return self.failed(place, uid.as_deref(), &error);
            }
            let creates = matches!(plan.action, CopyAction::Create(_));
            if let Some(pause) = self.store.copies.pause(&place.namespace, creates) {
                return Outcome::RetryAfter(pause);
            }
            match self.execute(place, plan.action).await {
                // What a create has met is as somebody else left it.
                Ok(version) => {
                    self.store.copies.written();
                    (wrote, left) = (true, version.filter(|_| patches));
                }
                Err(error) => return self.failed(place, uid.as_deref(), &error),
            }
        }
        Outcome::Retry
    }

    /// Plans, and has what is counted and said follow the plan.
    fn plan(&self, place: &SecretKey) -> (CopyPlan, Option<Version>) {
        let served = self.store.host.served.current();
        let (plan, version, expires) = self.store.change(|fleet, index| {
            index.set_profile_version(served);
            let plan = plan(index, fleet, place);
            let version = index.copy(place).map(|observed| observed.version.clone());
            let expires = plan.synced().and_then(|account| index.expiry(account));
            (plan, version, expires)
        });
        for account in self.store.tally.set(place, &plan.states, expires) {
            self.store.accounts.add(account);
        }
        (plan, version)
    }

    /// Sends a write, and answers which version it left.
    async fn execute(&self, place: &SecretKey, action: CopyAction) -> Result<Option<Version>, WriteError> {
        let host = &self.store.host;
        let api: Api<Secret> = Api::namespaced(host.client.clone(), place.namespace.as_str());
        let (name, full_name) = (&*place.name, place.to_string());
        let request = |verb| Request { verb, resource: COPIES, name: &full_name };
        let secret = match action {
            CopyAction::Nothing => return Ok(None),
            CopyAction::Create(secret) => {
                let params =
                    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                match host.writer.send(request("create"), api.create(&params, &secret)).await {
                    Ok(created) => {
                        self.store.memory.end_of_foreign(place);
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
                    self.store.mark_deleted(place, version.uid);
                    return Ok(None);
                };
                held
            }
        };
        let observed = ObservedCopy::read(place, &secret);
        let version = observed.version.clone();
        self.store.observe(place, observed);
        Ok(Some(version))
    }

    /// What follows from a write that failed.
    fn failed(&self, place: &SecretKey, uid: Option<&str>, error: &WriteError) -> Outcome {
        let failed = self.store.copies.failed(place, Some(&place.namespace), error);
        if failed.gone {
            self.store.forget(place);
        }
        if failed.refused {
            let subject = Subject::Secret(place.namespace.clone(), place.name.to_string());
            let note = Note::new(Reason::WriteRefused, error.to_string());
            self.store.host.reporter.report(&subject, uid, vec![note]);
        }
        failed.outcome
    }

    /// A create has met a Secret. Without our label no watch will show its end.
    fn meet(&self, place: &SecretKey, found: &Secret) {
        if ObservedCopy::read(place, found).is_ours {
            self.store.memory.end_of_foreign(place);
        } else {
            self.store.memory.met_foreign(place);
        }
    }

    /// How long a Secret that is not ours and not watched is still taken to be there.
    fn wait_for_foreign(&self, place: &SecretKey) -> Option<Duration> {
        match self.store.memory.foreign(place) {
            Foreign::None => None,
            Foreign::There(left) => Some(left),
            Foreign::Stale => {
                self.store.change(|_, index| index.delete_copy(place));
                None
            }
        }
    }

    /// There is nothing left to write.
    fn measure(&self, place: &SecretKey, wrote: bool) {
        if let Some(took) = self.store.memory.source_settled(place).filter(|_| wrote) {
            self.store.host.metrics.credential_synced(took);
        }
    }
}
