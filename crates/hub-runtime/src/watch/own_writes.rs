//! Objects that this process has written into a cache and its watch has not shown yet.
//!
//! A cache that stores the responses to its own writes runs ahead of its watch, which raises two questions:
//!
//! - *What does a list replace?* Within one history, an event that is older than the response to an own write is stale,
//!   and resourceVersions tell. A list may belong to another history with older versions: it replaces everything except
//!   what was written after it began. A write whose response arrived before is in the list, because the API server
//!   lists nothing older than what it has acknowledged.
//! - *What does a list delete?* The watch deletes only what it has shown itself. If an object was written here and
//!   deleted by another client while the watch was down, only the cache knows that it existed.

use std::collections::HashMap;
use std::hash::Hash;

/// The keys of objects that this process wrote and the watch has not shown since. The set is small: events follow
/// writes.
#[derive(Debug)]
pub struct OwnWrites<K> {
    /// Each key with the number of lists that had begun when it was written.
    written: HashMap<K, u32>,
    lists: u32,
    listing: bool,
}

impl<K> Default for OwnWrites<K> {
    fn default() -> Self {
        Self { written: HashMap::new(), lists: 0, listing: false }
    }
}

impl<K: Clone + Eq + Hash> OwnWrites<K> {
    /// The cache has stored the response to an own write.
    pub fn wrote(&mut self, key: &K) {
        self.written.insert(key.clone(), self.lists);
    }

    /// A list begins.
    pub fn begin_list(&mut self) {
        self.lists = self.lists.wrapping_add(1);
        self.listing = true;
    }

    /// The watch shows an object. Returns whether it replaces the cached one regardless of its version.
    pub fn shown(&mut self, key: &K) -> bool {
        let counts = self.seen(key);
        self.listing && counts
    }

    /// The watch shows that an object was deleted. Returns whether the deletion applies: a list does not show what was
    /// written after it began.
    pub fn ended(&mut self, key: &K) -> bool {
        self.seen(key)
    }

    /// Forgets a key that the watch shows, unless it was written during the current list; returns whether it is
    /// forgotten.
    fn seen(&mut self, key: &K) -> bool {
        let is_later = self.listing && self.written.get(key) == Some(&self.lists);
        if !is_later {
            self.written.remove(key);
        }
        !is_later
    }

    /// The list is complete. Returns the keys written before it began that it does not show: they are deleted.
    pub fn end_list(&mut self) -> Vec<K> {
        self.listing = false;
        let lists = self.lists;
        self.written.extract_if(|_, written| *written != lists).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_replaces_what_was_written_before_it_began_and_nothing_later() {
        let mut writes = OwnWrites::default();
        writes.wrote(&"before");
        writes.begin_list();
        writes.wrote(&"during");
        assert!(writes.shown(&"before"));
        assert!(writes.shown(&"never"));
        assert!(!writes.shown(&"during"));
        assert!(!writes.ended(&"during"));
        assert!(writes.end_list().is_empty());
        assert!(writes.ended(&"during"));
    }

    #[test]
    fn an_event_replaces_nothing_newer() {
        let mut writes = OwnWrites::default();
        writes.begin_list();
        writes.end_list();
        assert!(!writes.shown(&"a"));
    }

    #[test]
    fn what_we_wrote_and_a_later_list_does_not_show_is_gone() {
        let mut writes = OwnWrites::default();
        writes.wrote(&"gone");
        writes.wrote(&"there");
        writes.wrote(&"seen");
        writes.shown(&"seen");
        writes.begin_list();
        writes.wrote(&"during");
        writes.shown(&"there");
        assert_eq!(writes.end_list(), ["gone"]);
        // Until it is shown, or the next list does not show it either.
        writes.begin_list();
        assert_eq!(writes.end_list(), ["during"]);
    }

    #[test]
    fn a_list_that_breaks_off_ends_nothing() {
        let mut writes = OwnWrites::default();
        writes.wrote(&"a");
        writes.begin_list();
        writes.begin_list();
        assert!(writes.shown(&"a"));
        assert!(writes.end_list().is_empty());
    }
}
