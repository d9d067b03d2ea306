//! The writer of the objects of an integration.

use std::sync::Arc;
use std::time::Duration;

use hub_api::names::Namespace;
use hub_core::consumer_access::{IntegrationKey, foreign_cluster_secret};
use hub_core::finding::{Finding, Reason};
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{After, Objects, Planned, Read, Reads};
use hub_runtime::watch::Effect;
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::execute::Target;
use kube::api::DynamicObject;
use serde_json::Value;

use super::{IntegrationStore, api_resource};

/// How often a create is tried again while the Secret of another owner has the name: no watch shows that it is deleted.
const FOREIGN: Duration = Duration::from_secs(10);

impl IntegrationStore {
    fn report(&self, key: &IntegrationKey, findings: Vec<Finding>) {
        let uid = self.known(key).map(|version| version.uid);
        self.reporter.report(&key.subject(), uid.as_deref(), findings);
    }
}

impl Objects for IntegrationStore {
    type Key = IntegrationKey;
    type Create = Value;
    type Patch = Value;
    type Plan = Vec<Finding>;

    const WORKERS: usize = 4;
    const READS: Reads = Reads::IfLate;

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

    fn wrote(&self, key: &IntegrationKey, _: &Vec<Finding>, effect: &Effect) -> After {
        match effect {
            Effect::Created(version) => self.created(key, &version.uid),
            // Created by an earlier attempt whose response was lost, or by another client: the watch shows it, unless
            // it is a Secret without our labels. For such a Secret, a second create returns AlreadyExists, too.
            Effect::Met if matches!(key, IntegrationKey::ClusterSecret(_)) => {
                if !self.met_another(key) {
                    return After::Outcome(Outcome::Retry);
                }
                self.report(key, vec![foreign_cluster_secret()]);
                return After::Outcome(Outcome::RetryAfter(FOREIGN));
            }
            _ => {}
        }
        After::Watched
    }

    fn failed(&self, _: &IntegrationKey, _: &Vec<Finding>, error: &WriteError) -> Option<Outcome> {
        if error.category == Category::NotServed {
            self.report_not_listed();
        }
        None
    }

    fn refused(&self, key: &IntegrationKey, findings: &Vec<Finding>, error: &WriteError) {
        let mut findings = findings.clone();
        findings.push(Finding::new(Reason::WriteRefused, error.to_string()));
        self.report(key, findings);
    }
}
