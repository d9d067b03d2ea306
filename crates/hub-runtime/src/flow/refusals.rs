//! Keys whose writes fail for the same reason: a few of them probe, and the first success releases the others. A failure
//! that may end by itself is reported once it lasts.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use hub_api::names::Namespace;

use tokio::time::Instant;

use crate::error::{Category, WriteError};

/// The number of keys of one cause that are retried with their own backoff.
const PROBES: usize = 3;
/// Shortest delay of the other keys: one of them may have a different cause.
const PARKED_MIN: Duration = Duration::from_mins(1);
/// What each parked key adds to that delay, so that one cause leads to at most two requests a second.
const PARKED_SHARE: Duration = Duration::from_millis(500);

/// How long a write must have failed before that is reported. A refusal is reported at once.
pub(crate) const LASTING: Duration = Duration::from_secs(3);

/// Why a write fails, as far as many keys can share the cause.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Cause {
    namespace: Option<Namespace>,
    verb: &'static str,
    resource: &'static str,
    category: Category,
}

impl Cause {
    pub(crate) fn new(namespace: Option<&Namespace>, error: &WriteError) -> Self {
        let WriteError { verb, resource, category, .. } = *error;
        // A webhook that does not respond leads to one or the other.
        let category = if category == Category::Timeout { Category::Internal } else { category };
        Self { namespace: namespace.cloned(), verb, resource, category }
    }
}

/// The currently failing keys.
pub(crate) struct Refusals<K> {
    causes: HashMap<K, Cause>,
    groups: HashMap<Cause, Group<K>>,
    /// Since when keys have failed without a success.
    since: HashMap<K, Instant>,
}

/// The keys with one cause.
struct Group<K> {
    probing: HashSet<K>,
    parked: HashSet<K>,
}

/// What follows for a failing key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProbeState {
    /// It is retried with its own backoff.
    Probing,
    /// It waits for a probe, or this long.
    Parked(Duration),
}

impl<K> Default for Refusals<K> {
    fn default() -> Self {
        Self { causes: HashMap::new(), groups: HashMap::new(), since: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Refusals<K> {
    /// A key was refused. Returns its place, and the keys that no longer have a probe.
    pub(crate) fn refused(&mut self, key: &K, cause: &Cause) -> (ProbeState, Vec<K>) {
        let released = match self.causes.get(key) {
            Some(before) if before != cause => self.leave(key, false),
            _ => Vec::new(),
        };
        self.causes.insert(key.clone(), cause.clone());
        let group = self
            .groups
            .entry(cause.clone())
            .or_insert_with(|| Group { probing: HashSet::new(), parked: HashSet::new() });
        if group.probing.contains(key) || group.probing.len() < PROBES {
            group.parked.remove(key);
            group.probing.insert(key.clone());
            return (ProbeState::Probing, released);
        }
        group.parked.insert(key.clone());
        let share = PARKED_SHARE.saturating_mul(u32::try_from(group.parked.len()).unwrap_or(u32::MAX));
        (ProbeState::Parked(PARKED_MIN.max(share)), released)
    }

    /// A write of a key failed that was sent at this time. Returns whether its writes have failed for some time.
    pub(crate) fn is_lasting(&mut self, key: &K, sent: Instant) -> bool {
        self.since.entry(key.clone()).or_insert(sent).elapsed() >= LASTING
    }

    /// A key succeeded. Returns the keys to retry now, because their cause may have gone.
    pub(crate) fn done(&mut self, key: &K) -> Vec<K> {
        self.since.remove(key);
        self.leave(key, true)
    }

    fn leave(&mut self, key: &K, is_done: bool) -> Vec<K> {
        let Some(cause) = self.causes.remove(key) else { return Vec::new() };
        let Some(group) = self.groups.get_mut(&cause) else { return Vec::new() };
        group.parked.remove(key);
        group.probing.remove(key);
        let released: Vec<_> =
            if is_done || group.probing.is_empty() { group.parked.drain().collect() } else { Vec::new() };
        if group.probing.is_empty() {
            self.groups.remove(&cause);
        }
        for key in &released {
            self.causes.remove(key);
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(category: Category) -> Cause {
        Cause::new(Some(&"app".into()), &WriteError::new("create", "things", "name", category, "text"))
    }

    #[test]
    fn three_keys_of_a_cause_probe_and_the_first_that_is_done_releases_the_others() {
        let mut refusals = Refusals::default();
        let places: Vec<_> = (0..200).map(|key| refusals.refused(&key, &cause(Category::Denied)).0).collect();
        assert_eq!(
            places[..4],
            [ProbeState::Probing, ProbeState::Probing, ProbeState::Probing, ProbeState::Parked(PARKED_MIN)]
        );
        assert_eq!(places[199], ProbeState::Parked(PARKED_SHARE * 197));
        assert_eq!(refusals.refused(&0, &cause(Category::Denied)).0, ProbeState::Probing, "it stays a probe");
        let mut released = refusals.done(&0);
        released.sort_unstable();
        assert_eq!(released, (3..200).collect::<Vec<_>>());
        assert_eq!(
            refusals.refused(&150, &cause(Category::Denied)).0,
            ProbeState::Probing,
            "in place of the first"
        );
    }

    #[test]
    fn keys_do_not_wait_for_a_probe_that_has_another_cause_now() {
        let mut refusals = Refusals::default();
        for key in 0..5 {
            refusals.refused(&key, &cause(Category::Denied));
        }
        for key in 0..2 {
            assert!(refusals.refused(&key, &cause(Category::QuotaExceeded)).1.is_empty());
        }
        let (_, released) = refusals.refused(&2, &cause(Category::Denied));
        assert!(released.is_empty(), "the others still wait for this one");
        let (_, mut released) = refusals.refused(&2, &cause(Category::QuotaExceeded));
        released.sort_unstable();
        assert_eq!(released, [3, 4]);
        assert_eq!(refusals.groups.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_lasting_some_seconds_after_the_first_request_until_a_success() {
        let mut refusals = Refusals::default();
        let sent = Instant::now();
        assert!(!refusals.is_lasting(&1, sent));
        tokio::time::advance(LASTING).await;
        assert!(refusals.is_lasting(&1, Instant::now()));
        assert!(refusals.is_lasting(&2, sent), "a request that hangs counts from its begin");
        refusals.done(&1);
        assert!(!refusals.is_lasting(&1, Instant::now()));
    }

    #[test]
    fn a_webhook_that_times_out_or_fails_is_one_cause() {
        assert_eq!(cause(Category::Timeout), cause(Category::Internal));
    }
}
