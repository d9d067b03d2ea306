//! Reports on a ManagedServiceAccount why copies of its token are missing: a condition, and an Event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::AccountKey;
use hub_core::credential::account::{Account, Scope};
use hub_core::credential::report::{Report, conditions, report};
use hub_core::finding::{Finding, Reason, Subject};
use hub_runtime::queue::Outcome;
use hub_runtime::write::Request;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::store::{ACCOUNTS, Store};

/// The verb of the only write.
const PATCH_STATUS: &str = "patch_status";
/// Number of workers.
const WORKERS: usize = 4;
/// How long a problem must last before it is reported: an account is created before its token is reported, and a
/// binding before the profiles.
const GRACE: Duration = Duration::from_secs(3);
/// The same for a copy that waits for the work of others, such as its profile: a slow hub needs seconds for a write.
const MISSING_GRACE: Duration = Duration::from_secs(10);
/// How long a copy may be missing because many profiles are being created or deleted.
const LONGEST_WORK: Duration = Duration::from_mins(30);

/// Writes the conditions. Cheap to clone; clones share their state.
#[derive(Clone)]
pub(crate) struct ConditionWriter {
    store: Arc<Store>,
    /// Problems that are not reported yet, with their start.
    troubles: Arc<Mutex<HashMap<AccountKey, Instant>>>,
}

/// The observed and the desired report of an account.
struct Look {
    account: Account,
    report: Option<Report>,
}

impl ConditionWriter {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store), troubles: Arc::default() }
    }

    /// Processes the queue until `stop`, then returns when all writes in flight have finished.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let work = Arc::clone(&self.store.accounts);
        let reconcile = move |key| {
            let this = self.clone();
            async move { this.report_account(&key).await }
        };
        work.run(WORKERS, stop, reconcile).await;
    }

    async fn report_account(&self, key: &AccountKey) -> Outcome {
        let subject = Subject::Account(key.clone());
        let Some(look) = self.look(key) else {
            self.troubles.lock().remove(key);
            self.store.gauges.set_scope(key, true);
            self.store.reporter.forget(&subject);
            return Outcome::Done;
        };
        self.store.gauges.set_scope(key, look.account.scope != Scope::EveryGrantedNamespace);
        let state = look.account.state.as_ref();
        let wanted = state
            .ok()
            .map(|state| conditions(&state.conditions(), look.report.as_ref(), self.store.host.now()));
        if look.report.is_some() && wanted != Some(None) {
            let since = *self.troubles.lock().entry(key.clone()).or_insert_with(Instant::now);
            // A backlog alone is not a problem: missing copies may be about to be created, or their namespace may be
            // about to end.
            let missing_in = look.report.as_ref().map(|report| &report.missing_in);
            let missing_in = missing_in.filter(|namespaces| !namespaces.is_empty());
            let waits = missing_in.is_some();
            if since.elapsed() < LONGEST_WORK
                && missing_in.is_some_and(|namespaces| {
                    self.store.bulk_changes.lock().is_high(namespaces, Instant::now())
                })
            {
                return Outcome::RetryAfter(GRACE);
            }
            let grace = if waits { MISSING_GRACE } else { GRACE };
            if let Some(left) = grace.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
                return Outcome::RetryAfter(left);
            }
        }
        let finding = |report: &Report| {
            Finding::new(Reason::CredentialWithheld, format!("{}: {}", report.reason, report.message))
        };
        let mut findings: Vec<Finding> = look.report.iter().map(finding).collect();
        let outcome = match wanted.flatten() {
            Some(list) => self.write_conditions(key, &look.account, list, &mut findings).await,
            None => Outcome::Done,
        };
        if outcome == Outcome::Done {
            self.troubles.lock().remove(key);
        }
        self.store.reporter.report(&subject, Some(&look.account.uid), findings);
        outcome
    }

    fn look(&self, key: &AccountKey) -> Option<Look> {
        self.store.change(|fleet, index| {
            let account = index.account(key)?.clone();
            Some(Look { account, report: report(index, fleet, key) })
        })
    }

    /// Writes the conditions. A refused write is reported, too.
    async fn write_conditions(
        &self,
        key: &AccountKey,
        account: &Account,
        list: Vec<Value>,
        findings: &mut Vec<Finding>,
    ) -> Outcome {
        if let Some(delayed) = self.store.accounts.delays(key, ACCOUNTS, PATCH_STATUS) {
            findings.extend(delayed.error.map(|error| Finding::new(Reason::WriteRefused, error.to_string())));
            return delayed.outcome;
        }
        let host = &self.store.host;
        let api: Api<ManagedServiceAccount> = Api::namespaced(host.client.clone(), key.cluster.as_str());
        // An empty list is written as null, so that the status returns to its initial state.
        let list = if list.is_empty() { Value::Null } else { list.into() };
        let patch = Patch::Merge(json!({
            "metadata": { "uid": account.uid, "resourceVersion": account.resource_version },
            "status": { "conditions": list },
        }));
        let (name, params) = (key.to_string(), PatchParams::default());
        let request = Request { verb: PATCH_STATUS, resource: ACCOUNTS, name: &name };
        let call = api.patch_status(key.account.as_str(), &params, &patch);
        match host.writer.send(request, call).await {
            Ok(patched) => {
                self.store.accounts.written(key, ACCOUNTS, PATCH_STATUS);
                self.store.wrote_account(key, Account::read(&patched));
                Outcome::Done
            }
            // An account that has changed or been deleted has an event, which queues it again.
            Err(error) => {
                let failed = self.store.accounts.failed(key, &error);
                if failed.refused {
                    findings.push(Finding::new(Reason::WriteRefused, error.to_string()));
                }
                failed.outcome
            }
        }
    }
}
