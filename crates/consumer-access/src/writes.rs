//! The writer: plans one write for every account of a consumer and sends it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::AccountKey;
use hub_core::consumer_access::{AccessAction, AccessKind, AccessPlan, ObservedAccess, ObservedObject};
use hub_core::finding::{Finding, Reason};
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Delayed;
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::{Request, delete_exactly};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::store::{Store, api_resource, resource, subject};

/// Number of workers.
const WORKERS: usize = 8;
/// The maximum number of steps in a row for a key: a write of each kind, and one that replaces or follows each.
const MAX_ROUNDS: usize = 6;

/// Why nothing of a kind is written in this attempt.
struct Blocked {
    /// When it is tried again.
    outcome: Outcome,
    /// The write that the API server has refused; `None` if another cause delays it.
    refused: Option<WriteError>,
}

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

    /// Reconciles the access of one account, one write after the other. A write that fails, or has to wait, delays those
    /// of other kinds only if it shows that the API server does not process any, or that the plan is stale.
    async fn reconcile(&self, key: &AccountKey) -> Outcome {
        let mut last = AccessAction::Nothing;
        let mut blocked: BTreeMap<(AccessKind, &'static str), Blocked> = BTreeMap::new();
        for _ in 0..MAX_ROUNDS {
            let Some((observed, plan)) = self.store.plan(key, blocked.keys().copied().collect()) else {
                return Outcome::Done;
            };
            let Some(kind) = plan.action.kind() else {
                self.report(key, &observed, &plan, &blocked);
                return soonest(blocked.into_values().map(|blocked| blocked.outcome));
            };
            let verb = plan.action.verb().unwrap_or_default();
            if let Some(Delayed { outcome, error }) = self.store.work.delays(key, resource(kind), verb) {
                let error = error.map(|error| WriteError { name: full_name(kind, key), ..error });
                blocked.insert((kind, verb), Blocked { outcome, refused: error });
                continue;
            }
            let sent = if plan.action == last {
                Err(WriteError::ineffective(resource(kind), full_name(kind, key)))
            } else {
                self.execute(key, &plan.action).await
            };
            last = plan.action;
            match sent {
                Ok(exists) => {
                    self.store.work.written(key, resource(kind), verb);
                    if !exists {
                        last = AccessAction::Nothing;
                    }
                }
                Err(error) => {
                    let failed = match self.failed(key, kind, &observed, error) {
                        Ok(failed) => failed,
                        Err(outcome) => return outcome,
                    };
                    blocked.insert((kind, verb), failed);
                }
            }
        }
        Outcome::Retry
    }

    /// Sends a write. Returns false if a created object may have ended since: the same write is then not one without
    /// effect.
    async fn execute(&self, key: &AccountKey, action: &AccessAction) -> Result<bool, WriteError> {
        match action {
            AccessAction::Nothing => {}
            AccessAction::Create(kind, object) => return self.create(*kind, key, object).await,
            AccessAction::Patch(kind, patch) => {
                let name = full_name(*kind, key);
                let request = Request { verb: "patch", resource: resource(*kind), name: &name };
                let api = self.api(*kind, key);
                let (own, params) = (kind.name(key), PatchParams::default());
                let call = async { api.patch(&own, &params, &Patch::Merge(patch)).await };
                let patched = self.store.host.writer.send(request, call).await?;
                info!("{} {name}: updated", resource(*kind));
                self.observe(*kind, key, &patched);
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
                    None => self.store.gone(*kind, key, &version.uid),
                }
            }
        }
        Ok(true)
    }

    async fn create(&self, kind: AccessKind, key: &AccountKey, object: &Value) -> Result<bool, WriteError> {
        let name = full_name(kind, key);
        let failed = |error: serde_json::Error| {
            WriteError::new("create", resource(kind), name.clone(), Category::Invalid, error.to_string())
        };
        let object: DynamicObject = serde_json::from_value(object.clone()).map_err(failed)?;
        let request = Request { verb: "create", resource: resource(kind), name: &name };
        let api = self.api(kind, key);
        self.store.creating(kind, key);
        let created = self.store.host.writer.send(request, api.create(&PostParams::default(), &object)).await;
        let read = |object: &DynamicObject| ObservedObject::read(&object.metadata, Some(&object.data));
        let exists = self.store.created(kind, key, created.as_ref().ok().map(read));
        created?;
        info!("{} {name}: created", resource(kind));
        Ok(exists)
    }

    fn observe(&self, kind: AccessKind, key: &AccountKey, object: &DynamicObject) {
        self.store.wrote(kind, key, ObservedObject::read(&object.metadata, Some(&object.data)));
    }

    fn api(&self, kind: AccessKind, key: &AccountKey) -> Api<DynamicObject> {
        Api::namespaced_with(self.store.host.client.clone(), key.cluster.as_str(), &api_resource(kind))
    }

    /// Decides what follows from a failed write: for its kind alone, or as an error for the whole attempt.
    fn failed(
        &self,
        key: &AccountKey,
        kind: AccessKind,
        observed: &ObservedAccess,
        error: WriteError,
    ) -> Result<Blocked, Outcome> {
        let failed = self.store.work.failed(key, &error);
        if let (true, Some(object)) = (failed.gone, observed.object(kind)) {
            self.store.gone(kind, key, &object.version.uid);
        }
        match error.category {
            // Created by an earlier attempt whose response was lost, or by another client: the watch shows it.
            Category::AlreadyExists => Err(Outcome::Retry),
            _ if failed.refused => Ok(Blocked { outcome: failed.outcome, refused: Some(error) }),
            // The CRD is missing, or a webhook for the kind fails.
            Category::NotServed | Category::Internal => {
                Ok(Blocked { outcome: failed.outcome, refused: None })
            }
            _ => Err(failed.outcome),
        }
    }

    /// Reports the findings of a plan, and refused writes.
    fn report(
        &self,
        key: &AccountKey,
        observed: &ObservedAccess,
        plan: &AccessPlan,
        blocked: &BTreeMap<(AccessKind, &'static str), Blocked>,
    ) {
        let mut has_findings = false;
        for kind in AccessKind::ALL {
            let mut findings = plan.findings.get(&kind).cloned().unwrap_or_default();
            let of_kind =
                blocked.iter().filter(|((blocked, _), _)| *blocked == kind).map(|(_, blocked)| blocked);
            match of_kind.max_by_key(|blocked| blocked.refused.is_some()) {
                None => {}
                Some(Blocked { refused: Some(error), .. }) => {
                    findings.push(Finding::new(Reason::WriteRefused, error.to_string()));
                }
                // What is reported of a write that now has to wait stays.
                Some(Blocked { refused: None, .. }) => {
                    has_findings = true;
                    continue;
                }
            }
            has_findings |= !findings.is_empty();
            let uid = observed.object(kind).map(|object| object.version.uid.as_str());
            self.store.reporter.report(&subject(kind, key), uid, findings);
        }
        self.store.set_has_findings(key, has_findings);
    }
}

/// What follows for a key after an attempt with these failures: the next one is that of the failure that is retried first.
fn soonest(failures: impl Iterator<Item = Outcome>) -> Outcome {
    let order = |outcome: &Outcome| match outcome {
        Outcome::Retry | Outcome::Held => (0, Duration::ZERO),
        Outcome::RetryNotBefore(wait) | Outcome::RetryAfter(wait) => (1, *wait),
        Outcome::Refused => (2, Duration::ZERO),
        Outcome::Parked => (3, Duration::ZERO),
        Outcome::Done => (4, Duration::ZERO),
    };
    failures.min_by_key(order).unwrap_or(Outcome::Done)
}

/// An object of an account, as `NAMESPACE/NAME`.
fn full_name(kind: AccessKind, key: &AccountKey) -> String {
    format!("{}/{}", key.cluster, kind.name(key))
}
