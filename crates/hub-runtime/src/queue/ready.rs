//! The ready keys of a queue, in the order in which workers take them: by priority, within a priority round-robin over
//! namespaces, and within a namespace first in, first out.

use std::collections::{BTreeMap, HashMap};

use hub_api::names::Namespace;
use hub_core::priority::Priority;

pub(crate) struct Ready<K> {
    /// Every key, and where it is.
    pub(super) places: BTreeMap<K, QueuePosition>,
    lanes: [Lane<K>; Priority::ALL.len()],
    clock: u64,
}

pub(super) struct QueuePosition {
    priority: Priority,
    arrived: u64,
}

/// The keys of one priority.
struct Lane<K> {
    namespaces: HashMap<Namespace, Line<K>>,
    /// The namespaces by their turn: the one that has waited longest goes first.
    turns: BTreeMap<u64, Namespace>,
}

/// The keys of one namespace, in order of arrival.
struct Line<K> {
    turn: u64,
    keys: BTreeMap<u64, K>,
}

impl<K> Default for Lane<K> {
    fn default() -> Self {
        Self { namespaces: HashMap::new(), turns: BTreeMap::new() }
    }
}

impl<K> Default for Ready<K> {
    fn default() -> Self {
        Self { places: BTreeMap::new(), lanes: Default::default(), clock: 0 }
    }
}

impl<K: Clone + Ord> Ready<K> {
    /// Adds a key, or moves an existing one to a higher priority. Returns whether anything changed.
    pub(crate) fn add(&mut self, key: K, namespace: &Namespace, priority: Priority) -> bool {
        if let Some(place) = self.places.get(&key) {
            if place.priority <= priority {
                return false;
            }
            self.remove(&key, namespace);
        }
        self.clock += 1;
        let arrived = self.clock;
        let Lane { namespaces, turns } = &mut self.lanes[priority as usize];
        let line = namespaces.entry(namespace.clone()).or_insert_with(|| {
            turns.insert(arrived, namespace.clone());
            Line { turn: arrived, keys: BTreeMap::new() }
        });
        line.keys.insert(arrived, key.clone());
        self.places.insert(key, QueuePosition { priority, arrived });
        true
    }

    /// The next key whose priority and namespace are admitted. On turn 0 the most urgent priority is first, on turn 1
    /// the next one, and so on in a circle. Of a priority that is not admitted, no namespace is visited: thousands can wait.
    pub(crate) fn peek<A: Fn(&Namespace) -> bool>(
        &self,
        turn: usize,
        admits: impl Fn(Priority) -> Option<A>,
    ) -> Option<(&K, Priority)> {
        let lanes = Priority::ALL.into_iter().zip(&self.lanes).cycle();
        lanes.skip(turn % Priority::ALL.len()).take(Priority::ALL.len()).find_map(
            |(priority, lane)| {
                let admits = admits(priority)?;
                let namespace = lane.turns.values().find(|namespace| admits(namespace))?;
                lane.namespaces.get(namespace)?.keys.values().next().map(|key| (key, priority))
            },
        )
    }

    /// Removes a key of a namespace, which moves to the end of its lane.
    pub(crate) fn remove(&mut self, key: &K, namespace: &Namespace) {
        let Some(QueuePosition { priority, arrived }) = self.places.remove(key) else { return };
        self.clock += 1;
        let Lane { namespaces, turns } = &mut self.lanes[priority as usize];
        let Some(line) = namespaces.get_mut(namespace) else { return };
        line.keys.remove(&arrived);
        turns.remove(&line.turn);
        if line.keys.is_empty() {
            namespaces.remove(namespace);
        } else {
            line.turn = self.clock;
            turns.insert(self.clock, namespace.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(ready: &mut Ready<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| {
            let key = *ready.peek(0, |_| Some(|_: &Namespace| true))?.0;
            ready.remove(&key, &key[..1].into());
            Some(key)
        })
        .collect()
    }

    fn add(ready: &mut Ready<&'static str>, key: &'static str, priority: Priority) -> bool {
        ready.add(key, &key[..1].into(), priority)
    }

    #[test]
    fn a_higher_priority_goes_first_and_within_one_the_namespaces_take_turns() {
        let mut ready = Ready::default();
        for key in ["a1", "a2", "a3", "b1", "b2"] {
            add(&mut ready, key, Priority::Update);
        }
        add(&mut ready, "a4", Priority::Start);
        add(&mut ready, "a5", Priority::End);
        assert_eq!(order(&mut ready), ["a5", "a4", "a1", "b1", "a2", "b2", "a3"]);
        assert!(ready.places.is_empty());
    }

    #[test]
    fn a_key_that_becomes_more_urgent_moves_up_and_never_down() {
        let mut ready = Ready::default();
        assert!(add(&mut ready, "a1", Priority::Update));
        assert!(add(&mut ready, "a2", Priority::Update));
        assert!(add(&mut ready, "a2", Priority::End));
        assert!(!add(&mut ready, "a2", Priority::Update));
        assert_eq!(ready.places.len(), 2);
        assert_eq!(order(&mut ready), ["a2", "a1"]);
    }

    #[test]
    fn a_namespace_or_a_priority_that_is_not_admitted_delays_no_other() {
        let mut ready = Ready::default();
        add(&mut ready, "a1", Priority::End);
        add(&mut ready, "b1", Priority::Update);
        let next = ready.peek(0, |_| Some(|namespace: &Namespace| namespace.as_str() != "a"));
        assert_eq!(next, Some((&"b1", Priority::Update)));
        let next = ready.peek(0, |priority| (priority != Priority::End).then_some(|_: &_| true));
        assert_eq!(next, Some((&"b1", Priority::Update)));
    }
}
