//! The writer of accounts and permissions. Each object has a key of its own, so that what delays one delays no other;
//! the plan is for all objects of an account, and says which is written next.

use std::sync::Arc;

use hub_core::action::Action;
use hub_core::consumer_access::{AccessKey, AccessKind};
use hub_core::finding::{Finding, Reason};
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read};
use hub_runtime::write::error::WriteError;
use hub_runtime::write::execute::Target;
use hub_runtime::written::Left;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::store::{Store, api_resource, resource};

impl Objects for Store {
    type Key = AccessKey;
    type Create = Value;
    type Patch = Value;
    /// The findings on the object; `None` while another one is written first.
    type Plan = Option<Vec<Finding>>;

    const WORKERS: usize = 8;

    fn work(&self) -> &Arc<Work<AccessKey>> {
        &self.work
    }

    fn target(&self, key: &AccessKey) -> Target {
        let namespace = Some(key.account.cluster.as_str());
        Target::of::<DynamicObject>(resource(key.kind), &api_resource(key.kind), namespace, &key.name())
    }

    fn known(&self, key: &AccessKey) -> Option<Version> {
        self.state.lock().objects.version(key)
    }

    fn plan(&self, key: &AccessKey, read: Option<&Read>) -> Planned<Self> {
        let Some(mut plan) = self.plan_next(key, read) else { return Planned::Unknown };
        match plan.write {
            Some((kind, action)) if kind == key.kind => {
                // The cached account is older than the hub: the watch queues its permissions again.
                let account = AccessKind::Account.of(&key.account);
                if action.verb() != Some("delete") && kind != account.kind && self.is_unseen(&account) {
                    return Planned::Unknown;
                }
                Planned::Write(action, plan.findings.remove(&kind).or_else(|| Some(Vec::new())))
            }
            Some(_) => Planned::Write(Action::Nothing, None),
            None => {
                let findings = plan.findings.remove(&key.kind).unwrap_or_default();
                Planned::Write(Action::Nothing, Some(findings))
            }
        }
    }

    fn settled(&self, key: &AccessKey, findings: Option<Vec<Finding>>) -> Outcome {
        if !self.is_unseen(key) {
            self.state.lock().passed.remove(key);
        }
        if let Some(findings) = findings {
            self.report(key, findings);
        }
        Outcome::Done
    }

    fn wrote(&self, key: &AccessKey, _: &Self::Plan, verb: &str, left: &Left) {
        let mut state = self.state.lock();
        state.passed.remove(key);
        match left {
            Left::Exists(version) if verb == "create" => {
                state.objects.created(key, &version.uid);
                state.known.insert(&key.account);
            }
            Left::Gone(uid) => state.objects.deleted(key, uid),
            Left::Exists(_) | Left::Read(_) => {}
        }
        drop(state);
        if verb == "delete" {
            self.blocked(key, "delete");
        }
    }

    fn blocked(&self, key: &AccessKey, verb: &'static str) {
        if self.state.lock().passed.insert(key.clone(), verb) != Some(verb) {
            self.queue(&self.fleet.read(), &key.account, Some(key.kind));
        }
    }

    fn refused(&self, key: &AccessKey, findings: &Self::Plan, error: &WriteError) {
        let mut findings = findings.clone().unwrap_or_default();
        findings.push(Finding::new(Reason::WriteRefused, error.to_string()));
        self.report(key, findings);
    }
}
