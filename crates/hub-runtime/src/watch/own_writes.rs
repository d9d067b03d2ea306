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

use hub_core::version::Version;

use super::is_newer;

/// The keys of objects that this process wrote and the watch has not shown since, and of those with a request under way.
/// Both sets are small.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnWrites<K> {
    written: BTreeMap<K, Written>,
    /// The requests without a response.
    sent: BTreeMap<K, InFlight>,
    lists: u32,
    listing: bool,
    /// What the current list has shown so far, in whatever state. Not recorded during the first list, which may be long:
    /// nothing is written before it is complete.
    listed: BTreeSet<K>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Written {
    /// The number of lists that had begun.
    lists: u32,
    /// The resourceVersion of the object.
    version: String,
}

/// What a watch has shown since a request was sent. The response may arrive later and show an object that is gone: no event
/// would remove it from the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct InFlight {
    /// The uids of the objects that have ended.
    ended: BTreeSet<String>,
    /// The resourceVersion of the last list. What it includes and does not show has ended.
    listed: Option<String>,
    /// Whether an object has ended of which the cache did not know, or a list has begun to show one.
    is_uncertain: bool,
}

impl InFlight {
    /// Whether the object that the response shows has ended since, if the cache knows this one now.
    #[must_use]
    pub fn has_ended(&self, found: Seen<'_>, known: Option<Seen<'_>>) -> bool {
        let is_included = |listed: &String| !is_newer(found.version, listed);
        self.ended.contains(found.uid) || known.is_none() && self.listed.as_ref().is_some_and(is_included)
    }

    /// Whether any object may have ended since.
    #[must_use]
    pub fn has_any_ended(&self) -> bool {
        self.is_uncertain || !self.ended.is_empty() || self.listed.is_some()
    }
}

/// A state of an object: its uid and resourceVersion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<'a> {
    pub uid: &'a str,
    pub version: &'a str,
}

impl<'a> From<&'a Version> for Seen<'a> {
    fn from(version: &'a Version) -> Self {
        Self { uid: &version.uid, version: &version.resource_version }
    }
}

impl Seen<'_> {
    /// Whether it is later than what is known, of whichever object.
    #[must_use]
    pub fn is_later(self, known: Option<Seen<'_>>) -> bool {
        known.is_none_or(|known| is_newer(self.version, known.version))
    }
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

    /// The watch shows an object. Returns whether the cache takes it in place of what it knows.
    pub fn takes_shown(&mut self, key: &K, known: Option<Seen<'_>>, shown: Seen<'_>) -> bool {
        self.shown(key) || shown.is_later(known)
    }

    /// A create has created an object, or a read has found it. Returns whether the cache takes it in place of what it
    /// knows.
    pub fn takes_found(&mut self, key: &K, known: Option<Seen<'_>>, found: Seen<'_>) -> bool {
        let takes = found.is_later(known);
        if takes {
            self.wrote(key, found.version);
        }
        takes
    }

    /// A patch has left an object like this. Returns whether the cache takes it: not if it no longer knows the object, whose
    /// end the watch has shown, and would not show again.
    pub fn takes_patched(&mut self, key: &K, known: Option<Seen<'_>>, left: Seen<'_>) -> bool {
        known.is_some_and(|known| known.uid == left.uid) && self.takes_found(key, known, left)
    }

    /// The API server has accepted the delete of the object with this uid. Returns whether that is the one that the cache
    /// knows.
    pub fn takes_deleted(&mut self, key: &K, known: Option<Seen<'_>>, uid: &str) -> bool {
        let Some(known) = known.filter(|known| known.uid == uid) else { return false };
        self.wrote(key, known.version);
        true
    }

    /// A request is sent whose response may go into the cache.
    pub fn sending(&mut self, key: &K) {
        self.sent.insert(key.clone(), InFlight::default());
    }

    /// The request has ended. Returns what has happened since it was sent.
    pub fn received(&mut self, key: &K) -> InFlight {
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
            if let Some(in_flight) = self.sent.get_mut(key) {
                in_flight.is_uncertain = true;
            }
        }
        let counts = self.seen(key);
        self.listing && counts
    }

    /// The watch shows that an object was deleted, where the cache knows this one. Returns whether the deletion applies: a
    /// list does not show what was written after it began.
    pub fn ended(&mut self, key: &K, known: Option<Seen<'_>>) -> bool {
        let counts = self.seen(key);
        if let Some(in_flight) = self.sent.get_mut(key) {
            match known.filter(|_| counts) {
                Some(known) => drop(in_flight.ended.insert(known.uid.to_owned())),
                None => in_flight.is_uncertain = true,
            }
        }
        counts
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
        self.sent.values_mut().for_each(|in_flight| in_flight.listed = Some(version.to_owned()));
        let (lists, listed) = (self.lists, std::mem::take(&mut self.listed));
        let gone = self.written.extract_if(.., |key, written| {
            written.lists != lists || !listed.contains(key) && !is_newer(&written.version, version)
        });
        gone.map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod model;

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
        assert!(!writes.ended(&"during", None));
        assert!(writes.end_list("5").is_empty());
        assert!(writes.ended(&"during", None));
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
        assert!(!writes.ended(&"deleted", None), "nobody knows yet what the list includes");
        assert!(!writes.shown(&"shown"));
        let mut gone = writes.end_list("5");
        gone.sort_unstable();
        assert_eq!(gone, ["created", "deleted"]);
        // The others have events.
        assert!(["shown", "later", "ends later"].iter().all(|key| writes.ended(key, None)));
        writes.begin_list();
        assert_eq!(writes.end_list("9"), [""; 0]);
    }

    #[test]
    fn the_response_to_a_request_does_not_count_if_an_event_or_a_list_may_have_shown_the_end_of_its_object() {
        let mut writes = OwnWrites::default();
        assert!(!writes.received(&"a").has_any_ended());
        writes.sending(&"a");
        writes.ended(&"b", None);
        assert!(!writes.received(&"a").has_any_ended());
        writes.ended(&"a", None);
        writes.sending(&"a");
        assert!(!writes.received(&"a").has_any_ended(), "ended before it was sent");
        writes.sending(&"a");
        writes.ended(&"a", None);
        assert!(writes.received(&"a").has_any_ended());
        assert!(!writes.received(&"a").has_any_ended(), "of the next request");
        writes.sending(&"a");
        writes.begin_list();
        writes.end_list("5");
        assert!(writes.received(&"a").has_any_ended());
        writes.sending(&"a");
        writes.shown(&"a");
        assert!(!writes.received(&"a").has_any_ended(), "an event of a change");
        writes.begin_list();
        writes.sending(&"a");
        writes.shown(&"a");
        assert!(writes.received(&"a").has_any_ended(), "the list may show the successor");
        writes.end_list("5");
        // Even if the event does not concern the object in the cache, which was written after the list began.
        writes.begin_list();
        writes.wrote(&"a", "9");
        writes.sending(&"a");
        assert!(!writes.ended(&"a", None));
        assert!(writes.received(&"a").has_any_ended());
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
