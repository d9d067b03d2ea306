//! Writes that a watch is expected to show, like `ControllerExpectations` in kube-controller-manager.
//!
//! The watch is the only writer of a cache. After an accepted write, the cache is older than the hub, so the next plan
//! for the key waits until the watch has shown the write: its version or a later one, the end of its object, or a list
//! that began after the response. If it shows nothing within [`LONGEST_LAG`], the object is read for one plan.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hub_core::version::Version;
use tokio::time::Instant;

use super::is_newer;

/// How long a key waits for the watch to show a write before its object is read.
pub const LONGEST_LAG: Duration = Duration::from_secs(5);

/// How long a key waits if its object is never read: longer than a watch that shows nothing lasts, after which the next
/// watch or a list shows the write.
pub const LONGEST_SILENCE: Duration = Duration::from_mins(3);

/// The expectations of the keys of a queue. There are few: for writes that are in flight or have just been accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Expectations<K> {
    expected: BTreeMap<K, Expected>,
    /// Numbers responses and lists in the order of their arrival.
    next: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Expected {
    what: What,
    number: u64,
    since: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum What {
    /// The response to a request.
    Response(InFlight),
    /// The version that a write has left, or a later one; with the hash of the patch, if it was one.
    Version(Version, Option<u64>),
    /// The end of the object with this uid.
    End(String),
    /// Any object.
    Object,
}

impl What {
    /// Whether a cache with this version, or without an object, includes what is expected.
    fn is_shown(&self, known: Option<&Version>) -> bool {
        match (self, known) {
            (Self::Response(_), _) | (Self::Object, Some(_)) => true,
            // A later object of the same name has a later version, an earlier one an earlier version.
            (Self::Version(version, _), Some(known)) => {
                !is_newer(&version.resource_version, &known.resource_version)
            }
            (Self::Version(..) | Self::Object, None) => false,
            // If the cache has no object, the watch may not have shown the object yet, and shows its end after it.
            (Self::End(uid), known) => known.is_some_and(|known| known.uid != *uid),
        }
    }
}

/// A request without a response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct InFlight {
    /// What was expected before.
    before: Option<Box<Expected>>,
    /// The uids of the objects whose end the watch has shown since: it will not show it again.
    ended: BTreeSet<String>,
    /// The version of the last list that has been completed since.
    listed: Option<String>,
}

/// Whether a key can be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It can. Contains the hash of the last patch if the cache has exactly the version that this patch returned: if
    /// the plan is the same patch again, it had no effect.
    Ready(Option<u64>),
    /// The watch has not shown a write yet. If it does not within this time, the object is read.
    Wait(Duration),
    /// The watch is late: read the object.
    Read,
}

/// What a write has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The object has been created in this version.
    Created(Version),
    /// The object exists in this version.
    Exists(Version),
    /// The object with this uid is gone.
    Gone(String),
    /// The name of a create is taken by an existing object.
    Met,
}

impl<K> Default for Expectations<K> {
    fn default() -> Self {
        Self { expected: BTreeMap::new(), next: 0 }
    }
}

impl<K: Clone + Ord> Expectations<K> {
    /// Records that a write is sent.
    pub fn sending(&mut self, key: &K, now: Instant) {
        let before = self.expected.remove(key).map(Box::new);
        self.expect(key, What::Response(InFlight { before, ended: BTreeSet::new(), listed: None }), now);
    }

    /// Records the effect of the write, as its response shows it.
    pub fn sent(
        &mut self,
        key: &K,
        known: Option<&Version>,
        effect: Effect,
        patch: Option<u64>,
        now: Instant,
    ) {
        let (ended, listed) = match self.expected.remove(key) {
            Some(Expected { what: What::Response(InFlight { ended, listed, .. }), .. }) => (ended, listed),
            _ => (BTreeSet::new(), None),
        };
        match effect {
            Effect::Created(version) | Effect::Exists(version) => {
                let is_listed = |listed: &String| !is_newer(&version.resource_version, listed);
                if !ended.contains(&version.uid) && !listed.as_ref().is_some_and(is_listed) {
                    self.expect(key, What::Version(version, patch), now);
                }
            }
            Effect::Gone(uid) => {
                let is_listed = listed.is_some() && known.is_none_or(|known| known.uid != uid);
                if !ended.contains(&uid) && !is_listed {
                    self.expect(key, What::End(uid), now);
                }
            }
            // The object may be one whose end the watch has shown.
            Effect::Met if !ended.is_empty() || listed.is_some() => {}
            Effect::Met => self.expect(key, What::Object, now),
        }
    }

    /// Records that the write has failed; `gone` is the uid of its object if it does not exist any more.
    pub fn failed(&mut self, key: &K, known: Option<&Version>, gone: Option<&str>, now: Instant) {
        match gone {
            Some(uid) => self.sent(key, known, Effect::Gone(uid.to_owned()), None, now),
            None => self.forget(key),
        }
    }

    /// Records what a read of the object has returned: this version, or no object.
    pub fn read(&mut self, key: &K, version: Option<Version>, now: Instant) {
        match version {
            Some(version) => self.sent(key, None, Effect::Exists(version), None, now),
            None => self.forget(key),
        }
    }

    /// Expects nothing of the last write. If it has no response yet, what was expected before it is expected again.
    pub fn forget(&mut self, key: &K) {
        if let Some(Expected { what: What::Response(InFlight { before: Some(before), .. }), .. }) =
            self.expected.remove(key)
        {
            self.expected.insert(key.clone(), *before);
        }
    }

    /// Forgets what watches that have ended were expected to show.
    pub fn keep(&mut self, is_watched: impl Fn(&K) -> bool) {
        self.expected.retain(|key, expected| matches!(expected.what, What::Response(_)) || is_watched(key));
    }

    fn expect(&mut self, key: &K, what: What, now: Instant) {
        self.expected.insert(key.clone(), Expected { what, number: self.next, since: now });
        self.next += 1;
    }

    /// How long a key whose write has just been accepted may wait for the watch: `longest`, or zero if it need not
    /// wait.
    #[must_use]
    pub fn wait(&self, key: &K, known: Option<&Version>, longest: Duration) -> Duration {
        let expected = self.expected.get(key);
        if expected.is_some_and(|expected| !expected.what.is_shown(known)) { longest } else { Duration::ZERO }
    }

    /// The version that the last write returned, if the watch has yet to show it.
    #[must_use]
    pub fn left(&self, key: &K) -> Option<Version> {
        match &self.expected.get(key)?.what {
            What::Version(version, _) => Some(version.clone()),
            What::Response(_) | What::End(_) | What::Object => None,
        }
    }

    /// Whether a key can be planned. `known` is what the watch has shown last: this version, or no object. `longest` is
    /// how long the watch may take.
    pub fn check(&mut self, key: &K, known: Option<&Version>, longest: Duration, now: Instant) -> Readiness {
        let Some(expected) = self.expected.get_mut(key) else { return Readiness::Ready(None) };
        if !expected.what.is_shown(known) {
            let left = (expected.since + longest).saturating_duration_since(now);
            if !left.is_zero() {
                return Readiness::Wait(left);
            }
            // If the read fails, the next one follows after `longest` again.
            expected.since = now;
            return Readiness::Read;
        }
        match self.expected.remove(key) {
            Some(Expected { what: What::Version(version, patch), .. }) if Some(&version) == known => {
                Readiness::Ready(patch)
            }
            _ => Readiness::Ready(None),
        }
    }

    /// Records that the watch shows the end of the object with this uid.
    pub fn ended(&mut self, key: &K, uid: &str) {
        let Some(expected) = self.expected.get_mut(key) else { return };
        match &mut expected.what {
            What::Response(request) => {
                request.ended.insert(uid.to_owned());
                request.before = None;
            }
            What::Version(version, _) if version.uid != uid => {}
            What::Version(..) | What::End(_) | What::Object => drop(self.expected.remove(key)),
        }
    }

    /// A list begins. Returns its number.
    #[must_use]
    pub fn begin_list(&self) -> u64 {
        self.next
    }

    /// Records that the list that began with this number is complete. It includes the writes that were accepted before
    /// it began, and all up to its version. Returns the keys of its watch that no longer wait: if their objects ended
    /// before the list, no event follows.
    pub fn end_list(&mut self, began: u64, version: &str, is_watched: impl Fn(&K) -> bool) -> Vec<K> {
        let mut over = Vec::new();
        self.expected.retain(|key, expected| match &mut expected.what {
            _ if !is_watched(key) => true,
            What::Response(request) => {
                request.listed = Some(version.to_owned());
                request.before = None;
                true
            }
            What::Version(written, _) if !is_newer(&written.resource_version, version) => {
                over.push(key.clone());
                false
            }
            _ if expected.number >= began => true,
            _ => {
                over.push(key.clone());
                false
            }
        });
        over
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(2);

    fn version(uid: &str, version: &str) -> Version {
        Version { uid: uid.to_owned(), resource_version: version.to_owned() }
    }

    /// Expectations after a write with this effect.
    fn after(effect: Effect, now: Instant) -> Expectations<&'static str> {
        let mut expectations = Expectations::default();
        expectations.sending(&"a", now);
        expectations.sent(&"a", None, effect, Some(1), now);
        expectations
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_until_the_watch_has_shown_the_write_or_what_followed() {
        let now = Instant::now();
        let exists = || Effect::Exists(version("one", "5"));
        for (effect, known, is_shown) in [
            (exists(), None, false),
            (exists(), Some(version("one", "4")), false),
            (exists(), Some(version("one", "5")), true),
            (exists(), Some(version("one", "6")), true),
            (exists(), Some(version("before", "3")), false),
            (exists(), Some(version("after", "7")), true),
            (Effect::Gone("one".to_owned()), None, false),
            (Effect::Gone("one".to_owned()), Some(version("one", "4")), false),
            (Effect::Gone("one".to_owned()), Some(version("after", "7")), true),
            (Effect::Met, None, false),
            (Effect::Met, Some(version("one", "5")), true),
        ] {
            let found = after(effect.clone(), now).check(&"a", known.as_ref(), LONGEST, now);
            assert_eq!(matches!(found, Readiness::Ready(_)), is_shown, "{effect:?} {known:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_an_object_ends_what_was_expected_of_it_and_of_no_other() {
        let now = Instant::now();
        let mut expectations = after(Effect::Exists(version("one", "5")), now);
        expectations.ended(&"a", "before");
        assert_eq!(expectations.check(&"a", None, LONGEST, now), Readiness::Wait(LONGEST));
        expectations.ended(&"a", "one");
        assert_eq!(expectations.check(&"a", None, LONGEST, now), Readiness::Ready(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_is_known_as_long_as_the_cache_shows_what_it_has_left() {
        let now = Instant::now();
        for (shown, patch) in [("5", Some(1)), ("6", None)] {
            let mut expectations = after(Effect::Exists(version("one", "5")), now);
            let known = version("one", shown);
            assert_eq!(
                expectations.check(&"a", Some(&known), LONGEST, now),
                Readiness::Ready(patch),
                "{shown}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_late_has_the_object_read_and_again_if_that_fails() {
        let now = Instant::now();
        let mut expectations = after(Effect::Exists(version("one", "5")), now);
        let second = Duration::from_secs(1);
        assert_eq!(expectations.check(&"a", None, LONGEST, now + second), Readiness::Wait(second));
        assert_eq!(expectations.check(&"a", None, LONGEST, now + LONGEST), Readiness::Read);
        assert_eq!(expectations.check(&"a", None, LONGEST, now + LONGEST + second), Readiness::Wait(second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_fails_leaves_what_was_expected_before() {
        let now = Instant::now();
        let mut expectations = after(Effect::Exists(version("one", "5")), now);
        expectations.sending(&"a", now);
        expectations.forget(&"a");
        assert_eq!(expectations.check(&"a", None, LONGEST, now), Readiness::Wait(LONGEST));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_ends_what_was_expected_before_it_began_of_its_own_watch() {
        let now = Instant::now();
        let mut expectations = after(Effect::Exists(version("one", "5")), now);
        expectations.sent(&"other", None, Effect::Met, None, now);
        let began = expectations.begin_list();
        expectations.sent(&"later", None, Effect::Met, None, now);
        assert_eq!(expectations.end_list(began, "9", |key| *key != "other"), ["a"]);
        assert_eq!(expectations.end_list(began, "9", |_| true), ["other"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_was_completed_meanwhile_includes_the_write_if_its_version_does() {
        let now = Instant::now();
        for (listed, waits) in [("4", true), ("5", false), ("6", false)] {
            let mut expectations = Expectations::default();
            expectations.sending(&"a", now);
            let began = expectations.begin_list();
            assert!(expectations.end_list(began, listed, |_| true).is_empty());
            expectations.sent(&"a", None, Effect::Exists(version("one", "5")), None, now);
            assert_eq!(expectations.wait(&"a", None, LONGEST).is_zero(), !waits, "{listed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_create_that_meets_an_object_waits_for_one_unless_a_list_or_the_end_of_one_came_meanwhile() {
        let now = Instant::now();
        for (has_ended, is_listed) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut expectations = Expectations::default();
            expectations.sending(&"a", now);
            if has_ended {
                expectations.ended(&"a", "one");
            }
            if is_listed {
                let _ = expectations.end_list(expectations.begin_list(), "5", |_| true);
            }
            expectations.sent(&"a", None, Effect::Met, None, now);
            let waits = !expectations.wait(&"a", None, LONGEST).is_zero();
            assert_eq!(waits, !has_ended && !is_listed, "{has_ended} {is_listed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_read_returns_replaces_what_was_expected() {
        let now = Instant::now();
        for (read, known, is_shown) in [
            (None, None, true),
            (None, Some(version("one", "4")), true),
            (Some(version("two", "7")), Some(version("one", "6")), false),
            (Some(version("two", "7")), Some(version("two", "7")), true),
        ] {
            let mut expectations = after(Effect::Exists(version("one", "5")), now);
            expectations.read(&"a", read.clone(), now);
            let found = expectations.check(&"a", known.as_ref(), LONGEST, now);
            assert_eq!(found == Readiness::Ready(None), is_shown, "{read:?} {known:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_whose_object_is_not_found_waits_for_its_end_and_another_that_fails_for_nothing() {
        let now = Instant::now();
        let known = version("one", "4");
        for (gone, waits) in [(Some("one"), true), (None, false)] {
            let mut expectations = Expectations::default();
            expectations.sending(&"a", now);
            expectations.failed(&"a", Some(&known), gone, now);
            assert_eq!(!expectations.wait(&"a", Some(&known), LONGEST).is_zero(), waits, "{gone:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_leaves_what_is_expected_of_requests_in_flight_and_of_other_watches() {
        let now = Instant::now();
        let mut expectations = Expectations::default();
        for key in ["ended", "other"] {
            expectations.sent(&key, None, Effect::Met, None, now);
        }
        expectations.sending(&"ended, in flight", now);
        expectations.keep(|key| *key == "other");
        for (key, waits) in [("ended", false), ("other", true)] {
            assert_eq!(!expectations.wait(&key, None, LONGEST).is_zero(), waits, "{key}");
        }
        // The watch has begun again before the response.
        expectations.ended(&"ended, in flight", "one");
        expectations.sent(&"ended, in flight", None, Effect::Exists(version("one", "5")), None, now);
        assert!(expectations.wait(&"ended, in flight", None, LONGEST).is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_write_that_has_left_an_object_leaves_a_version() {
        let now = Instant::now();
        let left = version("one", "5");
        for (effect, expected) in [
            (Effect::Created(left.clone()), Some(&left)),
            (Effect::Exists(left.clone()), Some(&left)),
            (Effect::Gone("one".to_owned()), None),
            (Effect::Met, None),
        ] {
            let mut expectations = after(effect.clone(), now);
            assert_eq!(expectations.left(&"a").as_ref(), expected, "{effect:?}");
            expectations.sending(&"a", now);
            assert_eq!(expectations.left(&"a"), None, "{effect:?}");
        }
    }
}
