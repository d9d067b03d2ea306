//! The one loop that makes objects on the hub as planned: plan a key, send one write, and plan again when the watch has
//! shown the write ([`crate::written`]).
//!
//! ```text
//!            cache ──► plan ──► write ──► response ──► held until the watch shows it ──► plan
//!                       ▲         │          └── of a create whose object has a status, of a delete that a finalizer
//!                       │         │              holds: plan at once, from it or a cache as new
//!            read ──────┘         └── the object has changed, or exists: read it once
//!              └── also if the watch is late
//! ```

use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use hub_core::action::Action;
use hub_core::version::{Uid, Version};
use kube::core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::queue::Outcome;
use crate::queue::work::Work;
use crate::watch::{self, Unreadable};
use crate::write::error::{Category, WriteError};
use crate::write::execute::{Target, content, version};
use crate::written::Left;

/// The objects of one queue: what the loop needs to know about them.
pub trait Objects: Send + Sync + 'static {
    type Key: Clone + Ord + Hash + Display + Send + Sync + 'static;
    /// An object to create.
    type Create: Serialize + Send + Sync;
    /// A merge patch.
    type Patch: Into<Value> + Send + Sync;
    /// What a plan contains besides the write: findings, states.
    type Plan: Send + Sync;

    /// Number of workers, each with one request in flight; slow requests come on top ([`crate::flow::workers`]). A
    /// request needs one connection; API Priority and Fairness allows a client some hundreds.
    const WORKERS: usize;
    /// Whether the process may get an object. Otherwise it lists the objects of that name.
    const CAN_GET: bool = false;
    /// Whether an object has a status, which is planned at once after its create.
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

    /// The API server has accepted the write with this verb.
    fn wrote(&self, _: &Self::Key, _: &Self::Plan, _verb: &str, _: &Left) {}

    /// The write with this verb is refused, waits while others like it fail, or for a read that is refused, or has found
    /// its object gone: what need not wait for it goes on.
    fn blocked(&self, _: &Self::Key, _verb: &'static str) {}

    /// The write has failed. Returns the outcome, if it is not that of the retry policy.
    fn failed(&self, _: &Self::Key, _: &Self::Plan, _: &WriteError) -> Option<Outcome> {
        None
    }
}

/// What a read has found. It may contain a token, so nothing prints it.
pub struct Read {
    /// The object as JSON; `None` if there is none.
    pub object: Option<String>,
}

impl Read {
    /// The object, with its managedFields; `None` if there is none, or it cannot be identified.
    #[must_use]
    pub fn decode<K: Resource + DeserializeOwned>(&self) -> Option<Result<K, Unreadable>> {
        watch::decode(self.object.as_deref()?)
    }
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
    let work = objects.work();
    // What to plan from: the cache, or the object as a read or a response has shown it.
    let mut shown: Option<Read> = None;
    let (mut has_read, mut was_held, mut is_free) = (false, false, false);
    loop {
        let known = objects.known(key);
        let unseen = if shown.is_none() { work.written.unseen(key, known.as_ref()) } else { None };
        let (mut action, plan) = match objects.plan(key, shown.as_ref()) {
            Planned::Wait(wait) => return Outcome::RetryAfter(wait),
            Planned::Unknown => return Outcome::Done,
            Planned::Write(action, plan) => (action, plan),
        };
        // A delete waits for no watch: what a read has shown since is read again, and so is what may have to end although
        // the cache does not show it; ...
        let reads_at_once = matches!(
            (&action, &unseen),
            (Action::Delete(_) | Action::Nothing, Some((Left::Read(_), _)))
        );
        match (&mut action, unseen) {
            (_, None) | (Action::DeleteByUid(_), _) => {}
            // ... and our last write has returned the version to delete.
            (Action::Delete(version), Some((Left::Exists(left), _))) if left.uid == version.uid => {
                *version = left;
            }
            (_, Some((_, wait))) if !wait.is_zero() && !reads_at_once => {
                return Outcome::RetryAfter(wait);
            }
            (_, Some(_)) => {
                is_free = matches!(action, Action::Nothing);
                (shown, has_read) = match read(objects, key, action.verb()).await {
                    Ok(read) => (Some(read), true),
                    Err(outcome) => return outcome,
                };
                continue;
            }
        }
        let Some(verb) = action.verb() else { return settled(objects, key, plan, is_free) };
        let target = objects.target(key);
        // The API types have string keys and finite numbers, so serialization cannot fail.
        let write =
            action.map(|object| serde_json::to_vec(&object).unwrap_or_default(), Into::into);
        let content = content(&write);
        if let Some(delayed) = work.delays(key, target.resource, verb, content) {
            objects.blocked(key, verb);
            if let Some(error) = delayed.error {
                objects.refused(key, &plan, &error);
            }
            return delayed.outcome;
        }
        if shown.is_some() {
            work.written.planned(key);
        }
        let (expected, uid) = (write.version().cloned(), write.uid().cloned());
        let (client, writer) = (&work.host().client, &work.host().writer);
        let (left, object) = match target.write(client, writer, write, O::HAS_STATUS).await {
            Ok(response) => response,
            Err(error)
                if !has_read
                    && matches!(error.category, Category::Conflict | Category::AlreadyExists) =>
            {
                (shown, has_read) = match read(objects, key, Some(verb)).await {
                    Ok(read) => (Some(read), true),
                    Err(outcome) => return outcome,
                };
                continue;
            }
            Err(error) => return failed(objects, key, uid.as_ref(), &plan, &error),
        };
        work.accepted(key, target.resource, verb, content);
        let is_unchanged = matches!(&left, Left::Exists(left) if expected.as_ref() == Some(left));
        let is_held = verb == "delete" && matches!(left, Left::Exists(_));
        if is_unchanged && !is_held {
            let error = WriteError::ineffective(target.resource, target.full_name);
            return failed(objects, key, None, &plan, &error);
        }
        objects.wrote(key, &plan, verb, &left);
        work.written.set(key, left);
        let known = objects.known(key);
        let unseen = work.written.unseen(key, known.as_ref());
        is_free = false;
        // A delete that has no effect is not repeated at once.
        if is_held && (is_unchanged || was_held) {
            return Outcome::Refused;
        }
        was_held = is_held;
        // At once, so that a process that ends before the watch shows the object does not leave it without a status, and
        // that a copy which a finalizer holds is emptied.
        if is_held || (verb == "create" && O::HAS_STATUS) {
            // Without an object, the cache may have shown its end already.
            if known.is_some() {
                work.replan(key);
            }
            // From the response, unless the cache is as new.
            shown = unseen.map(|_| Read { object: Some(object) });
            continue;
        }
        // The watch queues the key as soon as it shows the write.
        return Outcome::RetryAfter(unseen.map_or(Duration::ZERO, |(_, wait)| wait));
    }
}

/// Nothing is left to write; if the key is free, neither by the cache nor by what was read, which is in the way of nothing.
fn settled<O: Objects>(objects: &O, key: &O::Key, plan: O::Plan, is_free: bool) -> Outcome {
    let outcome = objects.settled(key, plan);
    if outcome != Outcome::Done {
        return outcome;
    }
    let written = &objects.work().written;
    if is_free {
        written.forget(key);
    }
    // Until the watch shows the object, the queue holds the key, so that changes still queue it ([`Work::holds`]).
    match written.unseen(key, objects.known(key).as_ref()) {
        Some(_) => Outcome::RetryAfter(written.pause(key)),
        None => Outcome::Done,
    }
}

/// Reads the object, for a write with this verb. A read that takes long ends when the key is queued again: an end of a
/// grant waits for none.
async fn read<O: Objects>(
    objects: &O,
    key: &O::Key,
    verb: Option<&'static str>,
) -> Result<Read, Outcome> {
    let (work, target) = (objects.work(), objects.target(key));
    let reading = target.read(&work.host().client, &work.host().writer, O::CAN_GET);
    let read = tokio::select! {
        biased;
        read = reading => read,
        () = work.queued_again(key) => return Err(Outcome::Held),
    };
    match read {
        Ok(object) => {
            work.read(key, target.resource, if O::CAN_GET { "get" } else { "list" });
            match object.as_deref().and_then(version) {
                Some(version) => work.written.set(key, Left::Read(version)),
                None => work.written.forget(key),
            }
            Ok(Read { object })
        }
        Err(error) => {
            let failed = work.failed(key, &error);
            if failed.refused {
                if let Some(verb) = verb {
                    objects.blocked(key, verb);
                }
                if let Planned::Write(_, plan) = objects.plan(key, None) {
                    objects.refused(key, &plan, &error);
                }
            }
            Err(failed.outcome)
        }
    }
}

/// Decides what follows from a failed write to the object with this uid.
fn failed<O: Objects>(
    objects: &O,
    key: &O::Key,
    uid: Option<&Uid>,
    plan: &O::Plan,
    error: &WriteError,
) -> Outcome {
    let failed = objects.work().failed(key, error);
    if let Some(uid) = uid.filter(|_| failed.gone) {
        objects.work().written.set(key, Left::Gone(uid.clone()));
    }
    if let Some(outcome) = objects.failed(key, plan, error) {
        return outcome;
    }
    // The object is gone, the CRD is missing, or a webhook for the kind fails.
    if failed.refused
        || failed.gone
        || matches!(error.category, Category::NotServed | Category::Internal)
    {
        objects.blocked(key, error.verb);
    }
    if failed.refused {
        objects.refused(key, plan, error);
    }
    failed.outcome
}

#[cfg(test)]
mod tests;
