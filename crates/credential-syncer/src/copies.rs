//! The writer of the copies.

use std::sync::Arc;

use hub_api::names::SecretKey;
use hub_api::secret::Secret;
use hub_core::credential::copy::{FIELD_MANAGER, ObservedCopy, Patch};
use hub_core::credential::index::{CreatedCopy, Refused};
use hub_core::credential::plan::{CopyPlan, plan};
use hub_core::finding::{Finding, Reason, Subject};
use hub_core::rights::GRACE;
use hub_core::version::{Uid, Version};
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Work;
use hub_runtime::reconciler::{Objects, Planned, Read};
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::execute::Target;
use hub_runtime::written::Left;

use crate::store::{COPIES, Store};

pub(crate) struct CopyWriter {
    pub(crate) store: Arc<Store>,
}

/// A plan, without its write.
pub(crate) struct PlannedCopy {
    plan: CopyPlan,
    /// The Secret that it is planned from: that of the cache, or one that was read.
    observed: Option<ObservedCopy>,
}

impl PlannedCopy {
    fn uid(&self) -> Option<&Uid> {
        self.observed.as_ref().map(|observed| &observed.version.uid)
    }
}

impl CopyWriter {
    /// Records whether the planned write is refused, which changes states.
    fn set_refused(&self, key: &SecretKey, planned: &PlannedCopy, refused: Option<Refused>) {
        self.store.change(|fleet, state| {
            state.index.set_refused(key, refused);
            let plan = plan(&state.index, fleet, key, planned.observed.as_ref());
            self.store.planned(state, key, &plan);
        });
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
        Target::of::<Secret>(COPIES, &(), Some(key.namespace.as_str()), &key.name)
            .managed_by(FIELD_MANAGER)
    }

    fn known(&self, key: &SecretKey) -> Option<Version> {
        self.store.change(|_, state| state.index.copy(key).map(|observed| observed.version.clone()))
    }

    fn plan(&self, key: &SecretKey, read: Option<&Read>) -> Planned<Self> {
        let read =
            read.map(|read| read.decode().map(|secret| ObservedCopy::read(key, secret.as_ref())));
        let served_versions = self.store.served.versions();
        self.store.change(|fleet, state| {
            state.index.served_versions = served_versions;
            if let Some(Some(secret)) = &read {
                state.index.recognize(key, secret);
            }
            let cached = state.index.copy(key);
            let observed = read.as_ref().map_or(cached, Option::as_ref);
            let mut planned = plan(&state.index, fleet, key, observed);
            let observed = observed.cloned();
            // What no watch has shown, such as a Secret without the label of copies, is waited for or read first: the
            // states stay.
            let known = cached.map(|cached| &cached.version);
            let waits = read.is_none() && self.store.copies.written.unseen(key, known).is_some();
            if !waits {
                self.store.planned(state, key, &planned);
            }
            let action = std::mem::take(&mut planned.action);
            Planned::Write(action, PlannedCopy { plan: planned, observed })
        })
    }

    fn settled(&self, key: &SecretKey, PlannedCopy { plan, observed }: PlannedCopy) -> Outcome {
        let (took, is_hidden) = self.store.change(|_, state| {
            state.memory.end_of_abandoned(key);
            state.index.set_refused(key, None);
            // A report may wait for this copy.
            for account in plan.states.iter().map(|(account, _)| account).chain(&plan.holder) {
                if state.unsettled.get(account) == Some(key) {
                    state.unsettled.remove(account);
                    self.store.accounts.add(account.clone());
                }
            }
            // A copy that is kept in doubt, and that no watch shows: it may have to end.
            let is_hidden =
                observed.is_some() && plan.holder.is_some() && state.index.copy(key).is_none();
            (state.memory.source_settled(key), is_hidden)
        });
        let subject = Subject::Secret(key.namespace.clone(), key.name.to_string());
        let uid = observed.map(|observed| observed.version.uid);
        self.store.reporter.report(&subject, uid.as_ref(), plan.findings);
        if let Some(took) = took {
            self.store.metrics.synced(took);
        }
        if is_hidden {
            return Outcome::RetryAfter(self.store.copies.written.pause(key));
        }
        Outcome::Done
    }

    fn wrote(&self, key: &SecretKey, planned: &PlannedCopy, verb: &str, left: &Left) {
        match left {
            Left::Exists(version) if verb == "create" => {
                let account = planned.plan.holder.clone();
                let copy = account.map(|account| CreatedCopy { uid: version.uid.clone(), account });
                self.store.change(|_, state| state.index.set_created(key, copy));
            }
            Left::Exists(_) | Left::Read(_) => {}
            Left::Gone(uid) => self.store.gone(key, Some(uid)),
        }
        self.store.change(|_, state| {
            state.index.set_refused(key, None);
            state.memory.wrote(key);
        });
    }

    fn failed(
        &self,
        key: &SecretKey,
        planned: &PlannedCopy,
        error: &WriteError,
    ) -> Option<Outcome> {
        let is_gone = matches!(error.category, Category::NotFound | Category::NamespaceNotFound);
        if is_gone && error.verb != "create" {
            self.store.gone(key, planned.uid());
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
            self.set_refused(key, planned, None);
            self.store.reporter.forget(&subject);
            if self.store.change(|_, state| state.memory.abandoned(key)) >= GRACE {
                self.store.abandon(key);
            }
            return;
        }
        // A read that is refused does not show whether the copy is gone.
        let is_read = planned.observed.is_none() && planned.plan.holder.is_none();
        let before = self.store.change(|_, state| state.index.refused(key));
        if !is_read || before != Some(Refused::Delete) {
            self.set_refused(key, planned, Some(what));
        }
        let finding = Finding::new(Reason::WriteRefused, error.to_string());
        self.store.reporter.report(&subject, planned.uid(), vec![finding]);
    }
}
