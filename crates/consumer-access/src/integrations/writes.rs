//! The writer: plans one write for every object and sends it.

use std::sync::Arc;

use hub_core::consumer_access::{IntegrationAction, IntegrationKey, IntegrationPlan, foreign_cluster_secret};
use hub_core::finding::{Finding, Reason};
use hub_runtime::queue::Outcome;
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::{Request, delete_exactly};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{IntegrationStore, api_resource, read};

/// Number of workers.
const WORKERS: usize = 4;

/// Writes the objects of an integration.
#[derive(Clone)]
pub(crate) struct IntegrationWriter {
    store: Arc<IntegrationStore>,
}

impl IntegrationWriter {
    pub(crate) fn new(store: &Arc<IntegrationStore>) -> Self {
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

    /// Writes one object once, and checks that this was all.
    async fn reconcile(&self, key: &IntegrationKey) -> Outcome {
        let Some((uid, plan)) = self.store.plan(key) else { return Outcome::Done };
        let Some(verb) = plan.action.verb() else {
            self.report(key, uid.as_deref(), &plan, None);
            return Outcome::Done;
        };
        if let Some(delayed) = self.store.work.delays(key, key.kind().1, verb) {
            if let Some(error) = delayed.error {
                self.report(key, uid.as_deref(), &plan, Some(&error));
            }
            return delayed.outcome;
        }
        let error = match self.execute(key, &plan.action).await {
            Ok(exists) => {
                self.store.work.written(key, key.kind().1, verb);
                let Some((uid, next)) = self.store.plan(key) else { return Outcome::Done };
                if !exists || next.action != plan.action {
                    self.report(key, uid.as_deref(), &next, None);
                    let is_done = next.action == IntegrationAction::Nothing;
                    return if is_done { Outcome::Done } else { Outcome::Retry };
                }
                WriteError::ineffective(key.kind().1, key.name())
            }
            Err(error) => error,
        };
        let failed = self.store.work.failed(key, &error);
        if let (true, Some(uid)) = (failed.gone, &uid) {
            self.store.gone(key, uid);
        }
        if error.category == Category::NotServed {
            self.store.report_not_listed();
        }
        if error.category == Category::AlreadyExists {
            // Created by an earlier attempt whose response was lost, or by another client: the watch shows it, unless it is
            // a Secret without our labels.
            if !self.store.met_another(key) {
                return Outcome::Retry;
            }
            let taken = IntegrationPlan { findings: vec![foreign_cluster_secret()], ..plan };
            self.report(key, None, &taken, None);
            return Outcome::Refused;
        }
        if failed.refused {
            self.report(key, uid.as_deref(), &plan, Some(&error));
        }
        failed.outcome
    }

    /// Sends a write. Returns false if a created object may have ended since.
    async fn execute(&self, key: &IntegrationKey, action: &IntegrationAction) -> Result<bool, WriteError> {
        let (resource, name) = (key.kind().1, &*key.name());
        let client = self.store.host.client.clone();
        let api: Api<DynamicObject> = match key.namespace() {
            Some(namespace) => Api::namespaced_with(client, namespace.as_str(), &api_resource(key)),
            None => Api::all_with(client, &api_resource(key)),
        };
        let writer = &self.store.host.writer;
        match action {
            IntegrationAction::Nothing => {}
            IntegrationAction::Create(object) => {
                let object = parsed(key, object)?;
                let request = Request { verb: "create", resource, name };
                self.store.creating(key);
                let created = writer.send(request, api.create(&PostParams::default(), &object)).await;
                let exists = self.store.created(key, created.as_ref().ok().map(|created| read(key, created)));
                created?;
                info!("{resource} {name}: created");
                return Ok(exists);
            }
            IntegrationAction::Patch(patch) => {
                let request = Request { verb: "patch", resource, name };
                let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
                let patched = writer.send(request, api.patch(name, &params, &patch)).await?;
                info!("{resource} {name}: updated");
                self.store.wrote(key, read(key, &patched));
            }
            IntegrationAction::Delete(version) => {
                let request = Request { verb: "delete", resource, name };
                let params = delete_exactly(version);
                let response = writer.send(request, api.delete(name, &params)).await?;
                info!("{resource} {name}: deleted");
                // The response contains an object that a finalizer delays.
                match response.left().filter(|held| held.metadata.deletion_timestamp.is_some()) {
                    Some(held) => self.store.wrote(key, read(key, &held)),
                    None => self.store.gone(key, &version.uid),
                }
            }
        }
        Ok(true)
    }

    /// Reports the findings of a plan, and a refused write.
    fn report(
        &self,
        key: &IntegrationKey,
        uid: Option<&str>,
        plan: &IntegrationPlan,
        refused: Option<&WriteError>,
    ) {
        let mut findings = plan.findings.clone();
        findings.extend(refused.map(|error| Finding::new(Reason::WriteRefused, error.to_string())));
        self.store.reporter.report(&key.subject(), uid, findings);
    }
}

fn parsed(key: &IntegrationKey, object: &Value) -> Result<DynamicObject, WriteError> {
    serde_json::from_value(object.clone()).map_err(|error| {
        WriteError::new("create", key.kind().1, key.name(), Category::Invalid, error.to_string())
    })
}
