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

use std::collections::{BTreeMap, HashMap};
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
    clock: u64,
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
        Self { groups: BTreeMap::new(), clock: 0 }
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
        let group = self.groups.get_mut(operation)?;
        group.revoke(revokes, now);
        let is_probe = group.probe.as_ref() == Some(key);
        if is_probe || group.failed < if group.is_slow() { 1 } else { FEW } {
            group.tried = now;
            return None;
        }
        self.clock += 1;
        group.enter(key, (Line::New, self.clock));
        if group.probe.is_none() && !group.is_slow() {
            let next = now.max(group.tried + PROBE_PACE);
            group.next_probe = Some(group.next_probe.map_or(next, |due| due.min(next)));
        }
        let unreported = unreported(group.since, &group.last, now);
        Some(Parked { unreported, error: group.last.clone() })
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
        let group = self.groups.entry(operation.clone()).or_insert_with(|| FailureGroup {
            since: sent,
            last: error.clone(),
            tried: sent,
            members: HashMap::new(),
            line: BTreeMap::new(),
            probe: None,
            next_probe: None,
            backoff: probe_backoff(revokes),
            is_revoking: revokes,
            failed: 0,
            successes: 0,
            released: None,
            hinted: None,
        });
        group.last = error.clone();
        group.revoke(revokes, now);
        self.clock += 1;
        let successes = group.successes;
        let member = group.enter(key, (Line::Failed, self.clock));
        let since = *member.since.get_or_insert(sent);
        if member.failed_after.replace(successes) != Some(successes) {
            group.failed += 1;
        }
        if group.probe.as_ref() == Some(key)
            || (group.probe.is_none() && group.next_probe.is_none())
        {
            // A request that has hung has already waited.
            let delay = group.backoff.next().unwrap_or(PROBE_PACE).saturating_sub(error.took);
            self.plan_probe(operation, delay, now);
        }
        unreported(since, error, now)
    }

    /// A write of a key succeeded. Returns the keys to write now, since the cause may have ended.
    pub(crate) fn succeeded(&mut self, key: &K, operation: &Operation, now: Instant) -> Vec<K> {
        let Some(group) = self.groups.get_mut(operation) else { return Vec::new() };
        group.leave(key);
        let was_failing = group.failed > 0;
        (group.successes, group.failed) = (group.successes + 1, 0);
        group.last.took = Duration::ZERO;
        let mut released = Vec::new();
        if group.members.is_empty() {
            self.groups.remove(operation);
        } else if group.released.is_none_or(|before| now - before >= RELEASE_INTERVAL) {
            group.released = Some(now);
            group.since = now;
            released = group.line.values().cloned().collect();
            group.is_revoking = false;
            group.backoff = probe_backoff(false);
            self.plan_probe(operation, PROBE_PACE, now);
        } else if group.probe.is_none() && group.next_probe.is_none() {
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
        let alike = self.groups.iter_mut().filter(|(other, group)| {
            other.namespace != operation.namespace
                && (other.resource, other.verb) == (operation.resource, operation.verb)
                && group.probe.is_none()
                && group.hinted.is_none_or(|before| now - before >= HINT_INTERVAL)
        });
        let mut alike: Vec<_> = alike.map(|(_, group)| group).collect();
        alike.sort_by_key(|group| group.hinted);
        for group in alike.into_iter().take(HINTS) {
            group.hinted = Some(now);
            group.next_probe = Some(now);
        }
    }

    /// A worker has finished a key; `is_done` if nothing is left to write.
    pub(crate) fn finished(&mut self, key: &K, is_done: bool, now: Instant) {
        let (mut without_probe, mut clock) = (Vec::new(), self.clock);
        self.groups.retain(|operation, group| {
            let was_probe = group.probe.as_ref() == Some(key);
            if is_done {
                group.leave(key);
            }
            if was_probe {
                group.probe = None;
                // The key has another write now, so the probe has no result: the next key becomes the probe.
                if group.members.contains_key(key) {
                    clock += 1;
                    group.enter(key, (Line::Failed, clock));
                }
            }
            if was_probe || (group.probe.is_none() && group.next_probe.is_none()) {
                without_probe.push(operation.clone());
            }
            !group.members.is_empty()
        });
        self.clock = clock;
        // The probe did not fail, so the backoff does not advance.
        for operation in without_probe {
            self.plan_probe(&operation, PROBE_PACE, now);
        }
    }

    /// Plans the next probe of a group after this delay: sooner if the group has many keys, later if there are many
    /// groups.
    fn plan_probe(&mut self, operation: &Operation, delay: Duration, now: Instant) {
        let Some(class) = self.groups.get(operation).map(FailureGroup::class) else { return };
        let groups = self.groups.values().filter(|other| other.class() == class).count();
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        let rate = rate(class.0, class.1);
        let Some(group) = self.groups.get_mut(operation) else { return };
        group.probe = None;
        let members = u32::try_from(group.line.len()).unwrap_or(u32::MAX).max(1);
        let has_new = group.line.first_key_value().is_some_and(|((line, _), _)| *line == Line::New);
        let turn = if has_new { PROBE_PACE } else { (ROUND / members).max(PROBE_PACE) };
        let least = group.last.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        let share = Duration::from_secs(1) * groups / rate;
        let share = if groups > rate { share } else { Duration::ZERO };
        group.next_probe = Some(now + delay.min(turn).max(share).max(least));
    }

    /// When the next key becomes a probe.
    pub(crate) fn next_probe(&self) -> Option<Instant> {
        self.groups.values().filter_map(|group| group.next_probe).min()
    }

    /// Makes the first key of each group that is due its probe, and returns these keys.
    pub(crate) fn take_probes(&mut self, now: Instant) -> Vec<K> {
        let due =
            self.groups.values_mut().filter(|group| group.next_probe.is_some_and(|due| due <= now));
        due.filter_map(|group| {
            group.next_probe = None;
            group.probe = group.line.values().next().cloned();
            group.probe.clone()
        })
        .collect()
    }
}

/// The delays between the probes of a group.
fn probe_backoff(is_revoking: bool) -> ExponentialBackoff {
    backoff::between(PROBE_MIN, if is_revoking { PROBE_REVOCATION_MAX } else { PROBE_MAX })
}

impl<K: Clone + Eq + Hash> FailureGroup<K> {
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
