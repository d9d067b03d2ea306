//! Maps of maps, and maps of sets, without empty ones inside; and pairs.

use std::collections::{BTreeMap, BTreeSet};

/// Removes a value, and its inner map if that becomes empty.
pub fn remove<K: Ord, L: Ord, V>(
    all: &mut BTreeMap<K, BTreeMap<L, V>>,
    outer: &K,
    inner: &L,
) -> Option<V> {
    let values = all.get_mut(outer)?;
    let removed = values.remove(inner);
    if values.is_empty() {
        all.remove(outer);
    }
    removed
}

/// Removes a value of a key, and the key with its last value.
pub fn remove_value<K: Ord, V: Ord>(all: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    let Some(values) = all.get_mut(key) else { return };
    values.remove(value);
    if values.is_empty() {
        all.remove(key);
    }
}

/// Pairs that are found by either side.
#[derive(Debug)]
pub struct Pairs<L, R> {
    of_left: BTreeMap<L, BTreeSet<R>>,
    of_right: BTreeMap<R, BTreeSet<L>>,
}

impl<L, R> Default for Pairs<L, R> {
    fn default() -> Self {
        Self { of_left: BTreeMap::new(), of_right: BTreeMap::new() }
    }
}

impl<L: Ord + Clone, R: Ord + Clone> Pairs<L, R> {
    pub fn insert(&mut self, left: &L, right: &R) {
        self.of_left.entry(left.clone()).or_default().insert(right.clone());
        self.of_right.entry(right.clone()).or_default().insert(left.clone());
    }

    pub fn remove(&mut self, left: &L, right: &R) {
        remove_value(&mut self.of_left, left, right);
        remove_value(&mut self.of_right, right, left);
    }

    /// Makes these the pairs of the left side.
    pub fn set(&mut self, left: &L, rights: &BTreeSet<R>) {
        let gone: Vec<_> = self.of_left(left).filter(|it| !rights.contains(it)).cloned().collect();
        for right in gone {
            self.remove(left, &right);
        }
        for right in rights {
            if !self.contains(left, right) {
                self.insert(left, right);
            }
        }
    }

    /// Removes the pairs of the right side.
    pub fn remove_right(&mut self, right: &R) {
        for left in self.of_right.remove(right).unwrap_or_default() {
            remove_value(&mut self.of_left, &left, right);
        }
    }

    #[must_use]
    pub fn contains(&self, left: &L, right: &R) -> bool {
        self.of_left.get(left).is_some_and(|rights| rights.contains(right))
    }

    /// What is paired with the left side, in order.
    pub fn of_left(&self, left: &L) -> impl Iterator<Item = &R> {
        self.of_left.get(left).into_iter().flatten()
    }

    /// What is paired with the right side, in order.
    pub fn of_right(&self, right: &R) -> impl Iterator<Item = &L> {
        self.of_right.get(right).into_iter().flatten()
    }

    /// Every left side, in order.
    pub fn lefts(&self) -> impl Iterator<Item = &L> {
        self.of_left.keys()
    }

    /// The right sides from this one on, in order.
    pub fn rights_from(&self, first: R) -> impl Iterator<Item = &R> {
        self.of_right.range(first..).map(|(right, _)| right)
    }
}
