//! What is said on a ManagedServiceAccount whose token is not everywhere it should be: a condition, and an Event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hub_api::managed_service_account::ManagedServiceAccount;
use hub_api::names::AccountKey;
use hub_core::credential::account::Account;
use hub_core::credential::report::{Report, conditions, report};
use hub_core::note::{Note, Reason, Subject};
use hub_runtime::error::Category;
use hub_runtime::host::Host;
use hub_runtime::queue::Outcome;
use hub_runtime::work::Work;
use hub_runtime::write::{Request, WriteError};
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::syncer::Syncer;

/// The plural of the kind, which names this loop in metrics, too.
const RESOURCE: &str = "managedserviceaccounts";
/// Accounts that are worked on at the same time.
const WORKERS: usize = 2;
/// How long trouble has to last before it is said: an account is made before its token is reported, a binding
/// before the profiles.
const GRACE: Duration = Duration::from_secs(3);
/// How long an account is left alone whose condition the API server refuses.
const REFUSED_PAUSE: Duration = Duration::from_mins(5);

/// What the work on accounts keeps between two looks.
pub(crate) struct AccountConditions {
    pub(crate) work: Arc<Work<AccountKey>>,
    /// Trouble that is not said yet, and since when it lasts.
    troubles: Mutex<HashMap<AccountKey, Instant>>,
}

impl AccountConditions {
    pub(crate) fn new(host: &Arc<Host>) -> Self {
        host.metrics.declare_written(RESOURCE);
        Self { work: Work::new(host, RESOURCE), troubles: Mutex::default() }
    }
}

/// What an account shows, and what it should.
struct Look {
    account: Account,
    report: Option<Report>,
}

impl Syncer {
    pub(crate) async fn report_accounts(&self) {
        let this = self.clone();
        let reconcile = move |key| {
            let this = this.clone();
            async move { this.report_account(&key).await }
        };
        self.inner.accounts.work.run(WORKERS, reconcile).await;
    }

    async fn report_account(&self, key: &AccountKey) -> Outcome {
        let subject = Subject::Account(key.clone());
        let Some(look) = self.look(key) else {
            self.inner.accounts.troubles.lock().remove(key);
            self.inner.host.reporter.forget(&subject);
            return Outcome::Done;
        };
        let shown = look.account.state.as_ref().map(|said| said.conditions.as_slice());
        let wanted = shown.ok().map(|shown| conditions(shown, look.report.as_ref(), Timestamp::now()));
        if look.report.is_some() && wanted != Some(None) {
            let since = *self.inner.accounts.troubles.lock().entry(key.clone()).or_insert_with(Instant::now);
            if let Some(left) = GRACE.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
                return Outcome::RetryAfter(left);
            }
        }
        self.inner.accounts.troubles.lock().remove(key);
        let note = |report: &Report| {
            Note::new(Reason::CredentialWithheld, format!("{}: {}", report.reason, report.message))
        };
        let notes = look.report.iter().map(note).collect();
        self.inner.host.reporter.report(&subject, Some(&look.account.uid), notes);
        match wanted.flatten() {
            Some(list) => self.write_conditions(key, &look.account, list).await,
            None => Outcome::Done,
        }
    }

    fn look(&self, key: &AccountKey) -> Option<Look> {
        self.change(|fleet, index| {
            let account = index.account(key)?.clone();
            Some(Look { account, report: report(index, fleet, key) })
        })
    }

    async fn write_conditions(&self, key: &AccountKey, account: &Account, list: Vec<Value>) -> Outcome {
        let host = &self.inner.host;
        let api: Api<ManagedServiceAccount> = Api::namespaced(host.client.clone(), key.cluster.as_str());
        // As null an empty list goes as it came: an account that nobody has said anything of has none.
        let list = if list.is_empty() { Value::Null } else { list.into() };
        let patch = Patch::Merge(json!({
            "metadata": { "uid": account.uid, "resourceVersion": account.resource_version },
            "status": { "conditions": list },
        }));
        let (name, params) = (key.to_string(), PatchParams::default());
        let request = Request { verb: "patch_status", resource: RESOURCE, name: &name };
        let call = api.patch_status(key.account.as_str(), &params, &patch);
        match host.writer.send(request, call).await {
            Ok(patched) => {
                self.change(|_, index| index.apply_account(key.clone(), Account::read(&patched)));
                Outcome::Done
            }
            Err(error) => self.report_failed(key, &error),
        }
    }

    fn report_failed(&self, key: &AccountKey, error: &WriteError) -> Outcome {
        self.inner.host.metrics.reconcile_error(RESOURCE, error.category);
        match error.category {
            // The account has changed, or is gone: an event says so, and has it looked at again.
            Category::NotLeader | Category::Conflict | Category::NotFound => {
                debug!(account = %key, %error, "the condition is not written");
                Outcome::Retry
            }
            Category::Invalid | Category::Forbidden => {
                warn!(account = %key, "{error}; the Event and the metrics have it all the same");
                Outcome::RetryAfter(REFUSED_PAUSE)
            }
            _ => {
                warn!(account = %key, category = error.category.as_str(), "{error}; trying again");
                Outcome::Retry
            }
        }
    }
}
