//! The writer of the copies.

use std::sync::Arc;
use std::time::Duration;

use hub_api::names::SecretKey;
use hub_api::secret::Secret;
use hub_core::credential::copy::{FIELD_MANAGER, ObservedCopy, Patch};
use hub_core::credential::index::{CreatedCopy, CredentialIndex, Refused};
use hub_core::credential::plan::{CopyAction, CopyPlan, plan};
use hub_core::finding::{Finding, Reason, Subject};
use hub_core::fleet::Fleet;
use hub_core::rights::GRACE;
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read};
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::execute::{Target, metadata};
use hub_runtime::written::Left;

use crate::store::{COPIES, Store};

pub(crate) struct CopyWriter {
    pub(crate) store: Arc<Store>,
}

/// A plan, without its write.
pub(crate) struct PlannedCopy {
    plan: CopyPlan,
    /// The uid of the observed Secret.
    uid: Option<String>,
    /// How much longer a Secret that no watch shows is assumed to exist
    /// ([`Memory::unwatched`](crate::memory::Memory::unwatched)).
    unwatched: Option<Duration>,
}

impl CopyWriter {
    /// Plans, and updates metrics accordingly.
    fn plan_with(
        &self,
        key: &SecretKey,
        plan: impl FnOnce(&Fleet, &mut CredentialIndex) -> CopyPlan,
    ) -> (CopyPlan, Option<String>) {
        let served = self.store.host.served.versions();
        let (plan, uid, expires) = self.store.change(|fleet, index| {
            index.served_versions = served;
            let plan = plan(fleet, index);
            let uid = index.copy(key).map(|observed| observed.version.uid.clone());
            let expires = plan.synced().and_then(|account| index.expiry(account));
            (plan, uid, expires)
        });
        for account in self.store.gauges.set(key, &plan.states, expires) {
            self.store.accounts.add(account);
        }
        (plan, uid)
    }

    /// Records whether the planned write is refused, which changes states.
    fn set_refused(&self, key: &SecretKey, refused: Option<Refused>) {
        self.store.change(|_, index| index.set_refused(key, refused));
        self.plan_with(key, |fleet, index| plan(index, fleet, key));
    }
}

impl Objects for CopyWriter {
    type Key = SecretKey;
    type Create = Box<Secret>;
    type Patch = Box<Patch>;
    type Plan = PlannedCopy;

    const WORKERS: usize = 16;
    const CAN_GET: bool = true;

    fn work(&self) -> &Arc<Work<SecretKey>> {
        &self.store.copies
    }

    fn target(&self, key: &SecretKey) -> Target {
        Target::of::<Secret>(COPIES, &(), Some(key.namespace.as_str()), &key.name).managed_by(FIELD_MANAGER)
    }

    fn known(&self, key: &SecretKey) -> Option<Version> {
        self.store.change(|_, index| index.copy(key).map(|observed| observed.version.clone()))
    }

    fn plan(&self, key: &SecretKey, read: Option<&Read>) -> Planned<Self> {
        let read = read.map(|read| read.object.as_deref().and_then(|secret| observe(key, secret)));
        if let Some(Some(secret)) = &read
            && !secret.is_labelled
        {
            self.store.met_unwatched(key, secret.clone());
        }
        let unwatched = self.store.memory.unwatched(key);
        // It may be gone.
        let is_stale = unwatched == Some(Duration::ZERO);
        let (mut plan, uid) = self.plan_with(key, |fleet, index| match read {
            Some(None) => plan_of(index, fleet, key, None),
            Some(Some(secret)) if secret.is_labelled => plan_of(index, fleet, key, Some(secret)),
            _ if is_stale => plan_again(index, fleet, key),
            _ => plan(index, fleet, key),
        });
        let action = std::mem::take(&mut plan.action);
        Planned::Write(action, PlannedCopy { plan, uid, unwatched })
    }

    fn settled(&self, key: &SecretKey, PlannedCopy { plan, uid, unwatched }: PlannedCopy) -> Outcome {
        let wait = unwatched.filter(|left| !left.is_zero());
        if wait.is_none() {
            self.store.memory.end_of_unwatched(key);
        }
        self.store.memory.end_of_abandoned(key);
        self.store.change(|_, index| index.set_refused(key, None));
        let subject = Subject::Secret(key.namespace.clone(), key.name.to_string());
        self.store.reporter.report(&subject, uid.as_deref(), plan.findings);
        if let Some(took) = self.store.memory.source_settled(key) {
            self.store.host.metrics.credential_synced(took);
        }
        wait.map_or(Outcome::Done, Outcome::RetryAfter)
    }

    fn wrote(&self, key: &SecretKey, planned: &PlannedCopy, verb: &str, left: &Left) {
        match left {
            Left::Exists(version) if verb == "create" => {
                let account = planned.plan.holder.clone();
                let copy = account.map(|account| CreatedCopy { uid: version.uid.clone(), account });
                self.store.change(|_, index| index.set_created(key, copy));
            }
            Left::Exists(_) => {}
            Left::Gone(uid) => self.store.gone(key, Some(uid)),
        }
        self.store.change(|_, index| index.set_refused(key, None));
        self.store.memory.wrote(key);
    }

    fn failed(&self, key: &SecretKey, planned: &PlannedCopy, error: &WriteError) -> Option<Outcome> {
        let is_gone = matches!(error.category, Category::NotFound | Category::NamespaceNotFound);
        if is_gone && error.verb != "create" {
            self.store.gone(key, planned.uid.as_deref());
        }
        None
    }

    fn refused(&self, key: &SecretKey, planned: &PlannedCopy, error: &WriteError) {
        let subject = Subject::Secret(key.namespace.clone(), key.name.to_string());
        let what = planned.plan.refused();
        // A refused delete is not reported while its namespace is being deleted, and with it the permission and the
        // copies. A copy remains to be deleted only if the permission alone was withdrawn for a moment.
        if what == Refused::Delete && self.store.is_abandoned(key) {
            // Another refusal may have been recorded before the namespace was known to be deleted.
            self.set_refused(key, None);
            self.store.reporter.forget(&subject);
            if self.store.memory.abandoned(key) >= GRACE {
                self.store.abandon(key);
            }
            return;
        }
        self.set_refused(key, Some(what));
        let finding = Finding::new(Reason::WriteRefused, error.to_string());
        self.store.reporter.report(&subject, planned.uid.as_deref(), vec![finding]);
    }
}

/// Decodes a Secret as its watch does.
fn observe(key: &SecretKey, secret: &str) -> Option<ObservedCopy> {
    match serde_json::from_str::<Secret>(secret) {
        Ok(secret) => Some(ObservedCopy::read(key, &secret)),
        Err(_) => Some(ObservedCopy::of_metadata(key, &metadata(secret)?)),
    }
}

/// Plans as if the unwatched Secret had been deleted, since only a write shows whether it still exists. Until then the
/// states stay as they were, and with them the account's condition. If there is nothing to write, the Secret blocks no
/// copy, and is forgotten.
fn plan_again(index: &mut CredentialIndex, fleet: &Fleet, key: &SecretKey) -> CopyPlan {
    let states = plan(index, fleet, key).states;
    let mut again = plan_of(index, fleet, key, None);
    if again.action == CopyAction::Nothing {
        index.delete_copy(key);
    } else {
        again.states = states;
    }
    again
}

/// Plans as if this were the Secret, whatever the index contains.
fn plan_of(
    index: &mut CredentialIndex,
    fleet: &Fleet,
    key: &SecretKey,
    observed: Option<ObservedCopy>,
) -> CopyPlan {
    let known = index.copy(key).cloned();
    set(index, key, observed);
    let planned = plan(index, fleet, key);
    set(index, key, known);
    planned
}

fn set(index: &mut CredentialIndex, key: &SecretKey, observed: Option<ObservedCopy>) {
    match observed {
        Some(observed) => drop(index.apply_copy(key, observed)),
        None => index.delete_copy(key),
    }
}
