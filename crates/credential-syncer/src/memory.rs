//! What the work on copies keeps between two reconciles of one of them, and no watch shows.

use std::collections::HashMap;
use std::time::Duration;

use hub_api::names::{Namespace, SecretKey};
use hub_runtime::watch::OwnWrites;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How often a Secret is read again that stands where a copy belongs and has no label by which it is watched. Soon at
/// first, for whoever reads the Event and deletes it; then after about the time that it has been there.
const UNWATCHED_PAUSE_MIN: Duration = Duration::from_secs(3);
const UNWATCHED_PAUSE_MAX: Duration = Duration::from_mins(1);
/// Longest wait for the watch to show the end of a copy that we have deleted.
const END_PAUSE: Duration = Duration::from_secs(30);

/// What is kept of copies.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// When the source of a copy changed that is not written yet.
    changed: HashMap<SecretKey, Instant>,
    /// Secrets without our label, met by a write.
    unwatched: HashMap<SecretKey, Met>,
    /// Copies that we have deleted and whose end the watch has not shown yet, by uid, and when.
    deleted: HashMap<SecretKey, (String, Instant)>,
    /// What we have written and the watch has not shown yet, by the namespace that the watch is limited to.
    writes: HashMap<Option<Namespace>, OwnWrites<SecretKey>>,
}

impl Kept {
    fn writes(&mut self, watch: Option<&Namespace>) -> &mut OwnWrites<SecretKey> {
        self.writes.entry(watch.cloned()).or_default()
    }
}

/// When a Secret without our label was met.
#[derive(Clone, Copy)]
struct Met {
    first: Instant,
    last: Instant,
}

impl Met {
    /// How long it is still taken to be there, if it is.
    fn left(self) -> Option<Duration> {
        let pause = (self.last - self.first).clamp(UNWATCHED_PAUSE_MIN, UNWATCHED_PAUSE_MAX);
        pause.checked_sub(self.last.elapsed()).filter(|left| !left.is_zero())
    }
}

/// What is known of a Secret that is not watched.
pub(crate) enum Unwatched {
    /// None was met.
    None,
    /// It is still taken to be there, for so long.
    There(Duration),
    /// It was met too long ago to go by.
    Stale,
}

impl Memory {
    /// The source of these copies has changed just now.
    pub(crate) fn source_changed(&self, places: &[SecretKey]) {
        let (now, mut kept) = (Instant::now(), self.0.lock());
        for place in places {
            kept.changed.entry(place.clone()).or_insert(now);
        }
    }

    /// There is nothing left to write; returns how long ago the source changed, if it did.
    pub(crate) fn source_settled(&self, place: &SecretKey) -> Option<Duration> {
        self.0.lock().changed.remove(place).map(|changed| changed.elapsed())
    }

    /// A write has met a Secret without our label. No watch will show its end.
    pub(crate) fn met_unwatched(&self, place: &SecretKey) {
        let now = Instant::now();
        self.0.lock().unwatched.entry(place.clone()).or_insert(Met { first: now, last: now }).last = now;
    }

    /// How it stands with a Secret that is not watched.
    pub(crate) fn unwatched(&self, place: &SecretKey) -> Unwatched {
        match self.0.lock().unwatched.get(place) {
            None => Unwatched::None,
            // Not when it was met first: it may still be there.
            Some(met) => met.left().map_or(Unwatched::Stale, Unwatched::There),
        }
    }

    /// No Secret stands in the way that is not watched: it is gone, or is watched, or is in nobody's way.
    pub(crate) fn end_of_unwatched(&self, place: &SecretKey) {
        self.0.lock().unwatched.remove(place);
    }

    /// We have deleted the copy of this uid, which this watch is to show.
    pub(crate) fn deleted(&self, watch: Option<&Namespace>, place: &SecretKey, uid: String) {
        let mut kept = self.0.lock();
        kept.deleted.insert(place.clone(), (uid, Instant::now()));
        kept.writes(watch).wrote(place);
    }

    /// We have written a copy, which this watch is to show.
    pub(crate) fn wrote(&self, watch: Option<&Namespace>, place: &SecretKey) {
        self.0.lock().writes(watch).wrote(place);
    }

    /// The list of a watch begins.
    pub(crate) fn begin_list(&self, watch: Option<&Namespace>) {
        self.0.lock().writes(watch).begin_list();
    }

    /// The list of a watch is complete. Returns what we wrote before it began and that is gone.
    pub(crate) fn end_list(&self, watch: Option<&Namespace>) -> Vec<SecretKey> {
        self.0.lock().writes(watch).end_list()
    }

    /// A watch shows a Secret. Returns whether that counts whatever its version is, and whether we deleted it: a list may
    /// show another history than before.
    pub(crate) fn shown(&self, watch: Option<&Namespace>, place: &SecretKey) -> bool {
        let mut kept = self.0.lock();
        let counts = kept.writes(watch).shown(place);
        if counts {
            kept.deleted.remove(place);
        }
        counts
    }

    /// A watch shows the end of a Secret. Returns whether that counts: what was written after its list began is not in
    /// the list.
    pub(crate) fn ended(&self, watch: Option<&Namespace>, place: &SecretKey) -> bool {
        self.0.lock().writes(watch).ended(place)
    }

    /// Whether we have deleted the copy of this uid, and the watch has not shown its end.
    pub(crate) fn is_deleted(&self, place: &SecretKey, uid: &str) -> bool {
        self.0.lock().deleted.get(place).is_some_and(|(deleted, _)| deleted == uid)
    }

    /// How long to wait for the watch to show the end of a copy that we have deleted: what is made before would be
    /// taken for the one that ends.
    pub(crate) fn wait_for_end(&self, place: &SecretKey) -> Option<Duration> {
        let mut kept = self.0.lock();
        let since = kept.deleted.get(place)?.1;
        let left = END_PAUSE.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
        if left.is_none() {
            kept.deleted.remove(place);
        }
        left
    }

    /// The watch has shown the end of a Secret.
    pub(crate) fn gone(&self, place: &SecretKey) {
        let mut kept = self.0.lock();
        kept.deleted.remove(place);
        kept.unwatched.remove(place);
    }
}
