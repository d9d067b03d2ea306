//! Objects that this process has written into a cache and its watch has not shown yet.
//!
//! A cache that stores the responses to its own requests runs ahead of its watch, which raises three questions:
//!
//! - *What does a list replace?* Within one history, an event that is older than the response to an own write is stale,
//!   and resourceVersions tell. A list may belong to another history with older versions: it replaces everything except
//!   what was written after it began. A write whose response arrived before is in the list, because the API server
//!   lists nothing older than what it has acknowledged.
//! - *What does a list delete?* The watch deletes only what it has shown itself. If an object was written here and
//!   deleted by another client while the watch was down, only the cache knows that it existed. Of what was written after
//!   the list began, the list ends an object that it does not show and whose version is not newer than the list's: no event
//!   will show that end.
//! - *Does a response still count?* It may arrive after an event that shows the end of its object, or a list that shows
//!   the successor. No other event would correct the cache.

use std::collections::{BTreeMap, BTreeSet};

use super::is_newer;

/// The keys of objects that this process wrote and the watch has not shown since, and of those with a request under way.
/// Both sets are small.
#[derive(Debug)]
pub struct OwnWrites<K> {
    written: BTreeMap<K, Written>,
    /// The requests without a response, and whether the object may have ended since they were sent.
    sent: BTreeMap<K, bool>,
    lists: u32,
    listing: bool,
    /// What the current list has shown so far, in whatever state. Not recorded during the first list, which may be long:
    /// nothing is written before it is complete.
    listed: BTreeSet<K>,
}

#[derive(Debug)]
struct Written {
    /// The number of lists that had begun.
    lists: u32,
    /// The resourceVersion of the object.
    version: String,
}

impl<K> Default for OwnWrites<K> {
    fn default() -> Self {
        Self {
            written: BTreeMap::new(),
            sent: BTreeMap::new(),
            lists: 0,
            listing: false,
            listed: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Ord> OwnWrites<K> {
    /// The cache has stored the response to an own write, which shows this resourceVersion; or the API server has accepted
    /// our delete of an object with this one.
    pub fn wrote(&mut self, key: &K, version: &str) {
        self.written.insert(key.clone(), Written { lists: self.lists, version: version.to_owned() });
    }

    /// A request is sent whose response may go into the cache.
    pub fn sending(&mut self, key: &K) {
        self.sent.insert(key.clone(), false);
    }

    /// The request has ended. Returns whether its response may show an object that has ended since.
    pub fn received(&mut self, key: &K) -> bool {
        self.sent.remove(key).unwrap_or_default()
    }

    /// Whether a request has no response yet.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.sent.is_empty()
    }

    pub fn begin_list(&mut self) {
        self.lists = self.lists.wrapping_add(1);
        self.listing = true;
        self.listed.clear();
    }

    /// The watch shows an object. Returns whether it replaces the cached one regardless of its version.
    pub fn shown(&mut self, key: &K) -> bool {
        if self.listing && self.lists > 1 {
            self.listed.insert(key.clone());
            self.may_have_ended(key);
        }
        let counts = self.seen(key);
        self.listing && counts
    }

    /// The watch shows that an object was deleted. Returns whether the deletion applies: a list does not show what was
    /// written after it began.
    pub fn ended(&mut self, key: &K) -> bool {
        self.may_have_ended(key);
        self.seen(key)
    }

    fn may_have_ended(&mut self, key: &K) {
        if let Some(has_ended) = self.sent.get_mut(key) {
            *has_ended = true;
        }
    }

    /// Forgets a key that the watch shows, unless it was written during the current list; returns whether it is
    /// forgotten.
    fn seen(&mut self, key: &K) -> bool {
        let is_later = self.listing && self.written.get(key).is_some_and(|it| it.lists == self.lists);
        if !is_later {
            self.written.remove(key);
        }
        !is_later
    }

    /// The list is complete, and shows the hub at this resourceVersion. Returns the keys whose write it includes and
    /// whose object it does not show: they are deleted.
    pub fn end_list(&mut self, version: &str) -> Vec<K> {
        self.listing = false;
        // The list may include both a write and the deletion after it.
        self.sent.values_mut().for_each(|has_ended| *has_ended = true);
        let (lists, listed) = (self.lists, std::mem::take(&mut self.listed));
        let gone = self.written.extract_if(.., |key, written| {
            written.lists != lists || !listed.contains(key) && !is_newer(&written.version, version)
        });
        gone.map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_replaces_what_was_written_before_it_began_and_nothing_later() {
        let mut writes = OwnWrites::default();
        writes.wrote(&"before", "1");
        writes.begin_list();
        writes.wrote(&"during", "9");
        assert!(writes.shown(&"before"));
        assert!(writes.shown(&"never"));
        assert!(!writes.shown(&"during"));
        assert!(!writes.ended(&"during"));
        assert!(writes.end_list("5").is_empty());
        assert!(writes.ended(&"during"));
    }

    #[test]
    fn an_event_replaces_nothing_newer() {
        let mut writes = OwnWrites::default();
        writes.begin_list();
        writes.end_list("5");
        assert!(!writes.shown(&"a"));
    }

    #[test]
    fn what_we_wrote_and_a_later_list_does_not_show_is_gone() {
        let mut writes = OwnWrites::default();
        writes.wrote(&"gone", "1");
        writes.wrote(&"there", "1");
        writes.wrote(&"seen", "1");
        writes.shown(&"seen");
        writes.begin_list();
        writes.wrote(&"during", "9");
        writes.shown(&"there");
        assert_eq!(writes.end_list("5"), ["gone"]);
        // Until it is shown, or the next list does not show it either.
        writes.begin_list();
        assert_eq!(writes.end_list("5"), ["during"]);
    }

    #[test]
    fn what_was_written_during_a_list_that_includes_it_and_does_not_show_it_is_gone() {
        let mut writes = OwnWrites::default();
        writes.begin_list();
        writes.end_list("1");
        writes.begin_list();
        // Before the response to our delete arrives.
        writes.shown(&"ends later");
        writes.wrote(&"ends later", "3");
        for (key, version) in [("created", "4"), ("deleted", "5"), ("shown", "4"), ("later", "6")] {
            writes.wrote(&key, version);
        }
        assert!(!writes.ended(&"deleted"), "nobody knows yet what the list includes");
        assert!(!writes.shown(&"shown"));
        let mut gone = writes.end_list("5");
        gone.sort_unstable();
        assert_eq!(gone, ["created", "deleted"]);
        // The others have events.
        assert!(["shown", "later", "ends later"].iter().all(|key| writes.ended(key)));
        writes.begin_list();
        assert_eq!(writes.end_list("9"), [""; 0]);
    }

    #[test]
    fn the_response_to_a_request_does_not_count_if_an_event_or_a_list_may_have_shown_the_end_of_its_object() {
        let mut writes = OwnWrites::default();
        assert!(!writes.received(&"a"));
        writes.sending(&"a");
        writes.ended(&"b");
        assert!(!writes.received(&"a"));
        writes.ended(&"a");
        writes.sending(&"a");
        assert!(!writes.received(&"a"), "ended before it was sent");
        writes.sending(&"a");
        writes.ended(&"a");
        assert!(writes.received(&"a"));
        assert!(!writes.received(&"a"), "of the next request");
        writes.sending(&"a");
        writes.begin_list();
        writes.end_list("5");
        assert!(writes.received(&"a"));
        writes.sending(&"a");
        writes.shown(&"a");
        assert!(!writes.received(&"a"), "an event of a change");
        writes.begin_list();
        writes.sending(&"a");
        writes.shown(&"a");
        assert!(writes.received(&"a"), "the list may show the successor");
        writes.end_list("5");
        // Even if the event does not concern the object in the cache, which was written after the list began.
        writes.begin_list();
        writes.wrote(&"a", "9");
        writes.sending(&"a");
        assert!(!writes.ended(&"a"));
        assert!(writes.received(&"a"));
    }

    #[test]
    fn a_list_that_breaks_off_ends_nothing() {
        let mut writes = OwnWrites::default();
        writes.wrote(&"a", "1");
        writes.begin_list();
        writes.begin_list();
        assert!(writes.shown(&"a"));
        assert!(writes.end_list("5").is_empty());
    }
}
