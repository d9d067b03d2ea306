//! Reports on a ManagedServiceAccount why copies of its token are missing: a condition, and an Event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::AccountKey;
use hub_core::action::Action;
use hub_core::credential::account::Scope;
use hub_core::credential::report::{Report, conditions, report};
use hub_core::finding::{Finding, Reason, Subject};
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read, Reads};
use hub_runtime::write::error::WriteError;
use hub_runtime::write::execute::Target;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::store::{ACCOUNTS, Store};

/// How long a problem must last before it is reported: an account exists before its token, and a binding before its
/// profiles.
const GRACE: Duration = Duration::from_secs(3);
/// The same for a copy that waits for the work of others, such as its profile: a slow hub needs seconds for a write.
const MISSING_GRACE: Duration = Duration::from_secs(10);
/// How long a missing copy is not reported because many profiles are being created or deleted.
const LONGEST_WORK: Duration = Duration::from_mins(30);

pub(crate) struct ConditionWriter {
    store: Arc<Store>,
    /// Problems that are not reported yet, with their start.
    troubles: Mutex<HashMap<AccountKey, Instant>>,
}

/// What is to be reported on an account beside its conditions.
#[derive(Default)]
pub(crate) struct PlannedReport {
    uid: Option<String>,
    findings: Vec<Finding>,
}

impl ConditionWriter {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store), troubles: Mutex::default() }
    }

    /// How long until a problem is reported; `None` if it is due.
    fn grace(&self, key: &AccountKey, report: &Report) -> Option<Duration> {
        let since = *self.troubles.lock().entry(key.clone()).or_insert_with(Instant::now);
        // A backlog alone is not a problem: missing copies may be about to be created, or their namespace may be about
        // to end.
        let missing = Some(&report.missing_in).filter(|namespaces| !namespaces.is_empty());
        let is_busy = |namespaces| self.store.bulk_changes.lock().is_high(namespaces, Instant::now());
        if since.elapsed() < LONGEST_WORK && missing.is_some_and(is_busy) {
            return Some(GRACE);
        }
        let grace = if missing.is_some() { MISSING_GRACE } else { GRACE };
        grace.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
    }
}

impl Objects for ConditionWriter {
    type Key = AccountKey;
    type Create = Value;
    type Patch = Value;
    type Plan = PlannedReport;

    const WORKERS: usize = 4;
    const READS: Reads = Reads::Never;

    fn work(&self) -> &Arc<Work<AccountKey>> {
        &self.store.accounts
    }

    fn target(&self, key: &AccountKey) -> Target {
        let (namespace, name) = (Some(key.cluster.as_str()), key.account.as_str());
        Target::of::<ManagedServiceAccount>(ACCOUNTS, &(), namespace, name)
    }

    fn known(&self, key: &AccountKey) -> Option<Version> {
        self.store.change(|_, index| index.account(key).map(|account| account.version.clone()))
    }

    fn plan(&self, key: &AccountKey, _: Option<&Read>) -> Planned<Self> {
        if !self.store.change(|_, index| index.knows_accounts()) {
            return Planned::Unknown;
        }
        let known =
            self.store.change(|fleet, index| Some((index.account(key)?.clone(), report(index, fleet, key))));
        let Some((account, report)) = known else {
            self.store.gauges.set_scope(key, true);
            return Planned::Write(Action::Nothing, PlannedReport::default());
        };
        self.store.gauges.set_scope(key, account.scope != Scope::EveryGrantedNamespace);
        let state = account.state.as_ref().ok();
        let wanted =
            state.map(|state| conditions(&state.conditions(), report.as_ref(), self.store.host.now()));
        if let Some(report) = report.as_ref().filter(|_| wanted != Some(None))
            && let Some(wait) = self.grace(key, report)
        {
            return Planned::Wait(wait);
        }
        let finding = |report: &Report| {
            Finding::new(Reason::CredentialWithheld, format!("{}: {}", report.reason, report.message))
        };
        let findings = report.iter().map(finding).collect();
        let action = wanted.flatten().map_or(Action::Nothing, |list| {
            // An empty list is written as null, so that the status returns to its initial state.
            let list = if list.is_empty() { Value::Null } else { list.into() };
            Action::PatchStatus(account.version.clone(), json!({ "status": { "conditions": list } }))
        });
        Planned::Write(action, PlannedReport { uid: Some(account.version.uid), findings })
    }

    fn settled(&self, key: &AccountKey, planned: PlannedReport) -> Outcome {
        self.troubles.lock().remove(key);
        self.store.reporter.report(&Subject::Account(key.clone()), planned.uid.as_deref(), planned.findings);
        Outcome::Done
    }

    fn refused(&self, key: &AccountKey, planned: &PlannedReport, error: &WriteError) {
        let mut findings = planned.findings.clone();
        findings.push(Finding::new(Reason::WriteRefused, error.to_string()));
        self.store.reporter.report(&Subject::Account(key.clone()), planned.uid.as_deref(), findings);
    }
}
