//! What there is, what there should be, and the one write in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::{AccountKey, Namespace};
use hub_core::fleet::Touched;
use hub_core::grant;
use hub_core::rights::{PermissionSettings, token_rules};
use hub_core::version::Version;
use hub_runtime::error::Category;
use hub_runtime::fleet::FleetCache;
use hub_runtime::host::Host;
use hub_runtime::queue::Outcome;
use hub_runtime::work::{PausedNamespaces, Work};
use hub_runtime::write::{Request, WriteError, delete_exactly};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::sources;

/// The feature gate that starts it.
pub const GATE: &str = "ClusterProfileCredRights";

/// How this loop is named in metrics.
const CONTROLLER: &str = "credential-rights";
/// Rights that are worked on at the same time.
const WORKERS: usize = 2;
/// How long a right outlives its need: the syncer has copies to delete.
const LINGER: Duration = Duration::from_mins(5);

/// What a worker looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// The right to tokens, by name.
    Tokens,
    /// The right to copies in a namespace.
    Copies(Namespace),
}

/// Gives the syncer its rights. Cheap to clone; clones share their state.
#[derive(Clone)]
pub struct CredentialRights {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    host: Arc<Host>,
    fleet: FleetCache,
    pub(crate) settings: PermissionSettings,
    pub(crate) state: Mutex<State>,
    pub(crate) work: Arc<Work<Key>>,
    paused: PausedNamespaces,
}

/// What there is.
#[derive(Default)]
pub(crate) struct State {
    /// The accounts that ask for copies, and whether these are all.
    pub(crate) accounts: BTreeSet<AccountKey>,
    pub(crate) all_accounts: bool,
    pub(crate) bindings: BTreeMap<Namespace, ObservedRoleBinding>,
    /// The role that names the tokens.
    pub(crate) role: Option<Role>,
    /// The uid of the role of copies, which RoleBindings go with.
    pub(crate) copies_role: Option<String>,
    /// Since when a right is not needed.
    idle: BTreeMap<Namespace, Instant>,
}

/// A RoleBinding of ours.
#[derive(Clone)]
pub(crate) struct ObservedRoleBinding {
    version: Version,
    /// Nothing where it cannot be read.
    object: Option<RoleBinding>,
}

impl ObservedRoleBinding {
    pub(crate) fn read(metadata: &ObjectMeta, object: Option<RoleBinding>) -> Self {
        Self { version: Version::of(metadata), object }
    }
}

/// The role that names the tokens.
#[derive(Clone)]
pub(crate) struct Role {
    version: Version,
    rules: Vec<PolicyRule>,
}

impl From<ClusterRole> for Role {
    fn from(role: ClusterRole) -> Self {
        Self { version: Version::of(&role.metadata), rules: role.rules.unwrap_or_default() }
    }
}

impl CredentialRights {
    /// Starts to watch. Call it before the fleet's watches start.
    #[must_use]
    pub fn start(host: &Arc<Host>, fleet: &FleetCache, settings: PermissionSettings) -> Self {
        let inner = Inner {
            host: Arc::clone(host),
            fleet: fleet.clone(),
            settings,
            state: Mutex::default(),
            work: Work::new(host, CONTROLLER),
            paused: PausedNamespaces::default(),
        };
        host.metrics.declare_written("rolebindings");
        host.metrics.declare_written("clusterroles");
        let this = Self { inner: Arc::new(inner) };
        let listener = this.clone();
        fleet.listen(move |_, touched| {
            if let Touched::Namespaces(namespaces) = touched {
                for namespace in namespaces {
                    listener.inner.paused.resume(namespace);
                    listener.inner.work.add(Key::Copies(namespace.clone()));
                }
            }
        });
        sources::watch(&this, host);
        this
    }

    /// Works until [`Self::stop`]. Call it when every watch has its first answer.
    pub async fn work(&self) {
        let this = self.clone();
        let reconcile = move |key| {
            let this = this.clone();
            async move { this.reconcile(&key).await }
        };
        self.inner.work.run(WORKERS, reconcile).await;
    }

    /// Ends [`Self::work`].
    pub fn stop(&self) {
        self.inner.work.stop();
    }

    async fn reconcile(&self, key: &Key) -> Outcome {
        let result = match key {
            Key::Tokens => self.give_tokens().await,
            Key::Copies(namespace) => self.give_copies(namespace).await,
        };
        result.unwrap_or_else(|error| self.failed(key, &error))
    }

    async fn give_tokens(&self) -> Result<Outcome, WriteError> {
        let (role, rules) = {
            let state = self.inner.state.lock();
            let Some(role) = state.role.clone() else {
                let name = &self.inner.settings.tokens_role;
                warn!(
                    role = name,
                    "there is no such ClusterRole, so the syncer cannot be given a right to tokens"
                );
                return Ok(Outcome::Done);
            };
            if !state.all_accounts {
                return Ok(Outcome::Done);
            }
            (role, token_rules(&state.accounts.iter().map(|key| key.account.clone()).collect()))
        };
        if role.rules == rules {
            return Ok(Outcome::Done);
        }
        let (host, name) = (&self.inner.host, &self.inner.settings.tokens_role);
        let api: Api<ClusterRole> = Api::all(host.client.clone());
        let patch = Patch::Merge(json!({
            "metadata": { "uid": role.version.uid, "resourceVersion": role.version.resource_version },
            "rules": rules,
        }));
        let request = Request { verb: "patch", resource: "clusterroles", name };
        let patched = host.writer.send(request, api.patch(name, &PatchParams::default(), &patch)).await?;
        info!(
            role = name,
            accounts = rules.iter().flat_map(|rule| &rule.resource_names).flatten().count(),
            "updated"
        );
        self.inner.state.lock().role = Some(patched.into());
        Ok(Outcome::Done)
    }

    async fn give_copies(&self, namespace: &Namespace) -> Result<Outcome, WriteError> {
        let needed = grant::is_bound(&self.inner.fleet.read(), namespace);
        let (observed, role) = {
            let state = self.inner.state.lock();
            (state.bindings.get(namespace).cloned(), state.copies_role.clone())
        };
        if observed.is_none() && !needed {
            self.inner.state.lock().idle.remove(namespace);
            return Ok(Outcome::Done);
        }
        let Some(role) = role else {
            let name = &self.inner.settings.copies_role;
            warn!(
                role = name,
                "there is no such ClusterRole, so the syncer cannot be given a right to copies"
            );
            return Ok(Outcome::Refused);
        };
        let is_right = |binding: &ObservedRoleBinding| {
            binding.object.as_ref().is_some_and(|object| self.inner.settings.is_right(object, &role))
        };
        match observed {
            None => match self.inner.paused.pause_of(namespace) {
                Some(pause) => Ok(Outcome::RetryAfter(pause)),
                None => self.create(namespace, &role).await,
            },
            Some(binding) if !is_right(&binding) => self.delete(namespace, binding.version).await,
            Some(_) if needed => {
                self.inner.state.lock().idle.remove(namespace);
                Ok(Outcome::Done)
            }
            Some(binding) => {
                let now = Instant::now();
                let since = *self.inner.state.lock().idle.entry(namespace.clone()).or_insert(now);
                match LINGER.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
                    Some(left) => Ok(Outcome::RetryAfter(left)),
                    None => self.delete(namespace, binding.version).await,
                }
            }
        }
    }

    async fn create(&self, namespace: &Namespace, role_uid: &str) -> Result<Outcome, WriteError> {
        let binding = self.inner.settings.binding(namespace, role_uid);
        let name = format!("{namespace}/{}", self.inner.settings.copies_role);
        let request = Request { verb: "create", resource: "rolebindings", name: &name };
        let call = self.api(namespace);
        self.inner.host.writer.send(request, call.create(&PostParams::default(), &binding)).await?;
        info!(binding = name, "created");
        Ok(Outcome::Done)
    }

    /// A RoleBinding that gives something else, or to somebody else, is made anew: its roleRef cannot change.
    async fn delete(&self, namespace: &Namespace, version: Version) -> Result<Outcome, WriteError> {
        let role = &self.inner.settings.copies_role;
        let name = format!("{namespace}/{role}");
        let params = delete_exactly(&version);
        let request = Request { verb: "delete", resource: "rolebindings", name: &name };
        self.inner.host.writer.send(request, self.api(namespace).delete(role, &params)).await?;
        info!(binding = name, "deleted");
        Ok(Outcome::Done)
    }

    fn api(&self, namespace: &Namespace) -> Api<RoleBinding> {
        Api::namespaced(self.inner.host.client.clone(), namespace.as_str())
    }

    /// Decides how a failed write goes on, and tells it in the one place that does.
    fn failed(&self, key: &Key, error: &WriteError) -> Outcome {
        self.inner.host.metrics.reconcile_error(CONTROLLER, error.category);
        match (error.category, key) {
            (Category::NotLeader, _) => Outcome::Retry,
            (Category::Conflict, _) => {
                debug!(%error, "somebody else was faster");
                Outcome::Retry
            }
            (Category::NamespaceTerminating, Key::Copies(namespace)) => {
                self.inner.paused.pause(namespace, error)
            }
            (Category::NotFound, Key::Copies(namespace)) if error.verb == "create" => {
                self.inner.paused.pause(namespace, error)
            }
            // Its event is on the way.
            (Category::NotFound, _) => Outcome::Refused,
            (Category::AlreadyExists | Category::Invalid | Category::Forbidden, _) => {
                warn!("{error}; the syncer lacks a right until this is mended");
                Outcome::Refused
            }
            (category, _) => {
                warn!(category = category.as_str(), "{error}; trying again");
                Outcome::Retry
            }
        }
    }
}
