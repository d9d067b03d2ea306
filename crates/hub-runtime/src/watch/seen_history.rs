//! How far the watches of a process have seen the history of the hub.
//!
//! The kinds that are watched share one sequence of resourceVersions, that of etcd. A watch of a kind that rarely
//! changes stays at an old version, which the history of a restored etcd may have passed before that watch checks it.
//! The latest version that *any* watch has seen is passed later, and the first watch that notices the rewind records it
//! for all. The same holds for an outage: a watch that notices its own end only when the API server responds again
//! learns from the others that it was away.

use std::sync::Arc;

use parking_lot::Mutex;

/// The history as far as it has been seen. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenHistory(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    latest: u64,
    /// How often the history has been rewound.
    rewinds: u64,
    /// How often the API server was unavailable to a watch.
    outages: u64,
}

/// Which history a watch follows: the number of times that it had been rewound, and of the outages up to the last sign
/// of life of the watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Era {
    rewinds: u64,
    outages: u64,
}

impl SeenHistory {
    /// The current history.
    pub(super) fn era(&self) -> Era {
        let Seen { rewinds, outages, .. } = *self.0.lock();
        Era { rewinds, outages }
    }

    /// Records a version that a watch of this era has seen. A version that is not a number, so not one of etcd's, is
    /// ignored.
    pub(super) fn record(&self, era: &mut Era, version: &str) {
        let mut seen = self.0.lock();
        era.outages = seen.outages;
        if let Ok(version) = version.parse()
            && era.rewinds == seen.rewinds
        {
            seen.latest = seen.latest.max(version);
        }
    }

    /// Records that the API server was unavailable to a watch.
    pub(super) fn interrupt(&self) {
        self.0.lock().outages += 1;
    }

    /// Whether the API server was unavailable to any watch since the last sign of life of this one.
    pub(super) fn is_interrupted(&self, era: Era) -> bool {
        era.outages != self.0.lock().outages
    }

    /// The latest version that any watch has seen. Call this before the request whose version is compared with it.
    pub(super) fn latest(&self) -> u64 {
        self.0.lock().latest
    }

    /// Whether the hub has another history than in `era`, if its version is `now`, and was `latest` before that
    /// request.
    pub(super) fn is_rewound(&self, era: Era, latest: u64, now: &str) -> bool {
        let mut seen = self.0.lock();
        if let Ok(now) = now.parse::<u64>()
            && now < latest
            && era.rewinds == seen.rewinds
        {
            *seen = Seen { latest: now, rewinds: seen.rewinds + 1, outages: seen.outages };
        }
        era.rewinds != seen.rewinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_watch_has_seen_shows_every_other_that_the_history_was_rewound() {
        let history = SeenHistory::default();
        let mut era = history.era();
        history.record(&mut era, "277");
        history.record(&mut era, "379");
        history.record(&mut era, "not a number");
        // The new history has passed the version of the first watch.
        assert!(!history.is_rewound(era, history.latest(), "379"));
        assert!(history.is_rewound(era, history.latest(), "290"));
        // Each of the others learns it, however far the new history is.
        assert!(history.is_rewound(era, history.latest(), "400"));
        let mut next = history.era();
        // What a watch still delivers of the old history says nothing about the new one.
        history.record(&mut era, "380");
        assert!(!history.is_rewound(next, history.latest(), "291"));
        // A version that another watch has seen after the request was made is none to compare with.
        let latest = history.latest();
        history.record(&mut next, "310");
        assert!(!history.is_rewound(next, latest, "300"));
    }

    #[test]
    fn an_outage_that_one_watch_has_met_is_known_to_all_that_have_shown_no_life_since() {
        let history = SeenHistory::default();
        let (mut lively, quiet) = (history.era(), history.era());
        history.interrupt();
        assert!(history.is_interrupted(lively) && history.is_interrupted(quiet));
        history.record(&mut lively, "277");
        assert!(!history.is_interrupted(lively) && history.is_interrupted(quiet));
        assert!(!history.is_interrupted(history.era()));
    }
}
