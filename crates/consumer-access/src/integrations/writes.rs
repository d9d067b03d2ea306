//! The writer of the objects of an integration.

use std::sync::Arc;

use hub_api::names::Namespace;
use hub_core::consumer_access::IntegrationKey;
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

use super::{IntegrationStore, api_resource};

impl IntegrationStore {
    fn report(&self, key: &IntegrationKey, findings: Vec<Finding>) {
        let uid = self.known(key).map(|version| version.uid);
        self.reporter.report(&key.subject(), uid.as_ref(), findings);
    }
}

impl Objects for IntegrationStore {
    type Key = IntegrationKey;
    type Create = Value;
    type Patch = Value;
    type Plan = Vec<Finding>;

    const WORKERS: usize = 4;

    fn work(&self) -> &Arc<Work<IntegrationKey>> {
        &self.work
    }

    fn target(&self, key: &IntegrationKey) -> Target {
        let namespace = key.namespace().map(Namespace::as_str);
        Target::of::<DynamicObject>(key.kind().1, &api_resource(key), namespace, &key.name())
    }

    fn known(&self, key: &IntegrationKey) -> Option<Version> {
        self.state.lock().objects.version(key)
    }

    fn plan(&self, key: &IntegrationKey, read: Option<&Read>) -> Planned<Self> {
        let Some(plan) = self.plan_next(key, read) else { return Planned::Unknown };
        Planned::Write(plan.action, plan.findings)
    }

    fn settled(&self, key: &IntegrationKey, findings: Vec<Finding>) -> Outcome {
        self.report(key, findings);
        Outcome::Done
    }

    fn wrote(&self, key: &IntegrationKey, _: &Vec<Finding>, verb: &str, left: &Left) {
        if let (Left::Exists(version), "create") = (left, verb) {
            self.state.lock().objects.created(key, &version.uid);
        }
    }

    fn refused(&self, key: &IntegrationKey, findings: &Vec<Finding>, error: &WriteError) {
        let mut findings = findings.clone();
        findings.push(Finding::new(Reason::WriteRefused, error.to_string()));
        self.report(key, findings);
    }
}
