//! What our own last writes have left on the hub, as long as a cache does not show it.
//!
//! The watch is the only writer of a cache. Until it has reached the version that an accepted write has returned, the
//! cache is older than what this process knows, so the key is held: it is planned again when the watch shows the write,
//! a later version, or the end of the object. A plan from an older cache would do no harm, since every write names the
//! uid and the resourceVersion that it is for; it would only be refused. What a read has shown holds the key as well,
//! and its version is for plans from that object alone: between the cache and it, another writer may have changed
//! whether the object is ours.

use std::collections::BTreeMap;
use std::time::Duration;

use hub_core::version::{Uid, Version};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::watch::is_newer;

/// How long a key is held. A watch that is later has broken, or will never show the write: the object may have been
/// deleted before the response arrived, or the history of the hub replaced.
pub const LONGEST_LAG: Duration = Duration::from_secs(5);

/// The longest pause before an object that no watch shows is read again. It has not our label: it belongs to another
/// owner, or a tenant has removed the label. There are few, and to watch them would require the permission to read, of
/// all Secrets of a namespace, more than ours.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What a write has left on the hub, or a read has shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Left {
    /// The object in this version, which our write has returned.
    Exists(Version),
    /// The object in this version, which a read has returned.
    Read(Version),
    /// The object with this uid is gone.
    Gone(Uid),
}

impl Left {
    fn uid(&self) -> &Uid {
        match self {
            Self::Exists(version) | Self::Read(version) => &version.uid,
            Self::Gone(uid) => uid,
        }
    }

    fn version(&self) -> Option<&Version> {
        match self {
            Self::Exists(version) | Self::Read(version) => Some(version),
            Self::Gone(_) => None,
        }
    }

    /// Whether a cache that contains this version, or no object, is as new as the write.
    fn is_reached(&self, known: Option<&Version>) -> bool {
        match (self, known) {
            // A later object of the same name has a later version, an earlier one an earlier version.
            (Self::Exists(left) | Self::Read(left), Some(known)) => {
                !is_newer(&left.resource_version, &known.resource_version)
            }
            (Self::Exists(_) | Self::Read(_), None) => false,
            (Self::Gone(uid), known) => known.is_none_or(|known| known.uid != *uid),
        }
    }
}

/// By key, what the last write has left, as long as the cache has not reached it.
#[derive(Debug)]
pub struct Written<K>(Mutex<BTreeMap<K, Unseen>>);

#[derive(Debug)]
struct Unseen {
    left: Left,
    since: Instant,
    /// When a response first showed this object.
    met: Instant,
    /// Whether a write that is planned from this version may be in flight.
    is_planned: bool,
}

impl<K> Default for Written<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Ord> Written<K> {
    /// Records what a response shows.
    pub fn set(&self, key: &K, left: Left) {
        let (mut written, since) = (self.0.lock(), Instant::now());
        let before = written.get(key).filter(|before| before.left.uid() == left.uid());
        let met = before.map_or(since, |before| before.met);
        written.insert(key.clone(), Unseen { left, since, met, is_planned: false });
    }

    /// What the last write has left if the cache, which contains this version or no object, has not reached it, and how
    /// long to wait for it: zero if the watch is late.
    pub fn unseen(&self, key: &K, known: Option<&Version>) -> Option<(Left, Duration)> {
        let mut written = self.0.lock();
        let unseen = written.get_mut(key)?;
        if unseen.left.is_reached(known) {
            written.remove(key);
            return None;
        }
        // A write that was planned from it has ended.
        unseen.is_planned = false;
        Some((unseen.left.clone(), LONGEST_LAG.saturating_sub(unseen.since.elapsed())))
    }

    /// Whether no watch shows the object of a key: it is known for longer than a watch may be late.
    pub fn is_hidden(&self, key: &K) -> bool {
        self.0.lock().get(key).is_some_and(|unseen| unseen.met.elapsed() >= LONGEST_LAG)
    }

    /// How long to wait before an object that no watch shows is read again: about as long as it is known, since a person
    /// who has just read of it may delete it.
    pub fn pause(&self, key: &K) -> Duration {
        let known = self.0.lock().get(key).map_or(Duration::ZERO, |unseen| unseen.met.elapsed());
        known.clamp(LONGEST_LAG, LONGEST_PAUSE)
    }

    /// A write has been planned from what the last response has shown.
    pub fn planned(&self, key: &K) {
        if let Some(unseen) = self.0.lock().get_mut(key) {
            unseen.is_planned = true;
        }
    }

    /// The watch shows this version. Returns whether that is news. It is not soon after a response has shown a later version,
    /// nor if a write is planned from this one: the key is planned again when the watch shows that write, or when it fails.
    pub fn shown(&self, key: &K, version: &Version) -> bool {
        let mut written = self.0.lock();
        let Some(unseen) = written.get(key) else { return true };
        if !unseen.left.is_reached(Some(version)) {
            // The watch is late, or the history another one.
            return unseen.since.elapsed() >= LONGEST_LAG;
        }
        let is_planned = unseen.is_planned && unseen.left.version() == Some(version);
        written.remove(key);
        !is_planned
    }

    /// The watch shows the end of the object with this uid.
    pub fn ended(&self, key: &K, uid: &Uid) {
        let mut written = self.0.lock();
        if written.get(key).is_some_and(|unseen| unseen.left.uid() == uid) {
            written.remove(key);
        }
    }

    /// Forgets what the last write has left: it is late, or no watch shows it.
    pub fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }

    /// Forgets what watches that have ended no longer show.
    pub fn retain(&self, is_watched: impl Fn(&K) -> bool) {
        self.0.lock().retain(|key, _| is_watched(key));
    }
}

#[cfg(test)]
mod tests {
    mod model;

    use super::*;

    fn version(uid: &str, version: &str) -> Version {
        Version { uid: uid.into(), resource_version: version.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_held_until_its_cache_has_reached_the_write_or_what_followed() {
        let exists = || Left::Exists(version("one", "5"));
        let gone = || Left::Gone("one".into());
        for (left, known, is_reached) in [
            (exists(), None, false),
            (exists(), Some(version("one", "4")), false),
            (exists(), Some(version("one", "5")), true),
            (exists(), Some(version("one", "6")), true),
            (exists(), Some(version("before", "3")), false),
            (exists(), Some(version("after", "7")), true),
            (gone(), None, true),
            (gone(), Some(version("one", "4")), false),
            (gone(), Some(version("after", "7")), true),
        ] {
            let written = Written::default();
            written.set(&"a", left.clone());
            let unseen = written.unseen(&"a", known.as_ref());
            let expected = (!is_reached).then_some((left.clone(), LONGEST_LAG));
            assert_eq!(unseen, expected, "{left:?} {known:?}");
            let kept = written.0.lock().len();
            assert_eq!(kept, usize::from(!is_reached), "nothing is kept of what is reached");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_older_than_a_response_or_from_which_a_write_is_planned_is_no_news() {
        let (written, left) = (Written::default(), || Left::Exists(version("one", "5")));
        for (shown, is_planned, is_news) in
            [("4", false, false), ("5", false, true), ("5", true, false), ("6", true, true)]
        {
            written.set(&"a", left());
            if is_planned {
                written.planned(&"a");
            }
            assert_eq!(written.shown(&"a", &version("one", shown)), is_news, "{shown}");
        }
        written.set(&"a", left());
        written.planned(&"a");
        assert!(written.unseen(&"a", None).is_some());
        assert!(written.shown(&"a", &version("one", "5")), "that write has failed");
        written.set(&"a", left());
        tokio::time::advance(LONGEST_LAG).await;
        assert!(written.shown(&"a", &version("one", "4")), "the history may be another");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_no_watch_shows_is_read_again_after_about_as_long_as_it_is_known() {
        let written = Written::default();
        let read = |uid: &str| Left::Read(version(uid, "5"));
        for (left, passes, pause) in [
            (read("one"), 0, 5),
            (read("one"), 5, 5),
            (read("one"), 7, 12),
            (read("one"), 60, 30),
            (read("another"), 0, 5),
            (read("another"), 9, 9),
            (Left::Exists(version("another", "6")), 1, 10),
        ] {
            tokio::time::advance(Duration::from_secs(passes)).await;
            written.set(&"a", left.clone());
            assert_eq!(written.pause(&"a"), Duration::from_secs(pause), "{left:?}");
            assert_eq!(written.is_hidden(&"a"), passes > 0, "{left:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_an_object_ends_what_is_known_of_it_and_of_no_other() {
        for left in [Left::Exists(version("one", "5")), Left::Gone("one".into())] {
            let (written, older) = (Written::default(), version("one", "4"));
            written.set(&"a", left);
            written.ended(&"a", &"before".into());
            assert!(written.unseen(&"a", Some(&older)).is_some());
            written.ended(&"a", &"one".into());
            assert!(written.unseen(&"a", Some(&older)).is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_late_after_a_time_and_what_no_watch_shows_is_forgotten() {
        let (written, left) = (Written::default(), Left::Exists(version("one", "5")));
        let unseen = |key| written.unseen(&key, None).map(|(_, wait)| wait);
        for key in ["late", "forgotten", "unwatched"] {
            written.set(&key, left.clone());
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(unseen("late"), Some(Duration::from_secs(3)));
        tokio::time::advance(LONGEST_LAG).await;
        written.forget(&"forgotten");
        written.retain(|key| *key != "unwatched");
        assert_eq!(
            ["late", "forgotten", "unwatched"].map(unseen),
            [Some(Duration::ZERO), None, None]
        );
    }
}
