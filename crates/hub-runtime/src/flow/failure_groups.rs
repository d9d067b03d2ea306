//! Writes that fail in one place: what fails with one verb for one resource in one namespace is retried together.
//!
//! A webhook, a policy, a quota or a missing permission usually concerns many objects, and no event shows its end. Of a
//! group, one key after the other is retried as a probe; the others are parked without a timer, and the first success
//! releases all of them. A key that has a new reason to be written gets the next probe. As long as few keys of a group
//! fail, the others are written as if nothing had failed: the cause may concern these keys alone.
//!
//! A group is revoking if the end of a grant waits for one of its keys: for a delete, for the patch that empties a copy
//! which a finalizer holds, or for the permission without which the syncer cannot delete a copy. Its probes are more
//! frequent, and have a rate of their own. Whether a key revokes follows from the
//! verb or from its priority in the queue ([`Priority::End`](hub_core::priority::Priority::End)).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use backon::ExponentialBackoff;
use hub_api::names::Namespace;
use tokio::time::Instant;

use crate::flow::backoff;
use crate::write::error::WriteError;

/// Shortest delay between two probes of a group.
const PROBE_MIN: Duration = Duration::from_millis(250);
/// Longest delay between two probes of a group; jitter can double it.
const PROBE_MAX: Duration = Duration::from_millis(7500);
/// Longest delay between two probes of a revoking group; jitter can double it.
const PROBE_REVOCATION_MAX: Duration = Duration::from_millis(2500);
/// Delay between the probes of a group if keys in it have a new reason to be written, or if it is large.
const PROBE_PACE: Duration = Duration::from_secs(1);
/// The time within which every key of a group is probed once, unless [`PROBE_PACE`] limits it: keys can fail for
/// different reasons.
const ROUND: Duration = Duration::from_mins(1);
/// How many keys of a group have to fail before the others are parked; one, if its request was slow.
const FEW: usize = 4;
/// How many other namespaces have a probe at once because of a success in one. Each of these that succeeds leads to as
/// many more.
const HINTS: usize = 2;
/// Shortest time between two releases of a group, so that a key that always fails is not retried after every success of
/// the others.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two probes of a group that are due because of a success in another namespace.
const HINT_INTERVAL: Duration = Duration::from_secs(5);
/// Upper bound for `Retry-After`.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// A request that takes this long is slow: a request usually takes milliseconds.
pub(crate) const SLOW: Duration = Duration::from_secs(1);
/// The rate of all probes per second: of groups that are revoking or not, and whose last failure was slow or not. At 100
/// per second, each of 500 namespaces has one every five seconds. A request that hangs takes up to ten seconds, so ten
/// and sixty are in flight at most.
const fn rate(is_revoking: bool, is_slow: bool) -> u32 {
    match (is_revoking, is_slow) {
        (true, false) => 100,
        (true, true) => 6,
        (false, false) => 4,
        (false, true) => 1,
    }
}

/// How long writes must have failed before that is reported. A refusal is reported at once.
pub(crate) const LASTING: Duration = Duration::from_secs(3);

/// How long until a failure that has lasted since then must be reported; `None` if it must be now.
fn unreported(since: Instant, error: &WriteError, now: Instant) -> Option<Duration> {
    let left = LASTING.checked_sub(now - since).filter(|left| !left.is_zero());
    left.filter(|_| !error.category.is_refusal())
}

/// What the writes of a group have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Operation {
    pub(crate) namespace: Namespace,
    pub(crate) resource: &'static str,
    pub(crate) verb: &'static str,
}

/// The groups of failing writes of a controller.
pub(crate) struct FailureGroups<K> {
    groups: BTreeMap<Operation, FailureGroup<K>>,
    index: Index,
    clock: u64,
}

/// What is needed of all groups, without a visit to each: a webhook can cause thousands.
#[derive(Debug, Default, PartialEq, Eq)]
struct Index {
    /// When each group has its next probe.
    due: BTreeSet<(Instant, Operation)>,
    /// How many groups are revoking or not, and whose last failure was slow or not.
    classes: HashMap<(bool, bool), usize>,
    /// The groups of each resource and verb, by when they last had a probe because of a success in another namespace.
    by_hint: BTreeMap<ResourceAndVerb, BTreeSet<(Option<Instant>, Namespace)>>,
}

type ResourceAndVerb = (&'static str, &'static str);

/// What the index has of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Indexed {
    class: (bool, bool),
    next_probe: Option<Instant>,
    hinted: Option<Instant>,
}

impl Index {
    fn add(&mut self, operation: &Operation, indexed: Indexed) {
        self.due.extend(indexed.next_probe.map(|due| (due, operation.clone())));
        *self.classes.entry(indexed.class).or_default() += 1;
        let alike = self.by_hint.entry((operation.resource, operation.verb)).or_default();
        alike.insert((indexed.hinted, operation.namespace.clone()));
    }

    fn remove(&mut self, operation: &Operation, indexed: Indexed) {
        if let Some(due) = indexed.next_probe {
            self.due.remove(&(due, operation.clone()));
        }
        *self.classes.entry(indexed.class).or_default() -= 1;
        if let Some(alike) = self.by_hint.get_mut(&(operation.resource, operation.verb)) {
            alike.remove(&(indexed.hinted, operation.namespace.clone()));
        }
    }
}

struct FailureGroup<K> {
    /// When the first write that failed was sent, or when the group was last released.
    since: Instant,
    last: WriteError,
    /// When the last request was sent.
    tried: Instant,
    members: HashMap<K, Member>,
    /// The members in the order in which they become probes.
    line: BTreeMap<(Line, u64), K>,
    /// The member that is now a probe.
    probe: Option<K>,
    /// When the next member becomes a probe.
    next_probe: Option<Instant>,
    backoff: ExponentialBackoff,
    /// Whether the end of a grant has waited for one of its keys since the last release.
    is_revoking: bool,
    /// How many members have failed since the last success.
    failed: usize,
    successes: u64,
    released: Option<Instant>,
    hinted: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// With a new reason to be written.
    New,
    Failed,
}

struct Member {
    position: (Line, u64),
    /// Since when its writes have failed, if one was sent.
    since: Option<Instant>,
    /// `successes` of the group at its last failure: the member is counted in `failed` as long as that has not changed.
    failed_after: Option<u64>,
}

/// A write that is not sent now because others of its group fail.
#[derive(Debug)]
pub(crate) struct Parked {
    /// How long until the failure must be reported; `None` if it must be now.
    pub(crate) unreported: Option<Duration>,
    /// The last failure of the group.
    pub(crate) error: WriteError,
}

impl<K> Default for FailureGroups<K> {
    fn default() -> Self {
        Self { groups: BTreeMap::new(), index: Index::default(), clock: 0 }
    }
}

impl<K: Clone + Eq + Hash> FailureGroups<K> {
    /// Parks a key unless its write may be sent now. `revokes` if the end of a grant waits for it.
    pub(crate) fn admit(
        &mut self,
        key: &K,
        operation: &Operation,
        revokes: bool,
        now: Instant,
    ) -> Option<Parked> {
        self.clock += 1;
        let clock = self.clock;
        let parked = self.change(operation, |group| {
            group.revoke(revokes, now);
            let is_probe = group.probe.as_ref() == Some(key);
            if is_probe || group.failed < if group.is_slow() { 1 } else { FEW } {
                group.tried = now;
                return None;
            }
            group.enter(key, (Line::New, clock));
            if group.probe.is_none() && !group.is_slow() {
                let next = now.max(group.tried + PROBE_PACE);
                group.next_probe = Some(group.next_probe.map_or(next, |due| due.min(next)));
            }
            let unreported = unreported(group.since, &group.last, now);
            Some(Parked { unreported, error: group.last.clone() })
        });
        parked.flatten()
    }

    /// A write of a key failed; `revokes` as in [`Self::admit`]. Returns how long until that must be
    /// reported; `None` if it must be now.
    pub(crate) fn failed(
        &mut self,
        key: &K,
        operation: &Operation,
        revokes: bool,
        error: &WriteError,
        now: Instant,
    ) -> Option<Duration> {
        let sent = now.checked_sub(error.took).unwrap_or(now);
        if !self.groups.contains_key(operation) {
            let group = FailureGroup::new(sent, error, revokes);
            self.index.add(operation, group.indexed());
            self.groups.insert(operation.clone(), group);
        }
        self.clock += 1;
        let clock = self.clock;
        let failed = self.change(operation, |group| {
            group.last = error.clone();
            group.revoke(revokes, now);
            let successes = group.successes;
            let member = group.enter(key, (Line::Failed, clock));
            let since = *member.since.get_or_insert(sent);
            if member.failed_after.replace(successes) != Some(successes) {
                group.failed += 1;
            }
            let has_result = group.probe.as_ref() == Some(key);
            // A request that has hung has already waited.
            let delay = (has_result || group.has_no_probe())
                .then(|| group.backoff.next().unwrap_or(PROBE_PACE).saturating_sub(error.took));
            (since, delay)
        });
        let (since, delay) = failed.unwrap_or((sent, None));
        if let Some(delay) = delay {
            self.plan_probe(operation, delay, now);
        }
        unreported(since, error, now)
    }

    /// A write of a key succeeded. Returns the keys to write now, since the cause may have ended.
    pub(crate) fn succeeded(&mut self, key: &K, operation: &Operation, now: Instant) -> Vec<K> {
        let changed = self.change(operation, |group| {
            group.leave(key);
            let was_failing = group.failed > 0;
            (group.successes, group.failed) = (group.successes + 1, 0);
            group.last.took = Duration::ZERO;
            if group.members.is_empty() {
                return (was_failing, Vec::new(), false);
            }
            if group.released.is_some_and(|before| now - before < RELEASE_INTERVAL) {
                return (was_failing, Vec::new(), group.has_no_probe());
            }
            group.released = Some(now);
            group.since = now;
            group.is_revoking = false;
            group.backoff = probe_backoff(false);
            (was_failing, group.line.values().cloned().collect(), true)
        });
        let Some((was_failing, released, needs_probe)) = changed else { return Vec::new() };
        if needs_probe {
            self.plan_probe(operation, PROBE_PACE, now);
        }
        if was_failing {
            self.hint(operation, now);
        }
        released
    }

    /// Makes probes due in other namespaces, since the cause may have ended there, too: in those first that have had no
    /// such probe for longest.
    fn hint(&mut self, operation: &Operation, now: Instant) {
        let alike = self.index.by_hint.get(&(operation.resource, operation.verb));
        let due = alike
            .into_iter()
            .flatten()
            .take_while(|(hinted, _)| hinted.is_none_or(|before| now - before >= HINT_INTERVAL));
        let others = due.filter(|(_, namespace)| *namespace != operation.namespace);
        let others = others.map(|(_, it)| Operation { namespace: it.clone(), ..operation.clone() });
        let waits = |other: &Operation| self.groups.get(other).is_some_and(|it| it.probe.is_none());
        for other in others.filter(waits).take(HINTS).collect::<Vec<_>>() {
            self.change(&other, |group| {
                group.hinted = Some(now);
                group.next_probe = Some(now);
            });
        }
    }

    /// A worker has finished a key of this namespace; `is_done` if nothing is left to write.
    pub(crate) fn finished(&mut self, key: &K, namespace: &Namespace, is_done: bool, now: Instant) {
        let first = Operation { namespace: namespace.clone(), resource: "", verb: "" };
        let operations = self.groups.range(first..).map(|(operation, _)| operation);
        let operations = operations.take_while(|operation| operation.namespace == *namespace);
        for operation in operations.cloned().collect::<Vec<_>>() {
            self.clock += 1;
            let clock = self.clock;
            let needs_probe = self.change(&operation, |group| {
                let was_probe = group.probe.as_ref() == Some(key);
                if is_done {
                    group.leave(key);
                }
                if was_probe {
                    group.probe = None;
                    // The key has another write now, so the probe has no result: the next key becomes the probe.
                    if group.members.contains_key(key) {
                        group.enter(key, (Line::Failed, clock));
                    }
                }
                was_probe || group.has_no_probe()
            });
            if needs_probe == Some(true) {
                // The probe did not fail, so the backoff does not advance.
                self.plan_probe(&operation, PROBE_PACE, now);
            }
        }
    }

    /// Plans the next probe of a group after this delay: sooner if the group has many keys, later if there are many
    /// groups.
    fn plan_probe(&mut self, operation: &Operation, delay: Duration, now: Instant) {
        let Some(class) = self.groups.get(operation).map(FailureGroup::class) else { return };
        let groups = self.index.classes.get(&class).copied().unwrap_or_default();
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        let rate = rate(class.0, class.1);
        self.change(operation, |group| {
            group.probe = None;
            let members = u32::try_from(group.line.len()).unwrap_or(u32::MAX).max(1);
            let first = group.line.first_key_value();
            let has_new = first.is_some_and(|((line, _), _)| *line == Line::New);
            let turn = if has_new { PROBE_PACE } else { (ROUND / members).max(PROBE_PACE) };
            let least = group.last.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
            let share = Duration::from_secs(1) * groups / rate;
            let share = if groups > rate { share } else { Duration::ZERO };
            group.next_probe = Some(now + delay.min(turn).max(share).max(least));
        });
    }

    /// When the next key becomes a probe.
    pub(crate) fn next_probe(&self) -> Option<Instant> {
        self.index.due.first().map(|(due, _)| *due)
    }

    /// Makes the first key of each group that is due its probe, and returns these keys.
    pub(crate) fn take_probes(&mut self, now: Instant) -> Vec<K> {
        let mut probes = Vec::new();
        while let Some((_, operation)) = self.index.due.first().filter(|(due, _)| *due <= now) {
            let operation = operation.clone();
            let probe = self.change(&operation, |group| {
                group.next_probe = None;
                group.probe = group.line.values().next().cloned();
                group.probe.clone()
            });
            probes.extend(probe.flatten());
        }
        probes
    }

    /// Changes a group, if it exists, and its entries in the index. Without members, it ends.
    fn change<T>(
        &mut self,
        operation: &Operation,
        change: impl FnOnce(&mut FailureGroup<K>) -> T,
    ) -> Option<T> {
        let group = self.groups.get_mut(operation)?;
        let before = group.indexed();
        let result = change(group);
        let (after, is_over) = (group.indexed(), group.members.is_empty());
        if is_over || after != before {
            self.index.remove(operation, before);
        }
        if is_over {
            self.groups.remove(operation);
        } else if after != before {
            self.index.add(operation, after);
        }
        Some(result)
    }
}

/// The delays between the probes of a group.
fn probe_backoff(is_revoking: bool) -> ExponentialBackoff {
    backoff::between(PROBE_MIN, if is_revoking { PROBE_REVOCATION_MAX } else { PROBE_MAX })
}

impl<K: Clone + Eq + Hash> FailureGroup<K> {
    fn new(since: Instant, error: &WriteError, is_revoking: bool) -> Self {
        Self {
            since,
            last: error.clone(),
            tried: since,
            members: HashMap::new(),
            line: BTreeMap::new(),
            probe: None,
            next_probe: None,
            backoff: probe_backoff(is_revoking),
            is_revoking,
            failed: 0,
            successes: 0,
            released: None,
            hinted: None,
        }
    }

    fn indexed(&self) -> Indexed {
        Indexed { class: self.class(), next_probe: self.next_probe, hinted: self.hinted }
    }

    /// Whether no member is a probe, or is to become one.
    fn has_no_probe(&self) -> bool {
        self.probe.is_none() && self.next_probe.is_none()
    }

    fn is_slow(&self) -> bool {
        self.last.took >= SLOW
    }

    /// Whether it is revoking, and whether its last failure was slow.
    fn class(&self) -> (bool, bool) {
        (self.is_revoking, self.is_slow())
    }

    /// If the end of a grant waits for a key, makes the group a revoking one, whose next probe is due earlier.
    fn revoke(&mut self, revokes: bool, now: Instant) {
        if revokes && !self.is_revoking {
            self.is_revoking = true;
            self.backoff = probe_backoff(true);
            let most = now + PROBE_REVOCATION_MAX;
            self.next_probe = self.next_probe.map(|due| due.min(most));
        }
    }

    fn enter(&mut self, key: &K, position: (Line, u64)) -> &mut Member {
        let member = self.members.entry(key.clone()).or_insert_with(|| Member {
            position,
            since: None,
            failed_after: None,
        });
        // A key that already waits among the new ones keeps its position.
        if member.position.0 != Line::New || position.0 != Line::New {
            self.line.remove(&member.position);
            member.position = position;
        }
        self.line.insert(member.position, key.clone());
        member
    }

    fn leave(&mut self, key: &K) {
        let Some(member) = self.members.remove(key) else { return };
        self.line.remove(&member.position);
        if member.failed_after == Some(self.successes) {
            self.failed = self.failed.saturating_sub(1);
        }
        if self.probe.as_ref() == Some(key) {
            self.probe = None;
        }
    }
}
