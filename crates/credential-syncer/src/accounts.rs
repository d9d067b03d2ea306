//! Reports on a ManagedServiceAccount why copies of its token are missing: a condition, and an Event. On one that consumer
//! access maintains, the condition also reports that none is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::AccountKey;
use hub_core::action::Action;
use hub_core::credential::account::Account;
use hub_core::credential::report::{Recipients, Report, conditions, report};
use hub_core::finding::{Finding, Reason, Subject};
use hub_core::version::{Uid, Version};
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read};
use hub_runtime::write::error::WriteError;
use hub_runtime::write::execute::Target;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::store::{ACCOUNTS, State, Store};

/// How long a problem must last before it is reported: an account exists before its token, and a binding before its
/// profiles.
const GRACE: Duration = Duration::from_secs(3);
/// The same for a copy that waits for the work of others, such as its profile: a slow hub needs seconds for a write.
const MISSING_GRACE: Duration = Duration::from_secs(10);
/// How long a report waits at most for copies before it is planned again: one that settles queues it.
const SETTLING: Duration = Duration::from_secs(30);
/// How long a missing copy is not reported because many profiles are being created or deleted.
const LONGEST_WORK: Duration = Duration::from_mins(30);

pub(crate) struct ConditionWriter {
    pub(crate) store: Arc<Store>,
}

/// What is to be reported on an account beside its conditions.
#[derive(Default)]
pub(crate) struct PlannedReport {
    uid: Option<Uid>,
    findings: Vec<Finding>,
}

/// How long until a problem is reported; `None` if it is due.
fn grace(state: &mut State, key: &AccountKey, report: &Report) -> Option<Duration> {
    let now = Instant::now();
    let since = now - *state.troubles.entry(key.clone()).or_insert(now);
    let grace = if report.is_missing { MISSING_GRACE } else { GRACE };
    if let Some(left) = grace.checked_sub(since).filter(|left| !left.is_zero()) {
        return Some(left);
    }
    // A backlog alone is not a problem: missing copies may be about to be created, or their namespace may be about to
    // end.
    let mut missing =
        state.index.tally.troubles(key).into_iter().flat_map(BTreeMap::values).flatten();
    let is_busy =
        report.is_missing && since < LONGEST_WORK && state.bulk_changes.is_high(&mut missing, now);
    is_busy.then_some(GRACE)
}

impl Objects for ConditionWriter {
    type Key = AccountKey;
    type Create = Value;
    type Patch = Value;
    type Plan = PlannedReport;

    const WORKERS: usize = 4;

    fn work(&self) -> &Arc<Work<AccountKey>> {
        &self.store.accounts
    }

    fn target(&self, key: &AccountKey) -> Target {
        let (namespace, name) = (Some(key.cluster.as_str()), key.account.as_str());
        Target::of::<ManagedServiceAccount>(ACCOUNTS, &(), namespace, name)
    }

    fn known(&self, key: &AccountKey) -> Option<Version> {
        self.store
            .change(|_, state| state.index.account(key).map(|account| account.version.clone()))
    }

    fn plan(&self, key: &AccountKey, read: Option<&Read>) -> Planned<Self> {
        self.store.change(|fleet, state| {
            let State { index, recipients, .. } = state;
            if !index.knows_accounts {
                return Planned::Unknown;
            }
            self.store.metrics.set_unscoped(index.count_unscoped(key));
            let read = read.map(|read| read.decode().map(Account::read));
            let account = match &read {
                None => index.account(key),
                Some(account) => account.as_ref(),
            };
            let Some(account) = account else {
                recipients.remove(key);
                return Planned::Write(Action::Nothing, PlannedReport::default());
            };
            let recipients =
                recipients.entry(key.clone()).or_insert_with(|| Recipients::of(index, fleet, key));
            let report = report(index, key, index.tally.troubles(key), recipients);
            let shown = account.state.as_ref().ok();
            let wanted = shown.map(|shown| {
                let (reports_success, now) = (account.reports_success(), self.store.host.now());
                conditions(&shown.conditions(), report.as_ref(), reports_success, now)
            });
            let version = account.version.clone();
            if let Some(report) = report.as_ref().filter(|_| wanted != Some(None))
                && let Some(wait) = grace(state, key, report)
            {
                return Planned::Wait(wait);
            }
            if matches!(wanted, Some(Some(_)))
                && let Some(copy) = self.store.unsettled_copy(fleet, state, key)
            {
                state.unsettled.insert(key.clone(), copy);
                return Planned::Wait(SETTLING);
            }
            let finding = |report: &Report| {
                Finding::new(
                    Reason::CredentialWithheld,
                    format!("{}: {}", report.reason, report.message),
                )
            };
            let planned = PlannedReport {
                uid: Some(version.uid.clone()),
                findings: report.iter().map(finding).collect(),
            };
            let action = wanted.flatten().map_or(Action::Nothing, |list| {
                // An empty list is written as null, so that the status returns to its initial state.
                let list = if list.is_empty() { Value::Null } else { list.into() };
                Action::PatchStatus(version, json!({ "status": { "conditions": list } }))
            });
            Planned::Write(action, planned)
        })
    }

    fn settled(&self, key: &AccountKey, planned: PlannedReport) -> Outcome {
        self.store.change(|_, state| {
            state.troubles.remove(key);
            state.unsettled.remove(key);
        });
        self.store.reporter.report(
            &Subject::Account(key.clone()),
            planned.uid.as_ref(),
            planned.findings,
        );
        Outcome::Done
    }

    fn refused(&self, key: &AccountKey, planned: &PlannedReport, error: &WriteError) {
        let mut findings = planned.findings.clone();
        findings.push(Finding::new(Reason::WriteRefused, error.to_string()));
        self.store.reporter.report(&Subject::Account(key.clone()), planned.uid.as_ref(), findings);
    }
}
