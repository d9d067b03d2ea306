//! The writer: plans one write for every account of a consumer and sends it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hub_api::names::AccountKey;
use hub_core::consumer_access::{AccessAction, AccessKind, AccessPlan, ObservedAccess, ObservedObject};
use hub_core::finding::{Finding, Reason};
use hub_core::version::Version;
use hub_runtime::queue::Outcome;
use hub_runtime::queue::work::Delayed;
use hub_runtime::reconciler::{UNSEEN, hash};
use hub_runtime::watch::{Effect, LONGEST_LAG, Readiness};
use hub_runtime::write::error::{Category, WriteError};
use hub_runtime::write::execute::Target;
use kube::api::DynamicObject;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::store::{Store, api_resource, resource, subject};

const WORKERS: usize = 8;
/// The maximum number of steps in a row for a key: deletes, which do not wait for the watch, and writes that are
/// blocked.
const MAX_ROUNDS: usize = 6;

/// What is known of the objects of an account beside the cache.
#[derive(Default)]
struct Unshown {
    /// The kinds whose last write the watch has not shown yet, and for how long to wait for it.
    waiting: BTreeMap<AccessKind, Duration>,
    /// Those of them whose watch is late.
    late: Vec<AccessKind>,
    /// The uids of their objects.
    unseen: BTreeMap<AccessKind, String>,
    /// What was read because its watch is late.
    read: BTreeMap<AccessKind, Option<ObservedObject>>,
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
        // By their hashes, the patches whose effect the cache shows: to send the same again would have no effect.
        let mut patches = BTreeMap::new();
        let mut blocked = BlockedWrites::new();
        for _ in 0..MAX_ROUNDS {
            let mut unshown = self.unshown(key, &mut patches);
            let mut plan = self.plan(key, &unshown, &blocked);
            // A delete does not wait for a read.
            if !unshown.late.is_empty() && !plan.as_ref().is_some_and(|(_, plan)| is_delete(plan)) {
                self.read_late(key, &mut unshown, &mut blocked).await;
                plan = self.plan(key, &unshown, &blocked);
            }
            let Some((observed, plan)) = plan else { return Outcome::Done };
            let wait = unshown.waiting.into_values().min().map(Outcome::RetryAfter);
            let Some((kind, action)) = &plan.write else {
                if let Some(wait) = wait {
                    return wait;
                }
                self.report(key, &observed, &plan, &blocked);
                // Until the watch shows the object, the queue holds the key, so that changes still queue it.
                if unshown.read.values().any(Option::is_some) && blocked.is_empty() {
                    return Outcome::RetryAfter(UNSEEN);
                }
                return soonest(blocked.into_values().map(|blocked| blocked.outcome));
            };
            // For objects that were just written, the cache is older than the hub: only a delete does not wait.
            if let Some(wait) = wait.filter(|_| !is_delete(&plan)) {
                return wait;
            }
            match self.write(key, *kind, action, &mut patches).await {
                Ok(None) => {}
                Ok(Some(cause)) => drop(blocked.insert((*kind, action.verb().unwrap_or_default()), cause)),
                Err(outcome) => return outcome,
            }
        }
        Outcome::Retry
    }

    /// What the watches have yet to show. Adds the hashes of patches whose effect the cache shows to `patches`.
    fn unshown(&self, key: &AccountKey, patches: &mut BTreeMap<AccessKind, u64>) -> Unshown {
        let mut unshown = Unshown::default();
        for kind in AccessKind::ALL {
            let object = (kind, key.clone());
            let known = self.store.known(&object);
            let mut expectations = self.store.expectations.lock();
            match expectations.check(&object, known.as_ref(), LONGEST_LAG, Instant::now()) {
                Readiness::Ready(patch) => {
                    patches.extend(patch.map(|hash| (kind, hash)));
                    continue;
                }
                Readiness::Wait(wait) => drop(unshown.waiting.insert(kind, wait)),
                Readiness::Read => {
                    unshown.late.push(kind);
                    unshown.waiting.insert(kind, LONGEST_LAG);
                }
            }
            let left = expectations.left(&object);
            drop(expectations);
            unshown.unseen.extend(self.store.unseen(&object, left.as_ref()).map(|uid| (kind, uid)));
        }
        unshown
    }

    /// Reads the objects whose watch is late. If one cannot be read, its kind is not written.
    async fn read_late(&self, key: &AccountKey, unshown: &mut Unshown, blocked: &mut BlockedWrites) {
        for kind in std::mem::take(&mut unshown.late) {
            unshown.waiting.remove(&kind);
            // A list that hangs would delay the end of the account.
            let cause = if self.store.is_failing(kind) {
                Blocked { outcome: Outcome::RetryAfter(LONGEST_LAG), refused: None }
            } else {
                match self.read(kind, key).await {
                    Ok(object) => {
                        self.store.work.read(key, resource(kind));
                        unshown.unseen.remove(&kind);
                        unshown.read.insert(kind, object);
                        continue;
                    }
                    Err(error) => {
                        let failed = self.store.work.failed(key, &error);
                        Blocked { outcome: failed.outcome, refused: failed.refused.then_some(error) }
                    }
                }
            };
            blocked.extend(verbs(kind).map(|write| (write, cause.clone())));
        }
    }

    /// Plans the next write that is neither blocked nor of a kind that waits for its watch.
    fn plan(
        &self,
        key: &AccountKey,
        unshown: &Unshown,
        blocked: &BlockedWrites,
    ) -> Option<(ObservedAccess, AccessPlan)> {
        let waits = unshown.waiting.keys().copied().flat_map(verbs);
        // A delete by uid does not wait for the watch.
        let waits = waits.filter(|(kind, verb)| *verb != "delete" || !unshown.unseen.contains_key(kind));
        self.store.plan(key, &unshown.read, &unshown.unseen, blocked.keys().copied().chain(waits).collect())
    }

    /// Sends a write, unless it has to wait or fails: then it returns why, and this write is not tried again in this
    /// attempt. An error ends the attempt.
    async fn write(
        &self,
        key: &AccountKey,
        kind: AccessKind,
        action: &AccessAction,
        patches: &mut BTreeMap<AccessKind, u64>,
    ) -> Result<Option<Blocked>, Outcome> {
        let verb = action.verb().unwrap_or_default();
        if let Some(Delayed { outcome, error }) = self.store.work.delays(key, resource(kind), verb) {
            let refused = error.map(|error| WriteError { name: target(kind, key).full_name, ..error });
            return Ok(Some(Blocked { outcome, refused }));
        }
        let hash = hash(action);
        let sent = if hash.is_some() && patches.remove(&kind) == hash {
            Err(WriteError::ineffective(resource(kind), target(kind, key).full_name))
        } else {
            self.send(kind, key, action, hash).await
        };
        match sent {
            Ok(()) => {
                self.store.work.written(key, resource(kind), verb);
                Ok(None)
            }
            Err(error) => self.failed(key, kind, action, error).map(Some),
        }
    }

    /// Sends a write.
    async fn send(
        &self,
        kind: AccessKind,
        key: &AccountKey,
        action: &AccessAction,
        hash: Option<u64>,
    ) -> Result<(), WriteError> {
        let (host, object) = (&self.store.host, (kind, key.clone()));
        self.store.expectations.lock().sending(&object, Instant::now());
        let (effect, _) = target(kind, key).write(&host.client, &host.writer, action).await?;
        if let Effect::Created(version) = &effect {
            self.store.created(&object, &version.uid);
        }
        if let AccessAction::Delete(Version { uid, .. }) | AccessAction::DeleteByUid(uid) = action {
            self.store.deleted(&object, uid);
        }
        let known = self.store.known(&object);
        self.store.expectations.lock().sent(&object, known.as_ref(), effect, hash, Instant::now());
        Ok(())
    }

    /// Reads an object that its watch should have shown.
    async fn read(&self, kind: AccessKind, key: &AccountKey) -> Result<Option<ObservedObject>, WriteError> {
        let host = &self.store.host;
        let object = target(kind, key).find(&host.client, &host.writer).await?;
        let object = object.map(|object| ObservedObject::read(&object.metadata, Some(&object.data)));
        let version = object.as_ref().map(|object| object.version.clone());
        self.store.expectations.lock().read(&(kind, key.clone()), version, Instant::now());
        Ok(object)
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
        let object = (kind, key.clone());
        let (known, gone) = (self.store.known(&object), action.uid().filter(|_| failed.gone));
        self.store.expectations.lock().failed(&object, known.as_ref(), gone, Instant::now());
        if let Some(uid) = gone {
            self.store.deleted(&object, uid);
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

fn is_delete(plan: &AccessPlan) -> bool {
    matches!(plan.write, Some((_, AccessAction::Delete(_) | AccessAction::DeleteByUid(_))))
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
