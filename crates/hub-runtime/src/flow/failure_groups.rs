//! Writes that fail in one place: what fails with one verb for one resource in one namespace is retried together.
//!
//! A webhook, a policy, a quota or a missing permission usually concerns many objects, and no event shows its end. Of a
//! group, one key after the other is retried as a probe; the others are parked without a timer, and the first success
//! releases all of them. A key that has a new reason to be written gets the next probe. As long as few keys of a group
//! fail, the others are written as if nothing had failed: the cause may concern these keys alone.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use backon::ExponentialBackoff;
use hub_api::names::Namespace;
use tokio::time::Instant;

use crate::backoff;
use crate::error::WriteError;

/// Shortest delay between two probes of a group.
const PROBE_MIN: Duration = Duration::from_millis(250);
/// Longest delay between two probes of a group; jitter can double it.
const PROBE_MAX: Duration = Duration::from_millis(7500);
/// Longest delay between two probes of writes that can end a grant; jitter can double it.
const PROBE_REVOCATION_MAX: Duration = Duration::from_millis(2500);
/// Delay between probes for keys that have a new reason to be written, or if a group is large.
const PROBE_PACE: Duration = Duration::from_secs(1);
/// In which time each key of a group is a probe, if [`PROBE_PACE`] suffices: the keys can have different causes.
const ROUND: Duration = Duration::from_mins(1);
/// Probes per second of all groups, and of all groups of writes that can end a grant.
const ALL_PROBES: u32 = 4;
const ALL_REVOCATIONS: u32 = 20;
/// How many keys of a group have to fail before the others are parked.
const FEW: usize = 4;
/// The shortest time between two releases of a group: one key may fail while the others succeed.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time between two probes of a group because of a success in another namespace.
const HINT_INTERVAL: Duration = Duration::from_secs(5);
/// Longest `Retry-After` that a group waits.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// The duration of a request from which it is slow: a request usually takes milliseconds.
pub(crate) const SLOW: Duration = Duration::from_secs(1);
/// How many requests of groups whose last failure was slow are in flight at a time: of writes that can end a grant, and of
/// the others.
const SLOW_REVOCATIONS: usize = 64;
const SLOW_OTHERS: usize = 8;

/// How long writes must have failed before that is reported. A refusal is reported at once.
pub(crate) const LASTING: Duration = Duration::from_secs(3);

/// What a group has in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Operation {
    pub(crate) namespace: Namespace,
    pub(crate) resource: &'static str,
    pub(crate) verb: &'static str,
}

impl Operation {
    /// Whether such a write can end a grant: a delete, or the patch that empties a copy while a finalizer holds it.
    fn can_revoke(&self) -> bool {
        self.verb == "delete" || (self.resource, self.verb) == ("secrets", "patch")
    }

    fn probe_max(&self) -> Duration {
        if self.can_revoke() { PROBE_REVOCATION_MAX } else { PROBE_MAX }
    }
}

/// The groups of failing writes of a controller.
pub(crate) struct FailureGroups<K> {
    groups: BTreeMap<Operation, FailureGroup<K>>,
    /// The requests in flight of groups whose last failure was slow, and whether each can end a grant.
    slow: HashMap<K, bool>,
    clock: u64,
}

struct FailureGroup<K> {
    /// Since when every write has failed.
    since: Instant,
    last: WriteError,
    /// When the last request was sent.
    tried: Instant,
    members: HashMap<K, Member>,
    /// The members in the order in which they are probes.
    line: BTreeMap<(Line, u64), K>,
    /// The member that is now a probe.
    probe: Option<K>,
    /// When the next member becomes a probe.
    next_probe: Option<Instant>,
    backoff: ExponentialBackoff,
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
    /// The number of successes of the group before its last failure.
    failed_after: Option<u64>,
}

/// A write that is not sent now because others of its group fail.
#[derive(Debug)]
pub(crate) struct Parked {
    /// How long to wait until the failure is reported; `None` if it is.
    pub(crate) unreported: Option<Duration>,
    /// The last failure of the group.
    pub(crate) error: WriteError,
}

impl<K> Default for FailureGroups<K> {
    fn default() -> Self {
        Self { groups: BTreeMap::new(), slow: HashMap::new(), clock: 0 }
    }
}

impl<K: Clone + Eq + Hash> FailureGroups<K> {
    /// Parks a key unless its write may be sent now.
    pub(crate) fn admit(&mut self, key: &K, operation: &Operation, now: Instant) -> Option<Parked> {
        let can_revoke = operation.can_revoke();
        let group = self.groups.get_mut(operation)?;
        let is_probe = group.probe.as_ref() == Some(key);
        let is_slow = group.last.took >= SLOW;
        let most = if can_revoke { SLOW_REVOCATIONS } else { SLOW_OTHERS };
        let is_crowded = is_slow && self.slow.values().filter(|it| **it == can_revoke).count() >= most;
        if (is_probe || group.failed < FEW) && !is_crowded {
            group.tried = now;
            if is_slow {
                self.slow.insert(key.clone(), can_revoke);
            }
            return None;
        }
        self.clock += 1;
        group.enter(key, (Line::New, self.clock));
        if is_probe {
            group.probe = None;
        }
        let next = if is_crowded { now + PROBE_PACE } else { now.max(group.tried + PROBE_PACE) };
        if group.probe.is_none() {
            group.next_probe = Some(group.next_probe.map_or(next, |due| due.min(next)));
        }
        let unreported = LASTING.checked_sub(now - group.since).filter(|left| !left.is_zero());
        let unreported = unreported.filter(|_| !group.last.category.is_refusal());
        Some(Parked { unreported, error: group.last.clone() })
    }

    /// A write of a key failed. Returns since when writes of this key have failed.
    pub(crate) fn failed(
        &mut self,
        key: &K,
        operation: &Operation,
        error: &WriteError,
        now: Instant,
    ) -> Instant {
        let sent = now.checked_sub(error.took).unwrap_or(now);
        let max = operation.probe_max();
        let group = self.groups.entry(operation.clone()).or_insert_with(|| FailureGroup {
            since: sent,
            last: error.clone(),
            tried: sent,
            members: HashMap::new(),
            line: BTreeMap::new(),
            probe: None,
            next_probe: None,
            backoff: backoff::between(PROBE_MIN, max),
            failed: 0,
            successes: 0,
            released: None,
            hinted: None,
        });
        group.last = error.clone();
        self.clock += 1;
        let successes = group.successes;
        let member = group.enter(key, (Line::Failed, self.clock));
        let since = *member.since.get_or_insert(sent);
        if member.failed_after.replace(successes) != Some(successes) {
            group.failed += 1;
        }
        if group.probe.as_ref() == Some(key) || (group.probe.is_none() && group.next_probe.is_none()) {
            // A request that has hung has already waited.
            let delay = group.backoff.next().unwrap_or(max).saturating_sub(error.took);
            self.plan_probe(operation, delay, now);
        }
        since
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
            group.backoff = backoff::between(PROBE_MIN, operation.probe_max());
            self.plan_probe(operation, PROBE_PACE, now);
        } else if group.probe.is_none() && group.next_probe.is_none() {
            self.plan_probe(operation, PROBE_PACE, now);
        }
        if was_failing {
            self.hint(operation, now);
        }
        released
    }

    /// The cause may have ended in other namespaces, too.
    fn hint(&mut self, operation: &Operation, now: Instant) {
        let alike = self.groups.iter_mut().filter(|(other, _)| {
            other.namespace != operation.namespace
                && (other.resource, other.verb) == (operation.resource, operation.verb)
        });
        for (_, group) in alike {
            if group.probe.is_none() && group.hinted.is_none_or(|before| now - before >= HINT_INTERVAL) {
                group.hinted = Some(now);
                group.next_probe = Some(now);
            }
        }
    }

    /// A worker has finished a key; `is_done` if nothing is left to write.
    pub(crate) fn finished(&mut self, key: &K, is_done: bool, now: Instant) {
        self.slow.remove(key);
        if self.groups.is_empty() {
            return;
        }
        let (mut without_probe, mut clock) = (Vec::new(), self.clock);
        self.groups.retain(|operation, group| {
            let was_probe = group.probe.as_ref() == Some(key);
            if is_done {
                group.leave(key);
            }
            if was_probe {
                group.probe = None;
                // It has neither succeeded nor failed here, since it has another write now: the others may succeed.
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
        // It did not fail, so the next one need not wait longer than before.
        for operation in without_probe {
            self.plan_probe(&operation, PROBE_PACE, now);
        }
    }

    /// Plans the next probe of a group after this delay, or sooner or later if there are many keys or groups.
    fn plan_probe(&mut self, operation: &Operation, delay: Duration, now: Instant) {
        let can_revoke = operation.can_revoke();
        let groups = self.groups.keys().filter(|other| other.can_revoke() == can_revoke).count();
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        let rate = if can_revoke { ALL_REVOCATIONS } else { ALL_PROBES };
        let Some(group) = self.groups.get_mut(operation) else { return };
        group.probe = None;
        let members = u32::try_from(group.line.len()).unwrap_or(u32::MAX).max(1);
        let turn = if group.has_new() { PROBE_PACE } else { (ROUND / members).max(PROBE_PACE) };
        let least = group.last.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        let share = Duration::from_secs(1) * groups / rate;
        let share = if groups > rate { share } else { Duration::ZERO };
        group.next_probe = Some(now + delay.min(turn).max(share).max(least));
    }

    /// When the next key becomes a probe.
    pub(crate) fn next_probe(&self) -> Option<Instant> {
        self.groups.values().filter_map(|group| group.next_probe).min()
    }

    /// The keys that are probes now.
    pub(crate) fn take_probes(&mut self, now: Instant) -> Vec<K> {
        let due = self.groups.values_mut().filter(|group| group.next_probe.is_some_and(|due| due <= now));
        due.filter_map(|group| {
            group.next_probe = None;
            group.probe = group.line.values().next().cloned();
            group.probe.clone()
        })
        .collect()
    }
}

impl<K: Clone + Eq + Hash> FailureGroup<K> {
    fn has_new(&self) -> bool {
        self.line.first_key_value().is_some_and(|((line, _), _)| *line == Line::New)
    }

    fn enter(&mut self, key: &K, position: (Line, u64)) -> &mut Member {
        let member = self.members.entry(key.clone()).or_insert_with(|| Member {
            position,
            since: None,
            failed_after: None,
        });
        // What has waited longer stays before what comes now.
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::error::Category;

    const SECOND: Duration = Duration::from_secs(1);

    fn operation(namespace: &str) -> Operation {
        Operation { namespace: namespace.into(), resource: "things", verb: "create" }
    }

    fn error(category: Category) -> WriteError {
        WriteError::new("create", "things", "name", category, "text")
    }

    /// A controller whose writes in some namespaces fail, and which writes keys when it may.
    struct Scene {
        groups: FailureGroups<(&'static str, u32)>,
        category: Category,
        took: Duration,
        now: Instant,
        sent: Vec<(&'static str, u32)>,
    }

    impl Scene {
        fn new(category: Category) -> Self {
            let took = Duration::ZERO;
            Self { groups: FailureGroups::default(), category, took, now: Instant::now(), sent: Vec::new() }
        }

        /// Writes a key, which fails; returns whether a request was sent.
        fn fails(&mut self, key: (&'static str, u32)) -> bool {
            let operation = operation(key.0);
            let sends = self.groups.admit(&key, &operation, self.now).is_none();
            if sends {
                self.sent.push(key);
                let error = WriteError { took: self.took, ..error(self.category) };
                self.groups.failed(&key, &operation, &error, self.now);
            }
            self.groups.finished(&key, false, self.now);
            sends
        }

        fn succeeds(&mut self, key: (&'static str, u32)) -> Vec<(&'static str, u32)> {
            let operation = operation(key.0);
            assert!(self.groups.admit(&key, &operation, self.now).is_none(), "{key:?}");
            let released = self.groups.succeeded(&key, &operation, self.now);
            self.groups.finished(&key, true, self.now);
            released
        }

        /// Lets time pass; every probe fails.
        fn pass(&mut self, time: Duration) {
            let end = self.now + time;
            while let Some(next) = self.groups.next_probe().filter(|next| *next <= end) {
                self.now = self.now.max(next);
                for key in self.groups.take_probes(self.now) {
                    assert!(self.fails(key), "a probe is sent");
                }
            }
            self.now = end;
        }
    }

    #[test]
    fn few_keys_are_tried_and_the_first_success_releases_all() {
        let mut scene = Scene::new(Category::Denied);
        let sent: Vec<_> = (0..1000).filter(|number| scene.fails(("team", *number))).collect();
        assert_eq!(sent, [0, 1, 2, 3]);
        scene.sent.clear();
        scene.pass(Duration::from_mins(1));
        assert!((40..=70).contains(&scene.sent.len()), "{} probes in a minute", scene.sent.len());
        assert!(
            scene.groups.admit(&("other", 1), &operation("other"), scene.now).is_none(),
            "another namespace"
        );
        let patch = Operation { verb: "patch", ..operation("team") };
        assert!(scene.groups.admit(&("team", 1), &patch, scene.now).is_none(), "another verb");
        scene.pass(SECOND * 2);
        let next = scene.groups.next_probe().unwrap();
        scene.now = next;
        let probe = scene.groups.take_probes(next)[0];
        assert_eq!(scene.succeeds(probe).len(), 999);
        for number in 4..1000 {
            let key = ("team", number);
            assert!(scene.groups.admit(&key, &operation("team"), scene.now).is_none(), "released");
        }
    }

    #[test]
    fn a_probe_is_due_within_seconds_however_long_the_failure_lasts() {
        for (verb, resource, most) in [
            ("create", "secrets", PROBE_MAX * 2),
            ("patch", "things", PROBE_MAX * 2),
            ("delete", "things", PROBE_REVOCATION_MAX * 2),
            // It may empty a copy that a finalizer holds.
            ("patch", "secrets", PROBE_REVOCATION_MAX * 2),
        ] {
            let mut groups = FailureGroups::default();
            let operation = Operation { resource, verb, ..operation("team") };
            let mut now = Instant::now();
            for _ in 0..20 {
                assert!(groups.admit(&1, &operation, now).is_none());
                groups.failed(&1, &operation, &error(Category::Internal), now);
                groups.finished(&1, false, now);
                let next = groups.next_probe().unwrap();
                assert!(next <= now + most, "{verb} {resource}: {:?}", next - now);
                now = next;
                assert_eq!(groups.take_probes(now), [1]);
            }
        }
    }

    #[test]
    fn every_key_of_a_group_becomes_a_probe() {
        let mut scene = Scene::new(Category::Internal);
        (0..30).for_each(|number| {
            scene.fails(("team", number));
        });
        scene.pass(Duration::from_mins(2));
        let sent: HashSet<_> = scene.sent.iter().map(|(_, number)| *number).collect();
        assert_eq!(sent.len(), 30);
    }

    #[test]
    fn a_key_with_a_new_reason_is_tried_within_a_second_while_others_fail() {
        let mut scene = Scene::new(Category::Denied);
        (0..10).for_each(|number| {
            scene.fails(("team", number));
        });
        scene.pass(Duration::from_mins(5));
        assert!(!scene.fails(("team", 77)));
        scene.sent.clear();
        scene.pass(PROBE_PACE);
        assert_eq!(scene.sent.first(), Some(&("team", 77)));
    }

    #[test]
    fn keys_that_always_fail_delay_no_others_and_are_not_sent_with_each_of_them() {
        let mut scene = Scene::new(Category::Denied);
        for number in 0..3 {
            assert!(scene.fails(("team", number)));
        }
        scene.sent.clear();
        for number in 10..1010 {
            for released in scene.succeeds(("team", number)) {
                scene.fails(released);
            }
            scene.pass(Duration::from_millis(10));
        }
        assert!(scene.sent.len() <= 60, "{} failures beside 1000 successes in ten seconds", scene.sent.len());
    }

    #[test]
    fn a_success_in_one_namespace_is_a_hint_for_the_others() {
        let mut scene = Scene::new(Category::Internal);
        for namespace in ["a", "b", "c"] {
            assert!(scene.fails((namespace, 1)));
        }
        scene.pass(Duration::from_mins(5));
        scene.succeeds(("a", 2));
        let probes = scene.groups.take_probes(scene.now);
        assert_eq!(probes.len(), 2, "{probes:?}");
    }

    #[test]
    fn the_probes_of_all_namespaces_have_a_bound() {
        let mut scene = Scene::new(Category::Internal);
        let namespaces: Vec<&'static str> =
            (0..500).map(|number| &*Box::leak(format!("n{number}").into_boxed_str())).collect();
        for namespace in namespaces {
            scene.fails((namespace, 1));
        }
        scene.pass(Duration::from_mins(5));
        scene.sent.clear();
        scene.pass(Duration::from_mins(1));
        assert!(scene.sent.len() <= 60 * ALL_PROBES as usize, "{} probes in a minute", scene.sent.len());
    }

    #[test]
    fn few_requests_that_are_expected_to_be_slow_are_in_flight() {
        let mut scene = Scene::new(Category::Timeout);
        scene.took = SECOND * 10;
        let namespaces = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        for namespace in namespaces {
            assert!(scene.fails((namespace, 1)));
        }
        let admitted = namespaces.into_iter().filter(|namespace| {
            scene.groups.admit(&(*namespace, 1), &operation(namespace), scene.now).is_none()
        });
        assert_eq!(admitted.count(), SLOW_OTHERS);
        // The others wait for a moment, and not for no time at all.
        let (mut probes, begin) = (0, scene.now);
        while scene.now < begin + SECOND * 10 {
            for probe in scene.groups.take_probes(scene.now) {
                probes += 1;
                assert!(scene.groups.admit(&probe, &operation(probe.0), scene.now).is_some());
            }
            scene.now = scene.groups.next_probe().unwrap();
        }
        assert!(probes <= namespaces.len() * 12, "{probes} in ten seconds");
        scene.groups.finished(&("a", 1), false, scene.now);
        assert!(scene.groups.admit(&("j", 1), &operation("j"), scene.now).is_none());
    }

    #[test]
    fn writes_that_end_a_grant_do_not_wait_for_others_that_hang() {
        let mut groups = FailureGroups::default();
        let (now, hung) = (Instant::now(), WriteError { took: SECOND * 10, ..error(Category::Timeout) });
        for verb in ["create", "delete"] {
            for number in 0..100_u32 {
                let namespace = Namespace::from(&*format!("n{number}"));
                let operation = Operation { namespace, resource: "things", verb };
                groups.failed(&(verb, number), &operation, &hung, now);
                groups.finished(&(verb, number), false, now);
                groups.admit(&(verb, number), &operation, now);
            }
        }
        let in_flight = |revokes| groups.slow.values().filter(|it| **it == revokes).count();
        assert_eq!((in_flight(false), in_flight(true)), (SLOW_OTHERS, SLOW_REVOCATIONS));
    }

    #[test]
    fn a_probe_that_has_another_write_now_leaves_its_turn_to_the_next() {
        let mut scene = Scene::new(Category::Denied);
        (0..6).for_each(|number| {
            scene.fails(("team", number));
        });
        let mut turns = HashSet::new();
        for _ in 0..12 {
            scene.now = scene.groups.next_probe().unwrap();
            let probe = scene.groups.take_probes(scene.now)[0];
            turns.insert(probe);
            // It is deleted now, which is refused.
            scene.groups.finished(&probe, false, scene.now);
        }
        assert_eq!(turns.len(), 6, "{turns:?}");
    }

    #[test]
    fn a_refusal_is_reported_at_once_and_another_failure_once_it_lasts() {
        for (category, at_once) in [(Category::QuotaExceeded, true), (Category::Internal, false)] {
            let mut scene = Scene::new(category);
            (0..4).for_each(|number| {
                scene.fails(("team", number));
            });
            let parked = |scene: &mut Scene| {
                scene.groups.admit(&("team", 9), &operation("team"), scene.now).unwrap().unreported
            };
            assert_eq!(parked(&mut scene).is_none(), at_once);
            scene.now += LASTING;
            assert_eq!(parked(&mut scene), None);
        }
        let mut groups = FailureGroups::default();
        let now = Instant::now();
        let hung = WriteError { took: SECOND * 10, ..error(Category::Timeout) };
        assert_eq!(groups.failed(&1, &operation("team"), &hung, now), now - SECOND * 10, "since it was sent");
    }

    #[test]
    fn the_retry_after_of_the_api_server_is_honoured() {
        let (mut groups, now) = (FailureGroups::default(), Instant::now());
        let failed = WriteError { retry_after: Some(SECOND * 30), ..error(Category::Timeout) };
        groups.failed(&1, &operation("team"), &failed, now);
        assert!(groups.next_probe() >= Some(now + SECOND * 30));
    }

    #[test]
    fn a_group_without_keys_is_forgotten() {
        let mut scene = Scene::new(Category::Denied);
        (0..8).for_each(|number| {
            scene.fails(("team", number));
        });
        // Nothing is left to write for them, whether or not they were probes.
        for number in 0..8 {
            assert!(scene.groups.next_probe().is_some());
            scene.groups.finished(&("team", number), true, scene.now);
        }
        assert!(scene.groups.groups.is_empty() && scene.groups.slow.is_empty());
    }

    #[test]
    fn a_probe_that_has_nothing_to_write_any_more_leaves_its_turn_to_the_next() {
        let mut scene = Scene::new(Category::Denied);
        (0..5).for_each(|number| {
            scene.fails(("team", number));
        });
        for _ in 0..4 {
            scene.now = scene.groups.next_probe().unwrap();
            let probe = scene.groups.take_probes(scene.now)[0];
            scene.groups.finished(&probe, true, scene.now);
        }
        assert!(scene.groups.next_probe().unwrap() <= scene.now + PROBE_PACE);
    }
}
