//! The permissions that there should be, and the one write in between.

use std::sync::Arc;
use std::time::Duration;

use hub_api::names::Namespace;
use hub_core::rights::token_rules;
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::write::{Request, WriteError, delete_exactly};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::store::{Key, ObservedRoleBinding, Store};

/// Permissions that are worked on at the same time.
const WORKERS: usize = 2;
/// How long a permission outlives its need: the syncer has copies to delete.
const LINGER: Duration = Duration::from_mins(5);

/// Writes the permissions.
#[derive(Clone)]
pub(crate) struct PermissionWriter {
    store: Arc<Store>,
}

impl PermissionWriter {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store) }
    }

    /// Works until `stop`; then returns when what is in flight is done.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let work = Arc::clone(&self.store.work);
        let reconcile = move |key| {
            let this = self.clone();
            async move { this.reconcile(&key).await }
        };
        work.run(WORKERS, stop, reconcile).await;
    }

    async fn reconcile(&self, key: &Key) -> Outcome {
        let result = match key {
            Key::Tokens => self.give_tokens().await,
            Key::Copies(namespace) => self.give_copies(namespace).await,
        };
        result.unwrap_or_else(|error| self.failed(key, &error))
    }

    async fn give_tokens(&self) -> Result<Outcome, WriteError> {
        let name = &self.store.settings.tokens_role;
        let Some(role) = self.store.tokens_role() else {
            warn!(
                role = name,
                "there is no such ClusterRole, so the syncer cannot be given a right to tokens"
            );
            return Ok(Outcome::Done);
        };
        let Some(names) = self.store.token_names() else { return Ok(Outcome::Done) };
        let rules = token_rules(&names);
        if role.rules == rules {
            return Ok(Outcome::Done);
        }
        let host = &self.store.host;
        let api: Api<ClusterRole> = Api::all(host.client.clone());
        let patch = Patch::Merge(json!({
            "metadata": { "uid": role.version.uid, "resourceVersion": role.version.resource_version },
            "rules": rules,
        }));
        let request = Request { verb: "patch", resource: "clusterroles", name };
        let patched = host.writer.send(request, api.patch(name, &PatchParams::default(), &patch)).await?;
        info!(role = name, accounts = names.len(), "updated");
        self.store.keep_tokens_role(patched.into());
        Ok(Outcome::Done)
    }

    async fn give_copies(&self, namespace: &Namespace) -> Result<Outcome, WriteError> {
        let (needed, observed) = (self.store.is_needed(namespace), self.store.binding(namespace));
        if observed.is_none() && !needed {
            self.store.end_idle(namespace);
            return Ok(Outcome::Done);
        }
        let Some(role) = self.store.copies_role() else {
            let name = &self.store.settings.copies_role;
            warn!(
                role = name,
                "there is no such ClusterRole, so the syncer cannot be given a right to copies"
            );
            return Ok(Outcome::Refused);
        };
        let is_right = |binding: &ObservedRoleBinding| {
            binding.object.as_ref().is_some_and(|object| self.store.settings.is_right(object, &role))
        };
        if let Some(pause) = self.store.work.pause(namespace, observed.is_none()) {
            return Ok(Outcome::RetryAfter(pause));
        }
        match observed {
            None => self.create(namespace, &role).await,
            Some(binding) if !is_right(&binding) => self.delete(namespace, binding.version).await,
            Some(_) if needed => Ok(Outcome::Done),
            Some(binding) => {
                let idle = self.store.idle_for(namespace);
                match LINGER.checked_sub(idle).filter(|left| !left.is_zero()) {
                    Some(left) => Ok(Outcome::RetryAfter(left)),
                    None => self.delete(namespace, binding.version).await,
                }
            }
        }
    }

    async fn create(&self, namespace: &Namespace, role_uid: &str) -> Result<Outcome, WriteError> {
        let binding = self.store.settings.binding(namespace, role_uid);
        let name = format!("{namespace}/{}", self.store.settings.copies_role);
        let request = Request { verb: "create", resource: "rolebindings", name: &name };
        let call = self.api(namespace);
        self.store.host.writer.send(request, call.create(&PostParams::default(), &binding)).await?;
        self.store.work.written();
        info!(binding = name, "created");
        Ok(Outcome::Done)
    }

    /// A RoleBinding that gives something else, or to somebody else, is made anew: its roleRef cannot change.
    async fn delete(&self, namespace: &Namespace, version: Version) -> Result<Outcome, WriteError> {
        let role = &self.store.settings.copies_role;
        let name = format!("{namespace}/{role}");
        let params = delete_exactly(&version);
        let request = Request { verb: "delete", resource: "rolebindings", name: &name };
        self.store.host.writer.send(request, self.api(namespace).delete(role, &params)).await?;
        info!(binding = name, "deleted");
        Ok(Outcome::Done)
    }

    fn api(&self, namespace: &Namespace) -> Api<RoleBinding> {
        Api::namespaced(self.store.host.client.clone(), namespace.as_str())
    }

    /// What follows from a write that failed.
    fn failed(&self, key: &Key, error: &WriteError) -> Outcome {
        let namespace = match key {
            Key::Tokens => None,
            Key::Copies(namespace) => Some(namespace),
        };
        let failed = self.store.work.failed(key, namespace, error);
        if failed.gone {
            match key {
                Key::Tokens => self.store.set_tokens_role(None),
                Key::Copies(namespace) => self.store.set_binding(namespace, None),
            }
        }
        if failed.refused {
            warn!("{error}; the syncer lacks a right until this is mended");
        }
        failed.outcome
    }
}
