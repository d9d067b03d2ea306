//! The writer: plans one write for every account of a consumer and sends it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::AccountKey;
use hub_core::consumer_access::{AccessAction, AccessKind, AccessPlan, ObservedAccess, ObservedObject};
use hub_core::finding::{Finding, Reason};
use hub_runtime::queue::Outcome;
use hub_runtime::reconciler::UNSEEN;
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::execute::{Target, content};
use hub_runtime::written::Left;
use kube::api::DynamicObject;
use tokio_util::sync::CancellationToken;

use crate::store::{Store, api_resource, resource, subject};

const WORKERS: usize = 8;
/// The maximum number of steps in a row for a key: reads, deletes, which do not wait for the watch, and writes that are
/// blocked.
const MAX_ROUNDS: usize = 9;

/// The objects as they were read, because their watch is late or a write met a change that it has not shown.
type ReadObjects = BTreeMap<AccessKind, Option<ObservedObject>>;

/// The objects whose last write the watch has not shown yet.
#[derive(Default)]
struct Unseen {
    /// How long to wait for the watch: zero if it is late.
    waits: BTreeMap<AccessKind, Duration>,
    /// The uids of those that exist.
    uids: BTreeMap<AccessKind, String>,
}

/// The writes, by kind and verb, that are not sent in this attempt.
type BlockedWrites = BTreeMap<(AccessKind, &'static str), Blocked>;

/// Why a write is not sent.
#[derive(Clone)]
struct Blocked {
    /// When it is tried again.
    outcome: Outcome,
    /// The write that the API server has refused; `None` if another cause delays it.
    refused: Option<WriteError>,
}

/// Writes accounts and permissions.
#[derive(Clone)]
pub(crate) struct AccessWriter {
    store: Arc<Store>,
}

impl AccessWriter {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store) }
    }

    /// Processes the queue until `stop`, then returns when all writes in flight have finished.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let work = Arc::clone(&self.store.work);
        let reconcile = move |key| {
            let this = self.clone();
            async move { this.reconcile(&key).await }
        };
        work.run(WORKERS, stop, reconcile).await;
    }

    /// Reconciles the access of one account, one write after the other. A write that fails, or has to wait, delays
    /// those of other kinds only if it shows that the API server does not process any, or that the plan is stale.
    async fn reconcile(&self, key: &AccountKey) -> Outcome {
        let (mut read, mut blocked) = (ReadObjects::new(), BlockedWrites::new());
        for _ in 0..MAX_ROUNDS {
            let Unseen { waits, uids } = self.unseen(key, &read);
            // What waits for its watch is not written, except for a delete by uid.
            let waiting = waits.keys().copied().flat_map(verbs);
            let mut skipped: BTreeSet<_> =
                waiting.filter(|(kind, verb)| *verb != "delete" || !uids.contains_key(kind)).collect();
            skipped.extend(blocked.keys());
            let Some((observed, plan)) = self.store.plan(key, &read, &uids, skipped) else {
                return Outcome::Done;
            };
            let write = plan.write.as_ref();
            let delete = write.filter(|(_, action)| action.verb() == Some("delete"));
            // For objects that were just written, the cache is older than the hub: only a delete does not wait.
            let Some((kind, action)) = delete.or(write.filter(|_| waits.is_empty())) else {
                if let Some((kind, _)) = waits.iter().find(|(_, wait)| wait.is_zero()) {
                    if let Err(outcome) = self.read(key, *kind, &mut read, &mut blocked).await {
                        return outcome;
                    }
                    continue;
                }
                if let Some(wait) = waits.into_values().min() {
                    return Outcome::RetryAfter(wait);
                }
                self.report(key, &observed, &plan, &blocked);
                // Until the watch shows the object, the queue holds the key, so that changes still queue it.
                if !self.unseen(key, &ReadObjects::new()).waits.is_empty() && blocked.is_empty() {
                    return Outcome::RetryAfter(UNSEEN);
                }
                return soonest(blocked.into_values().map(|blocked| blocked.outcome));
            };
            let (kind, verb) = (*kind, action.verb().unwrap_or_default());
            if let Some(delayed) = self.store.work.delays(key, resource(kind), verb, content(action)) {
                let name = target(kind, key).full_name;
                let refused = delayed.error.map(|error| WriteError { name, ..error });
                blocked.insert((kind, verb), Blocked { outcome: delayed.outcome, refused });
                continue;
            }
            match self.send(kind, key, action).await {
                Ok(()) => drop(read.remove(&kind)),
                Err(error)
                    if !read.contains_key(&kind)
                        && matches!(error.category, Category::Conflict | Category::AlreadyExists) =>
                {
                    if let Err(outcome) = self.read(key, kind, &mut read, &mut blocked).await {
                        return outcome;
                    }
                }
                Err(error) => match self.failed(key, kind, action, error) {
                    Ok(cause) => drop(blocked.insert((kind, verb), cause)),
                    Err(outcome) => return outcome,
                },
            }
        }
        Outcome::Retry
    }

    /// What the watches have yet to show, apart from what was read.
    fn unseen(&self, key: &AccountKey, read: &ReadObjects) -> Unseen {
        let mut unseen = Unseen::default();
        for kind in AccessKind::ALL {
            let object = (kind, key.clone());
            let known = self.store.known(&object);
            let Some((left, wait)) = self.store.written.unseen(&object, known.as_ref()) else { continue };
            if read.contains_key(&kind) {
                continue;
            }
            unseen.waits.insert(kind, wait);
            let left = if let Left::Exists(left) | Left::Read(left) = &left { Some(left) } else { None };
            unseen.uids.extend(self.store.unseen(&object, left).map(|uid| (kind, uid)));
        }
        unseen
    }

    /// Reads an object, unless the key is queued again meanwhile: an end of a grant waits for no read. If the object
    /// cannot be read, its kind is not written.
    async fn read(
        &self,
        key: &AccountKey,
        kind: AccessKind,
        read: &mut ReadObjects,
        blocked: &mut BlockedWrites,
    ) -> Result<(), Outcome> {
        let (host, target) = (&self.store.host, target(kind, key));
        let found = tokio::select! {
            biased;
            found = target.find(&host.client, &host.writer) => found,
            () = self.store.work.queued_again(key) => return Err(Outcome::Held),
        };
        let object = (kind, key.clone());
        match found {
            Ok(found) => {
                self.store.work.read(key, resource(kind), "list");
                let found = found.map(|found| ObservedObject::read(&found.metadata, Some(&found.data)));
                match &found {
                    Some(found) => self.store.written.set(&object, Left::Read(found.version.clone())),
                    None => self.store.written.forget(&object),
                }
                read.insert(kind, found);
            }
            Err(error) => {
                let failed = self.store.work.failed(key, &error);
                self.store.written.forget(&object);
                let refused = failed.refused.then_some(error);
                let cause = Blocked { outcome: failed.outcome, refused };
                blocked.extend(verbs(kind).map(|write| (write, cause.clone())));
            }
        }
        Ok(())
    }

    /// Sends a write.
    async fn send(
        &self,
        kind: AccessKind,
        key: &AccountKey,
        action: &AccessAction,
    ) -> Result<(), WriteError> {
        let (host, object, target) = (&self.store.host, (kind, key.clone()), target(kind, key));
        let (left, _) = target.write(&host.client, &host.writer, action).await?;
        let verb = action.verb().unwrap_or_default();
        self.store.work.accepted(key, resource(kind), verb, content(action));
        match (&left, action) {
            (Left::Exists(left), AccessAction::Create(_)) => self.store.created(&object, &left.uid),
            (Left::Exists(left), AccessAction::Patch(version, _)) if left == version => {
                return Err(WriteError::ineffective(resource(kind), target.full_name));
            }
            _ => {}
        }
        if let Some(uid) = action.uid().filter(|_| verb == "delete") {
            self.store.deleted(&object, uid);
        }
        self.store.written.set(&object, left);
        Ok(())
    }

    /// Decides what follows from a failed write: for its kind alone, or as an error for the whole attempt.
    fn failed(
        &self,
        key: &AccountKey,
        kind: AccessKind,
        action: &AccessAction,
        error: WriteError,
    ) -> Result<Blocked, Outcome> {
        let failed = self.store.work.failed(key, &error);
        if let Some(uid) = action.uid().filter(|_| failed.gone) {
            let object = (kind, key.clone());
            self.store.deleted(&object, uid);
            self.store.written.set(&object, Left::Gone(uid.to_owned()));
        }
        match error.category {
            _ if failed.refused => Ok(Blocked { outcome: failed.outcome, refused: Some(error) }),
            // The CRD is missing, or a webhook for the kind fails.
            Category::NotServed | Category::Internal => {
                Ok(Blocked { outcome: failed.outcome, refused: None })
            }
            _ => Err(failed.outcome),
        }
    }

    /// Reports the findings of a plan, and refused writes.
    fn report(
        &self,
        key: &AccountKey,
        observed: &ObservedAccess,
        plan: &AccessPlan,
        blocked: &BlockedWrites,
    ) {
        let mut has_findings = false;
        for kind in AccessKind::ALL {
            let mut findings = plan.findings.get(&kind).cloned().unwrap_or_default();
            let of_kind =
                blocked.iter().filter(|((blocked, _), _)| *blocked == kind).map(|(_, blocked)| blocked);
            match of_kind.max_by_key(|blocked| blocked.refused.is_some()) {
                None => {}
                Some(Blocked { refused: Some(error), .. }) => {
                    findings.push(Finding::new(Reason::WriteRefused, error.to_string()));
                }
                // The last report on a write that has to wait now stays.
                Some(Blocked { refused: None, .. }) => {
                    has_findings = true;
                    continue;
                }
            }
            has_findings |= !findings.is_empty();
            let uid = observed.object(kind).map(|object| object.version.uid.as_str());
            self.store.reporter.report(&subject(kind, key), uid, findings);
        }
        self.store.set_has_findings(key, has_findings);
    }
}

/// The object of this kind for an account.
fn target(kind: AccessKind, key: &AccountKey) -> Target {
    let namespace = Some(key.cluster.as_str());
    Target::of::<DynamicObject>(resource(kind), &api_resource(kind), namespace, &kind.name(key))
}

/// Every write of a kind.
fn verbs(kind: AccessKind) -> [(AccessKind, &'static str); 3] {
    ["create", "patch", "delete"].map(|verb| (kind, verb))
}

/// What follows for a key after these failures: the retry that is due first.
fn soonest(failures: impl Iterator<Item = Outcome>) -> Outcome {
    let order = |outcome: &Outcome| match outcome {
        Outcome::Retry | Outcome::Held => (0, Duration::ZERO),
        Outcome::RetryNotBefore(wait) | Outcome::RetryAfter(wait) => (1, *wait),
        Outcome::Refused => (2, Duration::ZERO),
        Outcome::Parked => (3, Duration::ZERO),
        Outcome::Done => (4, Duration::ZERO),
    };
    failures.min_by_key(order).unwrap_or(Outcome::Done)
}
