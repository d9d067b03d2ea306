//! Maps of maps, and maps of sets, without empty ones inside.

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

/// Removes a value of a key, and the key with its last value; returns whether that was the last one.
pub fn remove_value<K: Ord, V: Ord>(
    all: &mut BTreeMap<K, BTreeSet<V>>,
    key: &K,
    value: &V,
) -> bool {
    let Some(values) = all.get_mut(key) else { return false };
    values.remove(value);
    let is_last = values.is_empty();
    if is_last {
        all.remove(key);
    }
    is_last
}
