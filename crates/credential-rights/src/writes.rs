//! The writer of the permissions.

use std::sync::Arc;

use hub_core::action::Action;
use hub_core::consumer_role::RoleKind;
use hub_core::finding::{Finding, Reason};
use hub_core::known::Known;
use hub_core::rights::{MissingRole, ObservedRole, plan_tokens};
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read};
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::execute::Target;
use hub_runtime::written::Left;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::warn;

use crate::store::{BINDINGS, CLUSTER_ROLES, ROLES, RightsKey, Store};

/// Why there is no write.
pub(crate) enum NoPlan {
    /// A finding to report on an application's Role.
    Finding(Finding),
    /// The ClusterRole does not exist.
    MissingRole,
}

impl Store {
    /// The next write, or why there is none.
    fn plan_next(
        &self,
        key: &RightsKey,
        read: Option<&Read>,
    ) -> Result<Action<Value, Value>, NoPlan> {
        let observed = match (read, key) {
            (None, key) => self.observed(key),
            (Some(read), RightsKey::Tokens) => as_read::<ClusterRole>(read),
            (Some(read), RightsKey::Consumer(role)) if role.kind == RoleKind::Role => {
                as_read::<Role>(read)
            }
            (Some(read), _) => as_read::<RoleBinding>(read),
        };
        let action = match key {
            RightsKey::Tokens => plan_tokens(&observed, self.token_names(&observed).as_ref()),
            RightsKey::Copies(namespace) => {
                let Some(has) = self.has_permission(namespace) else { return Ok(Action::Nothing) };
                let (role, observed) = (self.copies_role(), observed.present());
                self.settings.plan_binding(namespace, has, &role, observed)
            }
            RightsKey::Consumer(role) => {
                return self.plan_consumer(role, &observed).map_err(NoPlan::Finding);
            }
        };
        let action = action.map_err(|MissingRole| NoPlan::MissingRole)?;
        Ok(action.map(|binding| json!(binding), |rules| json!({ "rules": rules })))
    }

    /// Reports a finding on an application's Role, or that there is none.
    fn report(&self, key: &RightsKey, finding: Option<Finding>) {
        if let RightsKey::Consumer(role) = key {
            let uid = self.known(key).map(|version| version.uid);
            self.reporter.report(&role.subject(), uid.as_ref(), finding.into_iter().collect());
        }
    }
}

impl Objects for Store {
    type Key = RightsKey;
    type Create = Value;
    type Patch = Value;
    type Plan = Option<NoPlan>;

    const WORKERS: usize = 4;

    fn work(&self) -> &Arc<Work<RightsKey>> {
        &self.work
    }

    fn target(&self, key: &RightsKey) -> Target {
        let settings = &self.settings;
        match key {
            RightsKey::Tokens => {
                Target::of::<ClusterRole>(CLUSTER_ROLES, &(), None, &settings.tokens_role)
            }
            RightsKey::Copies(namespace) => Target::of::<RoleBinding>(
                BINDINGS,
                &(),
                Some(namespace.as_str()),
                &settings.copies_role,
            ),
            RightsKey::Consumer(role) => {
                let namespace = Some(role.access.namespace.as_str());
                match role.kind {
                    RoleKind::Role => Target::of::<Role>(ROLES, &(), namespace, &role.name()),
                    RoleKind::RoleBinding => {
                        Target::of::<RoleBinding>(BINDINGS, &(), namespace, &role.name())
                    }
                }
            }
        }
    }

    fn known(&self, key: &RightsKey) -> Option<Version> {
        self.observed(key).present().map(|observed| observed.version.clone())
    }

    fn plan(&self, key: &RightsKey, read: Option<&Read>) -> Planned<Self> {
        if let (RightsKey::Tokens, None, Some(wait)) = (key, read, self.wait_for_tokens()) {
            return Planned::Wait(wait);
        }
        let action = match self.plan_next(key, read) {
            Ok(action) => action,
            Err(why) => return Planned::Write(Action::Nothing, Some(why)),
        };
        if let (RightsKey::Consumer(_), Action::Patch(_, patch)) = (key, &action)
            && let Some(wait) = self.wait(key, patch)
        {
            return Planned::Wait(wait);
        }
        Planned::Write(action, None)
    }

    fn settled(&self, key: &RightsKey, why: Option<NoPlan>) -> Outcome {
        match why {
            None => self.report(key, None),
            Some(NoPlan::Finding(finding)) => self.report(key, Some(finding)),
            Some(NoPlan::MissingRole) => {
                let role = self.target(key).name;
                warn!(role, "the ClusterRole does not exist, so the syncer lacks a permission");
                return if *key == RightsKey::Tokens { Outcome::Done } else { Outcome::Refused };
            }
        }
        Outcome::Done
    }

    fn wrote(&self, key: &RightsKey, _: &Option<NoPlan>, _: &str, _: &Left) {
        if let RightsKey::Consumer(_) = key {
            self.wrote_role(key);
        }
    }

    fn failed(&self, key: &RightsKey, _: &Option<NoPlan>, error: &WriteError) -> Option<Outcome> {
        let is_over =
            matches!(error.category, Category::NamespaceNotFound | Category::NamespaceTerminating);
        let is_ended = match key {
            // The copies are deleted with their namespace: no copy needs a permission in a new one of that name.
            RightsKey::Copies(namespace) => is_over && self.namespace_ended(namespace),
            RightsKey::Consumer(_) => is_over,
            RightsKey::Tokens => false,
        };
        if *key == RightsKey::Tokens && error.category != Category::Held {
            self.tokens_failed();
        }
        (error.verb == "create" && is_ended).then_some(Outcome::Done)
    }

    fn refused(&self, key: &RightsKey, _: &Option<NoPlan>, error: &WriteError) {
        if !matches!(key, RightsKey::Consumer(_)) {
            warn!("{error}; the syncer lacks a permission until this is resolved");
        }
        self.report(key, Some(Finding::new(Reason::WriteRefused, error.to_string())));
    }
}

/// The object that a read has returned.
fn as_read<K: DeserializeOwned + Into<ObservedRole>>(read: &Read) -> Known<ObservedRole> {
    let Some(object) = &read.object else { return Known::Absent };
    serde_json::from_str::<K>(object).map_or(Known::Unknown, |object| Known::Present(object.into()))
}
