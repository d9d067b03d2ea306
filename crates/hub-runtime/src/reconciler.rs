//! The one loop that makes objects on the hub as planned: plan a key, write once, and plan again when the watch has
//! shown the write ([`crate::watch::Expectations`]).

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use hub_core::action::Action;
use hub_core::version::Version;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::queue::work::Work;
use crate::queue::{Key, Outcome};
use crate::watch::{Effect, LONGEST_LAG, LONGEST_SILENCE, Readiness};
use crate::write::error::WriteError;
use crate::write::execute::{Target, metadata};

/// How long a key is held while the watch does not show its object, before it is planned again.
pub const UNSEEN: Duration = Duration::from_secs(30);

/// When an object is read from the API server because its watch does not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Never: no end of a grant waits for it.
    Never,
    /// If the watch is late.
    IfLate,
    /// If the watch is late, and at once if the name of a create exists: perhaps no watch shows that object.
    IfMet,
}

impl Reads {
    /// How long a key waits for its watch.
    fn longest_lag(self) -> Duration {
        if self == Self::Never { LONGEST_SILENCE } else { LONGEST_LAG }
    }
}

/// The objects of one queue: what the loop needs to know about them.
pub trait Objects: Send + Sync + 'static {
    type Key: Key + Display + Send + Sync + 'static;
    /// An object to create.
    type Create: Serialize + Send + Sync;
    /// A merge patch.
    type Patch: Serialize + Send + Sync;
    /// What a plan contains besides the write: findings, states.
    type Plan: Send + Sync;

    /// Number of workers, each with one request in flight; slow requests come on top ([`crate::flow::workers`]). A
    /// request needs one connection; API Priority and Fairness allows a client some hundreds.
    const WORKERS: usize;
    const READS: Reads;
    /// Whether an object has a status, which is planned at once from the response to its create.
    const HAS_STATUS: bool = false;

    fn work(&self) -> &Arc<Work<Self::Key>>;
    /// The object, for requests.
    fn target(&self, key: &Self::Key) -> Target;
    /// The version in the cache.
    fn known(&self, key: &Self::Key) -> Option<Version>;
    /// Plans the next write, from the cache or from the object as it was just read. No write may follow, so it has no
    /// side effects that must happen exactly once.
    fn plan(&self, key: &Self::Key, read: Option<&Read>) -> Planned<Self>;
    /// Nothing is left to write. Reports the findings.
    fn settled(&self, key: &Self::Key, plan: Self::Plan) -> Outcome;
    /// The write is refused, or has failed for some time. Reports it.
    fn refused(&self, key: &Self::Key, plan: &Self::Plan, error: &WriteError);

    /// The API server has accepted the write.
    fn wrote(&self, _: &Self::Key, _: &Self::Plan, _: &Effect) -> After {
        After::Watched
    }

    /// The write has failed. Returns the outcome, if it is not that of the retry policy.
    fn failed(&self, _: &Self::Key, _: &Self::Plan, _: &WriteError) -> Option<Outcome> {
        None
    }
}

/// What follows a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The watch will show its effect.
    Watched,
    /// No watch shows its effect.
    Unwatched,
    /// Nothing was written: this outcome follows.
    Outcome(Outcome),
}

/// What a read has found. It may contain a token, so nothing prints it.
pub struct Read {
    /// The object as JSON; `None` if there is none.
    pub object: Option<String>,
}

/// The next step for a key.
pub enum Planned<O: Objects + ?Sized> {
    /// Nothing yet: plan again after this time.
    Wait(Duration),
    /// Nothing, until something changes.
    Unknown,
    /// This write, or none.
    Write(Action<O::Create, O::Patch>, O::Plan),
}

/// Processes the queue until `stop`, then returns when all writes in flight have finished.
pub async fn run<O: Objects>(objects: Arc<O>, stop: CancellationToken) {
    let work = Arc::clone(objects.work());
    let reconcile = move |key| {
        let objects = Arc::clone(&objects);
        async move { reconcile(&*objects, &key).await }
    };
    work.run(O::WORKERS, stop, reconcile).await;
}

async fn reconcile<O: Objects>(objects: &O, key: &O::Key) -> Outcome {
    let known = objects.known(key);
    let readiness =
        objects.work().expectations().check(key, known.as_ref(), O::READS.longest_lag(), Instant::now());
    let (mut action, plan) = match objects.plan(key, None) {
        Planned::Wait(wait) => return Outcome::RetryAfter(wait),
        Planned::Unknown => return Outcome::Done,
        Planned::Write(action, plan) => (action, plan),
    };
    let hash = hash(&action);
    let before = match readiness {
        Readiness::Ready(before) => before,
        // A delete does not wait for the watch: it depends on no version, or on the one that our last write returned.
        _ if matches!(action, Action::DeleteByUid(_)) => None,
        _ if follow(objects, key, &mut action) => None,
        Readiness::Wait(wait) => return Outcome::RetryAfter(wait),
        Readiness::Read if O::READS == Reads::Never => None,
        Readiness::Read => return reconcile_read(objects, key).await,
    };
    if hash.is_some() && hash == before {
        let target = objects.target(key);
        let error = WriteError::ineffective(target.resource, target.full_name);
        return failed(objects, key, &action, &plan, &error);
    }
    write(objects, key, action, plan, hash).await
}

/// Makes a delete depend on the version that our last write returned. Returns whether there is one.
fn follow<O: Objects>(objects: &O, key: &O::Key, action: &mut Action<O::Create, O::Patch>) -> bool {
    let Action::Delete(version) = action else { return false };
    let left = objects.work().expectations().left(key).filter(|left| left.uid == version.uid);
    let is_left = left.is_some();
    *version = left.unwrap_or_else(|| version.clone());
    is_left
}

/// Reconciles an object as it is on the hub now.
async fn reconcile_read<O: Objects>(objects: &O, key: &O::Key) -> Outcome {
    let host = objects.work().host();
    let target = objects.target(key);
    let read = match target.read(&host.client, &host.writer, O::READS == Reads::IfMet).await {
        Ok(object) => {
            objects.work().read(key, target.resource);
            Read { object }
        }
        Err(error) => {
            let failed = objects.work().failed(key, &error);
            if failed.refused
                && let Planned::Write(_, plan) = objects.plan(key, None)
            {
                objects.refused(key, &plan, &error);
            }
            return failed.outcome;
        }
    };
    let version = read.object.as_deref().and_then(metadata).map(|metadata| Version::of(&metadata));
    objects.work().expectations().read(key, version, Instant::now());
    reconcile_as(objects, key, &read).await
}

/// Reconciles an object as a response has shown it.
async fn reconcile_as<O: Objects>(objects: &O, key: &O::Key, read: &Read) -> Outcome {
    match objects.plan(key, Some(read)) {
        Planned::Wait(wait) => Outcome::RetryAfter(wait),
        Planned::Unknown => Outcome::Done,
        Planned::Write(action, plan) => {
            let hash = hash(&action);
            write(objects, key, action, plan, hash).await
        }
    }
}

async fn write<O: Objects>(
    objects: &O,
    key: &O::Key,
    action: Action<O::Create, O::Patch>,
    plan: O::Plan,
    hash: Option<u64>,
) -> Outcome {
    let Some(verb) = action.verb() else {
        let outcome = objects.settled(key, plan);
        // Until the watch shows the object, the queue holds the key, so that changes still queue it ([`Work::holds`]).
        let known = objects.known(key);
        let unseen = objects.work().expectations().wait(key, known.as_ref(), UNSEEN);
        return if outcome == Outcome::Done && !unseen.is_zero() {
            Outcome::RetryAfter(unseen)
        } else {
            outcome
        };
    };
    let target = objects.target(key);
    if let Some(delayed) = objects.work().delays(key, target.resource, verb) {
        if let Some(error) = delayed.error {
            objects.refused(key, &plan, &error);
        }
        return delayed.outcome;
    }
    let host = objects.work().host();
    objects.work().expectations().sending(key, Instant::now());
    let (effect, object) = match target.write(&host.client, &host.writer, &action).await {
        Ok(response) => response,
        Err(error) => return failed(objects, key, &action, &plan, &error),
    };
    objects.work().written(key, target.resource, verb);
    let must_read = effect == Effect::Met && O::READS == Reads::IfMet;
    let is_created = matches!(effect, Effect::Created(_));
    let is_deleted = matches!(action, Action::Delete(_) | Action::DeleteByUid(_));
    let is_held = is_deleted && matches!(effect, Effect::Exists(_));
    let after = objects.wrote(key, &plan, &effect);
    let wait = {
        let known = objects.known(key);
        let mut expectations = objects.work().expectations();
        if after == After::Watched && !must_read {
            expectations.sent(key, known.as_ref(), effect, hash, Instant::now());
        } else {
            expectations.forget(key);
        }
        expectations.wait(key, known.as_ref(), O::READS.longest_lag())
    };
    if let After::Outcome(outcome) = after {
        return outcome;
    }
    if must_read {
        return Box::pin(reconcile_read(objects, key)).await;
    }
    // At once, so that a process that ends before the watch shows the object does not leave it without a status.
    if is_created && O::HAS_STATUS {
        return Box::pin(reconcile_as(objects, key, &Read { object: Some(object) })).await;
    }
    // A copy that a finalizer holds is emptied at once.
    if is_held && O::READS == Reads::IfMet {
        return Box::pin(reconcile_as(objects, key, &Read { object: Some(object) })).await;
    }
    // A delete without effect is not repeated at once.
    if is_held && wait.is_zero() {
        return Outcome::Refused;
    }
    // The watch queues the key as soon as it shows the write.
    Outcome::RetryAfter(wait)
}

/// Decides what follows from a failed write.
fn failed<O: Objects>(
    objects: &O,
    key: &O::Key,
    action: &Action<O::Create, O::Patch>,
    plan: &O::Plan,
    error: &WriteError,
) -> Outcome {
    let failed = objects.work().failed(key, error);
    let (known, gone) = (objects.known(key), action.uid().filter(|_| failed.gone));
    objects.work().expectations().failed(key, known.as_ref(), gone, Instant::now());
    if let Some(outcome) = objects.failed(key, plan, error) {
        return outcome;
    }
    if failed.refused {
        objects.refused(key, plan, error);
    }
    failed.outcome
}

/// The hash of a patch, to recognize one that had no effect.
pub fn hash<C, P: Serialize>(action: &Action<C, P>) -> Option<u64> {
    let (Action::Patch(_, patch) | Action::PatchStatus(_, patch)) = action else { return None };
    let mut hasher = DefaultHasher::new();
    action.verb().hash(&mut hasher);
    serde_json::to_vec(patch).ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests;
