//! The writer of the permissions: plans one write for every key and sends it.

use std::sync::Arc;

use hub_api::names::Namespace;
use hub_core::access::Known;
use hub_core::consumer_role::{ConsumerAction, ConsumerRole};
use hub_core::finding::{Finding, Reason};
use hub_core::rights::{BindingAction, TokensAction, plan_tokens};
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::{Request, delete_by_uid};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::store::{BINDINGS, CLUSTER_ROLES, ROLES, RightsKey, Store};

/// Number of workers.
const WORKERS: usize = 4;

/// Writes the permissions.
#[derive(Clone)]
pub(crate) struct PermissionWriter {
    store: Arc<Store>,
}

impl PermissionWriter {
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

    async fn reconcile(&self, key: &RightsKey) -> Outcome {
        let result = match key {
            RightsKey::Tokens => self.give_tokens().await,
            RightsKey::Copies(namespace) => self.give_copies(namespace).await,
            RightsKey::Consumer(role) => self.follow(role).await,
        };
        result.unwrap_or_else(|error| self.failed(key, &error))
    }

    async fn give_tokens(&self) -> Result<Outcome, WriteError> {
        let name = &self.store.settings.tokens_role;
        let names = self.store.token_names();
        let (version, rules) = match plan_tokens(&self.store.tokens_role(), names.as_ref()) {
            TokensAction::Nothing => return Ok(Outcome::Done),
            TokensAction::MissingRole => {
                warn!(
                    role = name,
                    "the ClusterRole does not exist, so the syncer cannot be granted permission to read tokens"
                );
                return Ok(Outcome::Done);
            }
            TokensAction::Patch(version, rules) => (version, rules),
        };
        if let Some(delayed) = self.store.work.delays(&RightsKey::Tokens, CLUSTER_ROLES, "patch") {
            return Ok(delayed.outcome);
        }
        let host = &self.store.host;
        let api: Api<ClusterRole> = Api::all(host.client.clone());
        let patch = rules_patch(&version, &rules);
        let request = Request { verb: "patch", resource: CLUSTER_ROLES, name };
        let patched = host.writer.send(request, api.patch(name, &PatchParams::default(), &patch)).await?;
        self.store.work.written(&RightsKey::Tokens, CLUSTER_ROLES, "patch");
        info!(role = name, accounts = names.map_or(0, |names| names.len()), "updated");
        self.store.wrote_tokens_role(patched.into());
        Ok(Outcome::Done)
    }

    async fn give_copies(&self, namespace: &Namespace) -> Result<Outcome, WriteError> {
        let (has, observed) = (self.store.has_permission(namespace), self.store.binding(namespace));
        let (role, key) = (self.store.copies_role(), RightsKey::Copies(namespace.clone()));
        let action = self.store.settings.plan_binding(namespace, has, &role, observed.as_ref());
        if let Some(verb) = action.verb()
            && let Some(delayed) = self.store.work.delays(&key, BINDINGS, verb)
        {
            return Ok(delayed.outcome);
        }
        match action {
            BindingAction::Nothing => Ok(Outcome::Done),
            BindingAction::MissingRole => {
                warn!(
                    role = self.store.settings.copies_role,
                    "the ClusterRole does not exist, so the syncer cannot be granted permission to write copies"
                );
                Ok(Outcome::Refused)
            }
            BindingAction::Create(binding) => {
                self.create(namespace, &binding).await?;
                self.store.work.written(&key, BINDINGS, "create");
                Ok(Outcome::Done)
            }
            BindingAction::Delete(uid) => {
                self.delete(namespace, &uid).await?;
                self.store.work.written(&key, BINDINGS, "delete");
                Ok(Outcome::Done)
            }
        }
    }

    async fn follow(&self, role: &ConsumerRole) -> Result<Outcome, WriteError> {
        let host = &self.store.host;
        let (action, uid) = self.store.plan_consumer(role);
        let (version, rules) = match action {
            ConsumerAction::Nothing => {
                self.store.reporter.forget(&role.subject());
                return Ok(Outcome::Done);
            }
            ConsumerAction::Report(finding) => {
                self.store.reporter.report(&role.subject(), uid.as_deref(), vec![finding]);
                return Ok(Outcome::Done);
            }
            ConsumerAction::Patch(version, rules) => (version, rules),
        };
        let key = RightsKey::Consumer(role.clone());
        if let Some(delayed) = self.store.work.delays(&key, ROLES, "patch") {
            return Ok(delayed.outcome);
        }
        let name = format!("{}/{}", role.namespace, role.name);
        let api: Api<Role> = Api::namespaced(host.client.clone(), role.namespace.as_str());
        let patch = rules_patch(&version, &rules);
        let request = Request { verb: "patch", resource: ROLES, name: &name };
        let patched =
            host.writer.send(request, api.patch(&role.name, &PatchParams::default(), &patch)).await?;
        self.store.work.written(&key, ROLES, "patch");
        self.store.reporter.forget(&role.subject());
        let copies = rules.iter().flat_map(|rule| rule.resource_names.iter().flatten()).count();
        info!(role = name, copies, "updated");
        self.store.wrote_consumer_role(role, patched.into());
        Ok(Outcome::Done)
    }

    async fn create(&self, namespace: &Namespace, binding: &RoleBinding) -> Result<(), WriteError> {
        let name = format!("{namespace}/{}", self.store.settings.copies_role);
        let request = Request { verb: "create", resource: BINDINGS, name: &name };
        let call = self.api(namespace);
        self.store.host.writer.send(request, call.create(&PostParams::default(), binding)).await?;
        info!(binding = name, "created");
        Ok(())
    }

    async fn delete(&self, namespace: &Namespace, uid: &str) -> Result<(), WriteError> {
        let role = &self.store.settings.copies_role;
        let name = format!("{namespace}/{role}");
        let params = delete_by_uid(uid);
        let request = Request { verb: "delete", resource: BINDINGS, name: &name };
        self.store.host.writer.send(request, self.api(namespace).delete(role, &params)).await?;
        info!(binding = name, "deleted");
        Ok(())
    }

    fn api(&self, namespace: &Namespace) -> Api<RoleBinding> {
        Api::namespaced(self.store.host.client.clone(), namespace.as_str())
    }

    /// Decides what follows from a failed write.
    fn failed(&self, key: &RightsKey, error: &WriteError) -> Outcome {
        let failed = self.store.work.failed(key, error);
        // The copies end with their namespace: a permission in a new one of that name would be for nothing.
        if let RightsKey::Copies(namespace) = key
            && error.verb == "create"
            && matches!(error.category, Category::NamespaceNotFound | Category::NamespaceTerminating)
            && self.store.namespace_ended(namespace)
        {
            return Outcome::Done;
        }
        if failed.gone {
            match key {
                RightsKey::Tokens => self.store.set_tokens_role(Known::Absent),
                RightsKey::Copies(namespace) => self.store.set_binding(namespace, None),
                RightsKey::Consumer(role) => self.store.keep_consumer_role(role, Known::Absent),
            }
        }
        if failed.refused {
            match key {
                RightsKey::Tokens | RightsKey::Copies(_) => {
                    warn!("{error}; the syncer lacks a permission until this is resolved");
                }
                RightsKey::Consumer(role) => {
                    let uid = self.store.plan_consumer(role).1;
                    let finding = Finding::new(Reason::WriteRefused, error.to_string());
                    self.store.reporter.report(&role.subject(), uid.as_deref(), vec![finding]);
                }
            }
        }
        failed.outcome
    }
}

/// Sets the rules of a role, if it still has this version.
fn rules_patch(version: &Version, rules: &[PolicyRule]) -> Patch<Value> {
    Patch::Merge(json!({
        "metadata": { "uid": version.uid, "resourceVersion": version.resource_version },
        "rules": rules,
    }))
}
