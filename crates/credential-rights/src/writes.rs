//! The writer of the permissions.

use std::sync::Arc;

use hub_core::action::Action;
use hub_core::finding::{Finding, Reason};
use hub_core::rights::{MissingRole, plan_tokens};
use hub_core::version::Version;
use hub_runtime::host::Host;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read, Reads};
use hub_runtime::watch::Expectations;
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::execute::Target;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding};
use kube::Resource;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::warn;

use crate::store::{BINDINGS, CLUSTER_ROLES, ROLES, RightsKey, Store};

/// Writes the permissions.
pub(crate) struct PermissionWriter {
    store: Arc<Store>,
}

/// What was planned beside the write.
pub(crate) struct PlannedPermission {
    /// The finding on a consumer's Role.
    finding: Option<Finding>,
    /// Whether the role to bind is missing.
    is_missing: bool,
}

impl PermissionWriter {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store) }
    }

    fn plan_next(&self, key: &RightsKey) -> Result<Action<Value, Value>, Option<Finding>> {
        let missing = |MissingRole| {
            let role = self.target(key).name;
            warn!(role, "the ClusterRole does not exist, so the syncer lacks a permission");
            None
        };
        match key {
            RightsKey::Tokens => {
                let names = self.store.token_names();
                let action = plan_tokens(&self.store.tokens_role(), names.as_ref()).map_err(missing)?;
                Ok(action.map(|never| match never {}, |rules| rules_patch(&rules)))
            }
            RightsKey::Copies(namespace) => {
                let (has, observed) = (self.store.has_permission(namespace), self.store.binding(namespace));
                let role = self.store.copies_role();
                let action = self.store.settings.plan_binding(namespace, has, &role, observed.as_ref());
                Ok(action.map_err(missing)?.map(|binding| json!(binding), |never| match never {}))
            }
            RightsKey::Consumer(role) => {
                let action = self.store.plan_consumer(role).map_err(Some)?;
                Ok(action.map(|never| match never {}, |rules| rules_patch(&rules)))
            }
        }
    }

    /// Reports a finding on a consumer's Role, or that there is none.
    fn report(&self, key: &RightsKey, finding: Option<Finding>) {
        if let RightsKey::Consumer(role) = key {
            let uid = self.store.known(key).map(|version| version.uid);
            self.store.reporter.report(&role.subject(), uid.as_deref(), finding.into_iter().collect());
        }
    }
}

impl Objects for PermissionWriter {
    type Key = RightsKey;
    type Create = Value;
    type Patch = Value;
    type Plan = PlannedPermission;

    const WORKERS: usize = 4;
    const READS: Reads = Reads::Never;

    fn host(&self) -> &Host {
        &self.store.host
    }

    fn work(&self) -> &Arc<Work<RightsKey>> {
        &self.store.work
    }

    fn expectations(&self) -> &Mutex<Expectations<RightsKey>> {
        &self.store.expectations
    }

    fn target(&self, key: &RightsKey) -> Target {
        let settings = &self.store.settings;
        match key {
            RightsKey::Tokens => target::<ClusterRole>(CLUSTER_ROLES, None, &settings.tokens_role),
            RightsKey::Copies(namespace) => {
                target::<RoleBinding>(BINDINGS, Some(namespace.as_str()), &settings.copies_role)
            }
            RightsKey::Consumer(role) => target::<Role>(ROLES, Some(role.namespace.as_str()), &role.name),
        }
    }

    fn known(&self, key: &RightsKey) -> Option<Version> {
        self.store.known(key)
    }

    fn plan(&self, key: &RightsKey, _: Option<&Read>) -> Planned<Self> {
        let (action, plan) = match self.plan_next(key) {
            Ok(action) => (action, PlannedPermission { finding: None, is_missing: false }),
            Err(finding) => {
                let is_missing = matches!(key, RightsKey::Copies(_));
                (Action::Nothing, PlannedPermission { finding, is_missing })
            }
        };
        Planned::Write(action, plan)
    }

    fn settled(&self, key: &RightsKey, plan: PlannedPermission) -> Outcome {
        self.report(key, plan.finding);
        if plan.is_missing { Outcome::Refused } else { Outcome::Done }
    }

    fn failed(&self, key: &RightsKey, _: &PlannedPermission, error: &WriteError) -> Option<Outcome> {
        let is_over = matches!(error.category, Category::NamespaceNotFound | Category::NamespaceTerminating);
        // The copies end with their namespace: a permission in a new one of that name would be for nothing.
        let RightsKey::Copies(namespace) = key else { return None };
        (error.verb == "create" && is_over && self.store.namespace_ended(namespace)).then_some(Outcome::Done)
    }

    fn refused(&self, key: &RightsKey, _: &PlannedPermission, error: &WriteError) {
        if !matches!(key, RightsKey::Consumer(_)) {
            warn!("{error}; the syncer lacks a permission until this is resolved");
        }
        self.report(key, Some(Finding::new(Reason::WriteRefused, error.to_string())));
    }
}

fn target<K: Resource<DynamicType = ()>>(
    resource: &'static str,
    namespace: Option<&str>,
    name: &str,
) -> Target {
    Target {
        resource,
        collection: K::url_path(&(), namespace),
        name: name.to_owned(),
        full_name: namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")),
        field_manager: None,
    }
}

/// The patch that sets the rules of a role.
fn rules_patch(rules: &[PolicyRule]) -> Value {
    json!({ "rules": rules })
}
