//! The observed objects of one kind, from a watch and from the responses to our own writes.

use std::collections::{BTreeMap, BTreeSet};

use hub_api::names::{AccountKey, AccountName};
use hub_core::consumer_access::{AccessSettings, ObservedObject};
use hub_runtime::watch::{OwnWrites, is_newer};

/// A watch of one kind: of the object of one account, or of all objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchName(pub(crate) Option<AccountName>);

/// The objects of one kind by account.
#[derive(Default)]
pub(crate) struct ObjectCache {
    objects: BTreeMap<AccountKey, ObservedObject>,
    /// The uid of the last object that had our marks.
    ours: BTreeMap<AccountKey, String>,
    writes: BTreeMap<WatchName, OwnWrites<AccountKey>>,
    /// The watches whose list is complete.
    listed: BTreeSet<WatchName>,
}

impl ObjectCache {
    /// The object.
    pub(crate) fn get(&self, key: &AccountKey) -> Option<&ObservedObject> {
        self.objects.get(key)
    }

    /// The uid of the last object that had our marks.
    pub(crate) fn uid(&self, key: &AccountKey) -> Option<&String> {
        self.ours.get(key)
    }

    /// Every key with an object.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &AccountKey> {
        self.objects.keys()
    }

    /// Whether the list of this watch is complete, so that an absent object does not exist.
    pub(crate) fn is_listed(&self, watch: &WatchName) -> bool {
        self.listed.contains(watch)
    }

    /// A list begins.
    pub(crate) fn begin_list(&mut self, watch: &WatchName) {
        self.writes.entry(watch.clone()).or_default().begin_list();
    }

    /// The list is complete: what it lacks is gone, although the watch never showed that.
    pub(crate) fn end_list(&mut self, watch: &WatchName) {
        for key in self.writes.entry(watch.clone()).or_default().end_list() {
            self.forget(&key);
        }
        self.listed.insert(watch.clone());
    }

    /// Stores an object that the watch shows.
    pub(crate) fn show(
        &mut self,
        settings: &AccessSettings,
        watch: &WatchName,
        key: &AccountKey,
        object: ObservedObject,
    ) {
        let replaces = self.writes.entry(watch.clone()).or_default().shown(key);
        self.store(settings, key, object, replaces);
    }

    /// Stores the response to our own write.
    pub(crate) fn wrote(
        &mut self,
        settings: &AccessSettings,
        watch: &WatchName,
        key: &AccountKey,
        object: ObservedObject,
    ) {
        if self.store(settings, key, object, false) {
            self.writes.entry(watch.clone()).or_default().wrote(key);
        }
    }

    /// An object is gone, as the watch shows.
    pub(crate) fn ended(&mut self, watch: &WatchName, key: &AccountKey) {
        if self.writes.entry(watch.clone()).or_default().ended(key) {
            self.forget(key);
        }
    }

    /// An object is gone.
    pub(crate) fn forget(&mut self, key: &AccountKey) {
        self.objects.remove(key);
        self.ours.remove(key);
    }

    /// Stores an object unless a newer version of it is known; returns whether it did.
    fn store(
        &mut self,
        settings: &AccessSettings,
        key: &AccountKey,
        object: ObservedObject,
        replaces: bool,
    ) -> bool {
        let known = self.objects.get(key).map(|known| known.version.resource_version.as_str());
        if !replaces && known.is_some_and(|known| !is_newer(&object.version.resource_version, known)) {
            return false;
        }
        if object.is_marked(settings) {
            self.ours.insert(key.clone(), object.version.uid.clone());
        }
        self.objects.insert(key.clone(), object);
        true
    }
}
