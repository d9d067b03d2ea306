//! The writer: plans one write for every account of a consumer and sends it.

use std::sync::Arc;

use hub_api::names::{AccountKey, Namespace};
use hub_core::consumer_access::{AccessAction, AccessKind, AccessPlan, ObservedAccess, ObservedObject};
use hub_core::note::{Note, Reason};
use hub_runtime::error::Category;
use hub_runtime::queue::Outcome;
use hub_runtime::write::{Request, WriteError, delete_exactly};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::store::{Store, api_resource, resource, subject};

/// Number of workers.
const WORKERS: usize = 8;
/// The maximum number of writes in a row for a key: account, permissions and those that they replace, and once more
/// after a conflict.
const MAX_ROUNDS: usize = 4;

/// Writes accounts and permissions.
#[derive(Clone)]
pub(crate) struct AccessWriter {
    store: Arc<Store>,
}

impl AccessWriter {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store) }
    }

    /// Processes the queue until `stop`, then returns when all writes in flight have finished.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let work = Arc::clone(&self.store.work);
        let reconcile = move |key| {
            let this = self.clone();
            async move { this.reconcile(&key).await }
        };
        work.run(WORKERS, stop, reconcile).await;
    }

    /// Reconciles the access of one account, one write after the other.
    async fn reconcile(&self, key: &AccountKey) -> Outcome {
        let mut last = AccessAction::Nothing;
        // That the API server does not delete the account, and what follows.
        let mut kept: Option<(WriteError, Outcome)> = None;
        for _ in 0..MAX_ROUNDS {
            let Some((observed, plan)) = self.store.plan(key) else { return Outcome::Done };
            let (kind, is_create) = match plan.action {
                AccessAction::Create(kind, _) => (kind, true),
                AccessAction::Patch(kind, _) | AccessAction::Delete(kind, _) => (kind, false),
                AccessAction::Nothing => {
                    self.report(key, &observed, &plan, &[]);
                    return Outcome::Done;
                }
            };
            if kind == AccessKind::Account
                && let Some((error, outcome)) = kept
            {
                self.report(key, &observed, &plan, &[(kind, &error)]);
                return outcome;
            }
            if let Some(pause) = self.store.work.pause(key, is_create) {
                return Outcome::RetryAfter(pause);
            }
            let sent = if plan.action == last {
                Err(WriteError::ineffective(resource(kind), full_name(kind, key)))
            } else {
                self.execute(key, &plan.action).await
            };
            match sent {
                Ok(()) => self.store.work.written(key),
                Err(error) => {
                    let before = kept.as_ref().map(|(error, _)| (AccessKind::Account, error));
                    let (outcome, is_refused) = self.failed(key, kind, &observed, &plan, &error, before);
                    if kind != AccessKind::Account && matches!(plan.action, AccessAction::Delete(..)) {
                        // The next attempt begins with the account again.
                        self.store.mark_deletable(key);
                    }
                    if !is_refused || !matches!(plan.action, AccessAction::Delete(AccessKind::Account, _)) {
                        return outcome;
                    }
                    self.store.mark_undeletable(key);
                    kept = Some((error, outcome));
                }
            }
            last = plan.action;
        }
        kept.map_or(Outcome::Retry, |(_, outcome)| outcome)
    }

    async fn execute(&self, key: &AccountKey, action: &AccessAction) -> Result<(), WriteError> {
        match action {
            AccessAction::Nothing => Ok(()),
            AccessAction::Create(kind, object) => self.create(*kind, key, object).await,
            AccessAction::Patch(kind, patch) => {
                let name = full_name(*kind, key);
                let request = Request { verb: "patch", resource: resource(*kind), name: &name };
                let api = self.api(*kind, key);
                let (own, params) = (kind.name(key), PatchParams::default());
                let call = async { api.patch(&own, &params, &Patch::Merge(patch)).await };
                let patched = self.store.host.writer.send(request, call).await?;
                info!("{} {name}: updated", resource(*kind));
                self.observe(*kind, key, &patched);
                Ok(())
            }
            AccessAction::Delete(kind, version) => {
                let name = full_name(*kind, key);
                let request = Request { verb: "delete", resource: resource(*kind), name: &name };
                let api = self.api(*kind, key);
                let (own, params) = (kind.name(key), delete_exactly(version));
                let response = self.store.host.writer.send(request, api.delete(&own, &params)).await?;
                info!("{} {name}: deleted", resource(*kind));
                // The response contains an object that a finalizer delays.
                match response.left().filter(|held| held.metadata.deletion_timestamp.is_some()) {
                    Some(held) => self.observe(*kind, key, &held),
                    None => self.store.forget(*kind, key),
                }
                Ok(())
            }
        }
    }

    async fn create(&self, kind: AccessKind, key: &AccountKey, object: &Value) -> Result<(), WriteError> {
        let name = full_name(kind, key);
        let failed = |error: serde_json::Error| {
            WriteError::new("create", resource(kind), name.clone(), Category::Invalid, error.to_string())
        };
        let object: DynamicObject = serde_json::from_value(object.clone()).map_err(failed)?;
        let request = Request { verb: "create", resource: resource(kind), name: &name };
        let api = self.api(kind, key);
        let created =
            self.store.host.writer.send(request, api.create(&PostParams::default(), &object)).await?;
        info!("{} {name}: created", resource(kind));
        let created = ObservedObject::read(&created.metadata, Some(&created.data));
        self.store.created(kind, key, created);
        Ok(())
    }

    fn observe(&self, kind: AccessKind, key: &AccountKey, object: &DynamicObject) {
        self.store.wrote(kind, key, ObservedObject::read(&object.metadata, Some(&object.data)));
    }

    fn api(&self, kind: AccessKind, key: &AccountKey) -> Api<DynamicObject> {
        Api::namespaced_with(self.store.host.client.clone(), key.cluster.as_str(), &api_resource(kind))
    }

    /// Decides what follows from a failed write, and returns whether it was refused. `before` is an earlier one that was.
    fn failed(
        &self,
        key: &AccountKey,
        kind: AccessKind,
        observed: &ObservedAccess,
        plan: &AccessPlan,
        error: &WriteError,
        before: Option<(AccessKind, &WriteError)>,
    ) -> (Outcome, bool) {
        let failed = self.store.work.failed(key, Some(&Namespace::from(key.cluster.as_str())), error);
        if failed.gone {
            self.store.forget(kind, key);
        }
        if error.category == Category::AlreadyExists {
            // Created by an earlier attempt whose response was lost, or by another client: the watch shows it.
            return (Outcome::Retry, false);
        }
        if failed.refused {
            let refused: Vec<_> = before.into_iter().chain([(kind, error)]).collect();
            self.report(key, observed, plan, &refused);
        }
        (failed.outcome, failed.refused)
    }

    /// Reports the findings of a plan, and refused writes.
    fn report(
        &self,
        key: &AccountKey,
        observed: &ObservedAccess,
        plan: &AccessPlan,
        refused: &[(AccessKind, &WriteError)],
    ) {
        let mut has_findings = false;
        for kind in AccessKind::ALL {
            let mut notes = plan.notes.get(&kind).cloned().unwrap_or_default();
            let errors = refused.iter().filter(|(refused, _)| *refused == kind);
            notes.extend(errors.map(|(_, error)| Note::new(Reason::WriteRefused, error.to_string())));
            has_findings |= !notes.is_empty();
            let uid = observed.object(kind).map(|object| object.version.uid.as_str());
            self.store.host.reporter.report(&subject(kind, key), uid, notes);
        }
        self.store.note(key, has_findings);
    }
}

/// An object of an account, as `NAMESPACE/NAME`.
fn full_name(kind: AccessKind, key: &AccountKey) -> String {
    format!("{}/{}", key.cluster, kind.name(key))
}
