//! State of copies between reconciles that no watch shows.

use std::collections::HashMap;
use std::time::Duration;

use hub_api::names::{Namespace, SecretKey};
use hub_runtime::watch::OwnWrites;
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
    /// Places with a write in flight, and whether the watch has shown a deletion there since the write was sent.
    sending: HashMap<SecretKey, bool>,
    /// Copies that cannot be deleted in namespaces that seem to have been deleted, with the time of the first attempt.
    abandoned: HashMap<SecretKey, Instant>,
    /// Secrets without our label that blocked a write.
    unwatched: HashMap<SecretKey, Met>,
    /// Copies that we deleted and whose deletion the watch has not shown yet, with uid and time.
    deleted: HashMap<SecretKey, (String, Instant)>,
    /// Our writes that the watch has not shown yet, by the namespace of the watch.
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
    pub(crate) fn source_changed(&self, places: &[SecretKey]) {
        let (now, mut kept) = (Instant::now(), self.0.lock());
        for place in places {
            kept.changed.entry(place.clone()).or_insert(now);
        }
    }

    /// Records that nothing is left to write; returns how long ago the source changed, if it did.
    pub(crate) fn source_settled(&self, place: &SecretKey) -> Option<Duration> {
        self.0.lock().changed.remove(place).map(|changed| changed.elapsed())
    }

    /// Records that a copy cannot be deleted in a namespace that seems to have been deleted. Returns for how long.
    pub(crate) fn abandoned(&self, place: &SecretKey) -> Duration {
        self.0.lock().abandoned.entry(place.clone()).or_insert_with(Instant::now).elapsed()
    }

    /// Records that no copy remains to be deleted.
    pub(crate) fn end_of_abandoned(&self, place: &SecretKey) {
        self.0.lock().abandoned.remove(place);
    }

    /// Records that a Secret without our label blocked a write. No watch will show its deletion.
    pub(crate) fn met_unwatched(&self, place: &SecretKey) {
        let now = Instant::now();
        self.0.lock().unwatched.entry(place.clone()).or_insert(Met { first: now, last: now }).last = now;
    }

    /// Whether an unwatched Secret is assumed to exist.
    pub(crate) fn unwatched(&self, place: &SecretKey) -> Unwatched {
        match self.0.lock().unwatched.get(place) {
            None => Unwatched::None,
            // Not the first time: it may still exist.
            Some(met) => met.left().map_or(Unwatched::Stale, Unwatched::There),
        }
    }

    /// Records that no unwatched Secret blocks the copy: it is gone, or watched, or no longer matters.
    pub(crate) fn end_of_unwatched(&self, place: &SecretKey) {
        self.0.lock().unwatched.remove(place);
    }

    /// Records that we deleted the copy with this uid, which this watch will show.
    pub(crate) fn deleted(&self, watch: Option<&Namespace>, place: &SecretKey, uid: String) {
        let mut kept = self.0.lock();
        kept.deleted.insert(place.clone(), (uid, Instant::now()));
        kept.writes(watch).wrote(place);
    }

    /// Records that we wrote a copy, which this watch will show.
    pub(crate) fn wrote(&self, watch: Option<&Namespace>, place: &SecretKey) {
        self.0.lock().writes(watch).wrote(place);
    }

    /// Records that a write to a place has been sent.
    pub(crate) fn sending(&self, place: &SecretKey) {
        self.0.lock().sending.insert(place.clone(), false);
    }

    /// Records the response to a write. Returns whether the watch has shown a deletion in the meantime: the response
    /// may then show a Secret that has since been deleted or lost its label.
    pub(crate) fn sent(&self, place: &SecretKey) -> bool {
        self.0.lock().sending.remove(place).unwrap_or_default()
    }

    /// Records that the list of a watch begins.
    pub(crate) fn begin_list(&self, watch: Option<&Namespace>) {
        self.0.lock().writes(watch).begin_list();
    }

    /// Records that the list of a watch is complete. Returns what we wrote before it began and no longer exists.
    pub(crate) fn end_list(&self, watch: Option<&Namespace>) -> Vec<SecretKey> {
        self.0.lock().writes(watch).end_list()
    }

    /// Records a Secret that a watch shows. Returns whether it applies regardless of its version, and whether we
    /// deleted it: a list may show another history than before.
    pub(crate) fn shown(&self, watch: Option<&Namespace>, place: &SecretKey) -> bool {
        let mut kept = self.0.lock();
        let counts = kept.writes(watch).shown(place);
        if counts {
            kept.deleted.remove(place);
        }
        counts
    }

    /// Records that a watch shows the deletion of a Secret. Returns whether it applies: a list does not contain what
    /// was written after it began.
    pub(crate) fn ended(&self, watch: Option<&Namespace>, place: &SecretKey) -> bool {
        let mut kept = self.0.lock();
        if let Some(ended) = kept.sending.get_mut(place) {
            *ended = true;
        }
        kept.writes(watch).ended(place)
    }

    /// Whether we deleted the copy with this uid, and the watch has not shown it.
    pub(crate) fn is_deleted(&self, place: &SecretKey, uid: &str) -> bool {
        self.0.lock().deleted.get(place).is_some_and(|(deleted, _)| deleted == uid)
    }

    /// How long to wait for the watch to show the deletion of a copy that we deleted: a new copy would be confused with
    /// it.
    pub(crate) fn wait_for_end(&self, place: &SecretKey) -> Option<Duration> {
        let mut kept = self.0.lock();
        let since = kept.deleted.get(place)?.1;
        let left = END_PAUSE.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
        if left.is_none() {
            kept.deleted.remove(place);
        }
        left
    }

    /// Records that the watch has shown the deletion of a Secret.
    pub(crate) fn gone(&self, place: &SecretKey) {
        let mut kept = self.0.lock();
        kept.deleted.remove(place);
        kept.unwatched.remove(place);
    }
}
