//! Refused writes: when each is retried, and how many at a time.
//!
//! A quota, a webhook or a policy refuses writes for a whole namespace. The syncer is not notified when it changes, so
//! it retries; of many writes only a few, and the first success releases the others.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use hub_api::names::{Namespace, SecretKey};
use hub_core::credential::index::Refused;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a refused write waits for its retry.
const PAUSE: Duration = Duration::from_secs(5);
/// How many writes of a kind are retried in that time in a namespace with more refused ones.
const TRIES: u32 = 4;

/// The refused writes.
#[derive(Debug, Default)]
pub(crate) struct CopyRefusals(Mutex<HashMap<(Namespace, Refused), Waiting>>);

#[derive(Debug)]
struct Waiting {
    places: BTreeSet<SecretKey>,
    next: Instant,
}

impl CopyRefusals {
    /// How long a write must wait because others of its kind are refused in its namespace; it then counts as one of
    /// them.
    pub(crate) fn wait(&self, place: &SecretKey, what: Refused, now: Instant) -> Option<Duration> {
        let mut all = self.0.lock();
        let waiting = all.get_mut(&(place.namespace.clone(), what))?;
        let few = waiting.places.len() < TRIES as usize;
        if few || waiting.next <= now {
            waiting.next = now + PAUSE / TRIES;
            return None;
        }
        waiting.places.insert(place.clone());
        Some(PAUSE)
    }

    /// Records a refused write. Returns how long it waits.
    pub(crate) fn refused(&self, place: &SecretKey, what: Refused, now: Instant) -> Duration {
        let mut all = self.0.lock();
        let waiting = all.entry((place.namespace.clone(), what));
        let waiting = waiting.or_insert_with(|| Waiting { places: BTreeSet::new(), next: now });
        waiting.places.insert(place.clone());
        PAUSE
    }

    /// Records an accepted write. Returns the places to retry now.
    pub(crate) fn accepted(&self, namespace: &Namespace, what: Refused) -> BTreeSet<SecretKey> {
        let waiting = self.0.lock().remove(&(namespace.clone(), what));
        waiting.map(|waiting| waiting.places).unwrap_or_default()
    }

    /// Records that nothing is left to write.
    pub(crate) fn settled(&self, place: &SecretKey) {
        let mut all = self.0.lock();
        if all.is_empty() {
            return;
        }
        for kind in [Refused::Write, Refused::Delete] {
            let key = (place.namespace.clone(), kind);
            if let Some(waiting) = all.get_mut(&key) {
                waiting.places.remove(place);
                if waiting.places.is_empty() {
                    all.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(namespace: &str, number: usize) -> SecretKey {
        SecretKey { namespace: namespace.into(), name: format!("c{number}-app").into() }
    }

    #[test]
    fn of_many_refused_writes_few_are_tried_and_the_first_success_releases_all() {
        let (refusals, start) = (CopyRefusals::default(), Instant::now());
        let places: Vec<_> = (0..1000).map(|number| place("team", number)).collect();
        let mut tries = 0;
        // Each is retried when it is due, for a minute.
        for round in 0..12 {
            for (step, place) in places.iter().enumerate() {
                let now = start + round * PAUSE + Duration::from_millis(5 * step as u64);
                if refusals.wait(place, Refused::Write, now).is_none() {
                    tries += 1;
                    refusals.refused(place, Refused::Write, now);
                }
            }
        }
        assert!((12..=60).contains(&tries), "{tries} tries in a minute");
        assert_eq!(refusals.wait(&place("other", 1), Refused::Write, start), None, "another namespace");
        assert_eq!(refusals.wait(&places[0], Refused::Delete, start), None, "a delete");
        assert_eq!(refusals.accepted(&"team".into(), Refused::Write).len(), 1000);
        assert_eq!(refusals.wait(&places[0], Refused::Write, start), None);
    }

    #[test]
    fn more_than_a_few_refused_writes_take_turns() {
        let (refusals, start) = (CopyRefusals::default(), Instant::now());
        let waits = |number: usize, now| refusals.wait(&place("team", number), Refused::Write, now);
        for number in 0..TRIES as usize - 1 {
            refusals.refused(&place("team", number), Refused::Write, start);
            assert_eq!((waits(7, start), waits(8, start)), (None, None), "few are refused");
        }
        refusals.refused(&place("team", 3), Refused::Write, start);
        let turn = PAUSE / TRIES;
        assert_eq!(waits(7, start + turn - Duration::from_millis(1)), Some(PAUSE));
        assert_eq!(waits(7, start + turn), None);
        assert_eq!(waits(8, start + turn), Some(PAUSE), "its turn was taken");
    }

    #[test]
    fn settled_writes_do_not_delay_others() {
        let (refusals, now) = (CopyRefusals::default(), Instant::now());
        for number in 0..5 {
            refusals.refused(&place("team", number), Refused::Delete, now);
        }
        (0..5).for_each(|number| refusals.settled(&place("team", number)));
        assert!(refusals.0.lock().is_empty());
    }
}
