//! State of copies between reconciles that no watch shows.

use std::collections::HashMap;
use std::time::Duration;

use hub_api::names::{Namespace, SecretKey};
use hub_core::version::Version;
use hub_runtime::watch::{OwnWrites, is_newer};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How soon a Secret without the watched label, which blocks a copy, is read again. Soon at first, since a person may
/// read the Event and delete it; then after about as long as it has existed.
const UNWATCHED_PAUSE_MIN: Duration = Duration::from_secs(3);
const UNWATCHED_PAUSE_MAX: Duration = Duration::from_mins(1);
/// Timeout for the watch to show the deletion of a copy that we deleted.
const END_PAUSE: Duration = Duration::from_secs(30);

/// State of copies between reconciles.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// When the source of a copy changed that is not written yet.
    changed: HashMap<SecretKey, Instant>,
    /// Copies that cannot be deleted in namespaces that seem to have been deleted, with the time of the first attempt.
    abandoned: HashMap<SecretKey, Instant>,
    /// Secrets without our label that blocked a write.
    unwatched: HashMap<SecretKey, Met>,
    /// Copies that we deleted and whose deletion the watch has not shown yet, with the deleted version and the time.
    deleted: HashMap<SecretKey, (Version, Instant)>,
    /// Our requests without a response, and our writes that the watch has not shown yet, by the namespace of the watch.
    writes: HashMap<Option<Namespace>, OwnWrites<SecretKey>>,
}

impl Kept {
    fn writes(&mut self, watch: Option<&Namespace>) -> &mut OwnWrites<SecretKey> {
        self.writes.entry(watch.cloned()).or_default()
    }
}

/// When a Secret without our label blocked a write.
#[derive(Clone, Copy)]
struct Met {
    first: Instant,
    last: Instant,
}

impl Met {
    /// How long the Secret is assumed to exist, if at all.
    fn left(self) -> Option<Duration> {
        let pause = (self.last - self.first).clamp(UNWATCHED_PAUSE_MIN, UNWATCHED_PAUSE_MAX);
        pause.checked_sub(self.last.elapsed()).filter(|left| !left.is_zero())
    }
}

/// What is known about a Secret that is not watched.
pub(crate) enum Unwatched {
    /// None is known.
    None,
    /// It is assumed to exist for this long.
    There(Duration),
    /// It was seen too long ago.
    Stale,
}

impl Memory {
    /// Records that the source of these copies has just changed.
    pub(crate) fn source_changed(&self, keys: &[SecretKey]) {
        let (now, mut kept) = (Instant::now(), self.0.lock());
        for key in keys {
            kept.changed.entry(key.clone()).or_insert(now);
        }
    }

    /// Records that nothing is left to write; returns how long ago the source changed, if it did.
    pub(crate) fn source_settled(&self, key: &SecretKey) -> Option<Duration> {
        self.0.lock().changed.remove(key).map(|changed| changed.elapsed())
    }

    /// Records that a copy cannot be deleted in a namespace that seems to have been deleted. Returns for how long.
    pub(crate) fn abandoned(&self, key: &SecretKey) -> Duration {
        self.0.lock().abandoned.entry(key.clone()).or_insert_with(Instant::now).elapsed()
    }

    /// Records that no copy remains to be deleted.
    pub(crate) fn end_of_abandoned(&self, key: &SecretKey) {
        self.0.lock().abandoned.remove(key);
    }

    /// Records that a Secret without our label blocked a write. No watch will show its deletion.
    pub(crate) fn met_unwatched(&self, key: &SecretKey) {
        let now = Instant::now();
        self.0.lock().unwatched.entry(key.clone()).or_insert(Met { first: now, last: now }).last = now;
    }

    /// Whether an unwatched Secret is assumed to exist.
    pub(crate) fn unwatched(&self, key: &SecretKey) -> Unwatched {
        match self.0.lock().unwatched.get(key) {
            None => Unwatched::None,
            // Not the first time: it may still exist.
            Some(met) => met.left().map_or(Unwatched::Stale, Unwatched::There),
        }
    }

    /// Records that no unwatched Secret blocks the copy: it is gone, or watched, or no longer matters.
    pub(crate) fn end_of_unwatched(&self, key: &SecretKey) {
        self.0.lock().unwatched.remove(key);
    }

    /// Records that we deleted the copy in this version. This watch will show its end.
    pub(crate) fn deleted(&self, watch: Option<&Namespace>, key: &SecretKey, version: &Version) {
        let mut kept = self.0.lock();
        kept.deleted.insert(key.clone(), (version.clone(), Instant::now()));
        kept.writes(watch).wrote(key, &version.resource_version);
    }

    /// Records that a write left a copy in this version. This watch will show that.
    pub(crate) fn wrote(&self, watch: Option<&Namespace>, key: &SecretKey, version: &Version) {
        self.0.lock().writes(watch).wrote(key, &version.resource_version);
    }

    /// Records that a request for a Secret has been sent, which this watch shows if it has the label.
    pub(crate) fn sending(&self, watch: Option<&Namespace>, key: &SecretKey) {
        self.0.lock().writes(watch).sending(key);
    }

    /// Records the response. Returns whether it may show a Secret that has since been deleted or lost its label.
    pub(crate) fn received(&self, watch: Option<&Namespace>, key: &SecretKey) -> bool {
        self.0.lock().writes(watch).received(key).has_any_ended()
    }

    /// Records that the list of a watch begins.
    pub(crate) fn begin_list(&self, watch: Option<&Namespace>) {
        self.0.lock().writes(watch).begin_list();
    }

    /// Records that the list of a watch is complete, at this resourceVersion. Returns what we wrote and no longer exists.
    pub(crate) fn end_list(&self, watch: Option<&Namespace>, version: &str) -> Vec<SecretKey> {
        self.0.lock().writes(watch).end_list(version)
    }

    /// Records a Secret that a watch shows in this version. Returns whether it applies regardless of its version: a list
    /// may show another history than before, in which what we deleted exists.
    pub(crate) fn shown(&self, watch: Option<&Namespace>, key: &SecretKey, version: &Version) -> bool {
        let mut kept = self.0.lock();
        let counts = kept.writes(watch).shown(key);
        let is_successor = |(deleted, _): &(Version, Instant)| {
            deleted.uid != version.uid && is_newer(&version.resource_version, &deleted.resource_version)
        };
        if counts || kept.deleted.get(key).is_some_and(is_successor) {
            kept.deleted.remove(key);
        }
        counts
    }

    /// Records that a watch shows the deletion of a Secret. Returns whether it applies: a list does not contain what
    /// was written after it began.
    pub(crate) fn ended(&self, watch: Option<&Namespace>, key: &SecretKey) -> bool {
        self.0.lock().writes(watch).ended(key, None)
    }

    /// Whether we deleted the copy with this uid, and the watch has not shown it.
    pub(crate) fn is_deleted(&self, key: &SecretKey, uid: &str) -> bool {
        self.0.lock().deleted.get(key).is_some_and(|(deleted, _)| deleted.uid == uid)
    }

    /// How long to wait for the watch to show the deletion of a copy that we deleted: a new copy would be confused with
    /// it.
    pub(crate) fn wait_for_end(&self, key: &SecretKey) -> Option<Duration> {
        let mut kept = self.0.lock();
        let since = kept.deleted.get(key)?.1;
        let left = END_PAUSE.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
        if left.is_none() {
            kept.deleted.remove(key);
        }
        left
    }

    /// Forgets our writes in other namespaces, whose watches have ended and show nothing any more. Where a request has no
    /// response yet, they are forgotten at the next call.
    pub(crate) fn keep_watches(&self, is_watched: impl Fn(&Namespace) -> bool) {
        let kept = &mut *self.0.lock();
        kept.writes.retain(|watch, writes| writes.has_requests() || watch.as_ref().is_none_or(&is_watched));
        let is_shown = |key: &SecretKey| {
            [None, Some(key.namespace.clone())].iter().any(|it| kept.writes.contains_key(it))
        };
        kept.deleted.retain(|key, _| is_shown(key));
    }

    /// Records that the watch has shown the deletion of a Secret.
    pub(crate) fn gone(&self, key: &SecretKey) {
        let mut kept = self.0.lock();
        kept.deleted.remove(key);
        kept.unwatched.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn key() -> SecretKey {
        SecretKey { namespace: "team".into(), name: "c-app".into() }
    }

    fn version(uid: &str, version: &str) -> Version {
        Version { uid: uid.to_owned(), resource_version: version.to_owned() }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_is_as_late_as_the_first_change_of_its_source_that_is_not_written() {
        let memory = Memory::default();
        assert_eq!(memory.source_settled(&key()), None);
        for _ in 0..2 {
            memory.source_changed(&[key()]);
            advance(seconds(1)).await;
        }
        assert_eq!(memory.source_settled(&key()), Some(seconds(2)));
        assert_eq!(memory.source_settled(&key()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_is_not_watched_is_read_again_after_about_as_long_as_it_has_existed() {
        let memory = Memory::default();
        let left = || match memory.unwatched(&key()) {
            Unwatched::None => None,
            Unwatched::There(left) => Some(left),
            Unwatched::Stale => Some(Duration::ZERO),
        };
        assert_eq!(left(), None);
        for (passes, pause) in [(0, 3), (3, 3), (17, 20), (100, 60)] {
            advance(seconds(passes)).await;
            memory.met_unwatched(&key());
            assert_eq!(left(), Some(seconds(pause)), "after {passes} s");
        }
        advance(seconds(59)).await;
        assert_eq!(left(), Some(seconds(1)));
        advance(seconds(1)).await;
        assert_eq!(left(), Some(Duration::ZERO));
        memory.end_of_unwatched(&key());
        assert_eq!(left(), None);
        memory.met_unwatched(&key());
        memory.gone(&key());
        assert_eq!(left(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_copy_waits_until_the_watch_has_shown_the_deletion_of_the_old_one() {
        let memory = Memory::default();
        let is_deleted = || memory.is_deleted(&key(), "one");
        memory.deleted(None, &key(), &version("one", "1"));
        assert!(is_deleted() && !memory.is_deleted(&key(), "two"));
        advance(seconds(10)).await;
        assert_eq!(memory.wait_for_end(&key()), Some(seconds(20)));
        memory.gone(&key());
        assert!(!is_deleted());
        assert_eq!(memory.wait_for_end(&key()), None);

        memory.deleted(None, &key(), &version("one", "1"));
        advance(END_PAUSE).await;
        assert!(is_deleted());
        assert_eq!(memory.wait_for_end(&key()), None, "not for ever");
        assert!(!is_deleted());
    }

    #[tokio::test(start_paused = true)]
    async fn what_we_deleted_exists_if_a_list_shows_it_and_not_if_a_late_event_does() {
        let memory = Memory::default();
        memory.deleted(None, &key(), &version("one", "1"));
        assert!(!memory.shown(None, &key(), &version("one", "1")));
        assert!(memory.is_deleted(&key(), "one"));
        memory.begin_list(None);
        assert!(memory.shown(None, &key(), &version("one", "1")));
        assert!(!memory.is_deleted(&key(), "one"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_we_deleted_has_ended_when_its_successor_is_shown_also_by_a_list_that_began_before() {
        let memory = Memory::default();
        memory.begin_list(None);
        memory.deleted(None, &key(), &version("two", "5"));
        for (shown, exists) in
            [(version("one", "3"), true), (version("two", "5"), true), (version("three", "7"), false)]
        {
            assert!(!memory.shown(None, &key(), &shown), "{shown:?}");
            assert_eq!(memory.wait_for_end(&key()).is_some(), exists, "{shown:?}");
        }
    }

    #[test]
    fn what_we_wrote_before_a_list_of_its_watch_and_is_not_in_it_is_gone() {
        let (memory, other) = (Memory::default(), Namespace::from("other"));
        memory.wrote(None, &key(), &version("one", "1"));
        memory.begin_list(Some(&other));
        assert!(memory.end_list(Some(&other), "5").is_empty());
        memory.begin_list(None);
        assert_eq!(memory.end_list(None, "5"), [key()]);
    }

    #[test]
    fn a_response_counts_unless_the_watch_of_its_namespace_may_have_shown_the_end_of_its_secret() {
        let memory = Memory::default();
        let (own, other) = (Namespace::from("team"), Namespace::from("other"));
        for (watch, has_ended) in [(&own, true), (&other, false)] {
            memory.sending(Some(&own), &key());
            memory.ended(Some(watch), &key());
            assert_eq!(memory.received(Some(&own), &key()), has_ended, "{watch}");
            memory.sending(Some(&own), &key());
            memory.end_list(Some(watch), "5");
            assert_eq!(memory.received(Some(&own), &key()), has_ended, "a list of {watch}");
        }
        // A list does not end what was written after it began.
        memory.begin_list(None);
        memory.wrote(None, &key(), &version("one", "1"));
        assert!(!memory.ended(None, &key()));
    }

    #[test]
    fn nothing_is_kept_of_a_namespace_whose_watch_has_ended_and_whose_requests_have_too() {
        let memory = Memory::default();
        let size = || {
            let kept = memory.0.lock();
            (kept.writes.len(), kept.deleted.len())
        };
        for n in 0..100 {
            let namespace = Namespace::from(&*format!("team-{n}"));
            let key = SecretKey { namespace: namespace.clone(), name: "c-app".into() };
            memory.begin_list(Some(&namespace));
            memory.end_list(Some(&namespace), "1");
            memory.wrote(Some(&namespace), &key, &version("one", "2"));
            memory.sending(Some(&namespace), &key);
            memory.deleted(Some(&namespace), &key, &version("one", "2"));
            memory.keep_watches(|_| true);
            assert_eq!(size(), (1, 1), "it is watched");
            memory.keep_watches(|_| false);
            assert_eq!(size(), (1, 1), "the response may show an object that has ended");
            assert!(!memory.received(Some(&namespace), &key));
            memory.keep_watches(|_| false);
            assert_eq!(size(), (0, 0));
            assert_eq!(memory.wait_for_end(&key), None);
        }
        memory.deleted(None, &key(), &version("one", "1"));
        memory.keep_watches(|_| false);
        assert_eq!(size(), (1, 1), "a watch of all namespaces does not end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_that_cannot_be_deleted_is_abandoned_from_the_first_attempt_on() {
        let memory = Memory::default();
        assert_eq!(memory.abandoned(&key()), Duration::ZERO);
        advance(seconds(5)).await;
        assert_eq!(memory.abandoned(&key()), seconds(5));
        memory.end_of_abandoned(&key());
        assert_eq!(memory.abandoned(&key()), Duration::ZERO);
    }
}
