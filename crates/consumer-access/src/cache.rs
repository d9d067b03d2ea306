//! The observed objects of one kind, from a watch and from the responses to our own writes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

use hub_api::names::{AccountKey, AccountName};
use hub_core::consumer_access::{AccessSettings, FoundObject, IntegrationKey, ObservedObject};
use hub_runtime::watch::{OwnWrites, Seen, Unreadable};
use kube::api::DynamicObject;
use serde_json::json;

/// A watch of one kind: of the object of one account, or of all objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchName(pub(crate) Option<AccountName>);

/// Reads an object that a watch shows.
pub(crate) fn shown(object: Result<DynamicObject, Unreadable>) -> ObservedObject {
    match object {
        Ok(object) => ObservedObject::read(&object.metadata, Some(&object.data)),
        // What is reported in the status decides nothing.
        Err(unreadable) => {
            let spec = unreadable.spec.map(|spec| json!({ "spec": spec }));
            ObservedObject::read(&unreadable.metadata, spec.as_ref())
        }
    }
}

/// What identifies an object.
pub(crate) trait CacheKey: Clone + Ord + Hash {
    /// Whether the content of an object of another owner matters.
    fn is_declared(&self, settings: &AccessSettings) -> bool;
}

impl CacheKey for AccountKey {
    fn is_declared(&self, settings: &AccessSettings) -> bool {
        settings.consumers.contains(&self.account)
    }
}

impl CacheKey for IntegrationKey {
    fn is_declared(&self, _: &AccessSettings) -> bool {
        false
    }
}

/// The objects of one kind.
pub(crate) struct ObjectCache<K> {
    objects: BTreeMap<K, FoundObject>,
    writes: BTreeMap<WatchName, OwnWrites<K>>,
    /// The watches whose list is complete.
    listed: BTreeSet<WatchName>,
}

impl<K> Default for ObjectCache<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), writes: BTreeMap::new(), listed: BTreeSet::new() }
    }
}

impl<K: CacheKey> ObjectCache<K> {
    /// The object.
    pub(crate) fn get(&self, key: &K) -> Option<&FoundObject> {
        self.objects.get(key)
    }

    /// Whether the object of this key is ours.
    pub(crate) fn is_ours(&self, key: &K) -> bool {
        self.objects.get(key).is_some_and(|found| found.is_ours)
    }

    /// Every key with an object of ours.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &K> {
        self.objects.iter().filter(|(_, found)| found.is_ours).map(|(key, _)| key)
    }

    /// Whether the list of this watch is complete, so that an absent object does not exist.
    pub(crate) fn is_listed(&self, watch: &WatchName) -> bool {
        self.listed.contains(watch)
    }

    pub(crate) fn begin_list(&mut self, watch: &WatchName) {
        self.writes.entry(watch.clone()).or_default().begin_list();
    }

    /// The list is complete, at this resourceVersion: what we wrote before it and it does not show is gone, although the
    /// watch never showed that. Returns the keys of these.
    pub(crate) fn end_list(&mut self, watch: &WatchName, version: &str) -> Vec<K> {
        let gone = self.writes.entry(watch.clone()).or_default().end_list(version);
        for key in &gone {
            self.objects.remove(key);
        }
        self.listed.insert(watch.clone());
        gone
    }

    /// The hub does not serve the kind: what the watch has shown is gone, and what exists is unknown until the next list.
    pub(crate) fn unlist(&mut self, watch: &WatchName, is_shown: impl Fn(&K) -> bool) {
        self.listed.remove(watch);
        self.writes.remove(watch);
        self.objects.retain(|key, _| !is_shown(key));
    }

    /// Stores an object that the watch shows.
    pub(crate) fn show(
        &mut self,
        settings: &AccessSettings,
        watch: &WatchName,
        key: &K,
        object: ObservedObject,
    ) {
        let known = self.objects.get(key).map(seen);
        let writes = self.writes.entry(watch.clone()).or_default();
        if writes.takes_shown(key, known, (&object.version).into()) {
            self.store(settings, key, object);
        }
    }

    /// Stores the response to a patch or a delete, unless the object is gone.
    pub(crate) fn wrote(
        &mut self,
        settings: &AccessSettings,
        watch: &WatchName,
        key: &K,
        object: ObservedObject,
    ) {
        let known = self.objects.get(key).map(seen);
        let writes = self.writes.entry(watch.clone()).or_default();
        if writes.takes_patched(key, known, (&object.version).into()) {
            self.store(settings, key, object);
        }
    }

    /// A create is sent.
    pub(crate) fn creating(&mut self, watch: &WatchName, key: &K) {
        self.writes.entry(watch.clone()).or_default().sending(key);
    }

    /// Stores the response to a create, `None` if it failed. Returns false if the object has ended since.
    pub(crate) fn created(
        &mut self,
        settings: &AccessSettings,
        watch: &WatchName,
        key: &K,
        object: Option<ObservedObject>,
    ) -> bool {
        let known = self.objects.get(key).map(seen);
        let writes = self.writes.entry(watch.clone()).or_default();
        let in_flight = writes.received(key);
        let Some(object) = object else { return false };
        if in_flight.has_ended((&object.version).into(), known) {
            return false;
        }
        let uid = object.version.uid.clone();
        if writes.takes_found(key, known, (&object.version).into()) {
            self.store(settings, key, object);
        }
        // Also if the watch was faster, and showed it as a webhook had changed it.
        if let Some(found) = self.objects.get_mut(key).filter(|found| found.object.version.uid == uid) {
            found.is_ours = true;
        }
        true
    }

    /// An object is gone, as the watch shows.
    pub(crate) fn ended(&mut self, watch: &WatchName, key: &K) {
        let known = self.objects.get(key).map(seen);
        if self.writes.entry(watch.clone()).or_default().ended(key, known) {
            self.objects.remove(key);
        }
    }

    /// The object with this uid is gone, as the response to a write of it shows.
    pub(crate) fn gone(&mut self, key: &K, uid: &str) {
        if self.objects.get(key).is_some_and(|known| known.object.version.uid == uid) {
            self.objects.remove(key);
        }
    }

    fn store(&mut self, settings: &AccessSettings, key: &K, object: ObservedObject) {
        let mut found = FoundObject::seen(settings, self.objects.get(key), object);
        if !found.is_ours && !key.is_declared(settings) {
            found.object.forget_content();
        }
        self.objects.insert(key.clone(), found);
    }
}

fn seen(found: &FoundObject) -> Seen<'_> {
    (&found.object.version).into()
}

#[cfg(test)]
mod tests {
    use hub_core::protected::ProtectedNamespaces;
    use kube::api::ObjectMeta;

    use super::*;

    const ALL: WatchName = WatchName(None);

    fn settings() -> AccessSettings {
        AccessSettings {
            consumers: "[]".parse().unwrap(),
            account_namespace: Some("agents".into()),
            protected: ProtectedNamespaces::none(),
            installation: "hub-addons".into(),
            includes_local_cluster: false,
            hub_openshift_id: None,
            provider: "open-cluster-management".to_owned(),
            own_provider: String::new(),
            withdraws: false,
        }
    }

    fn object(uid: &str, version: &str) -> ObservedObject {
        let metadata = ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        ObservedObject::read(&metadata, None)
    }

    fn version(cache: &ObjectCache<IntegrationKey>, key: &IntegrationKey) -> Option<String> {
        cache.get(key).map(|found| found.object.version.resource_version.clone())
    }

    #[test]
    fn a_list_counts_whatever_its_version_and_an_event_only_if_it_is_newer() {
        let (settings, key) = (settings(), IntegrationKey::MultiKueueCluster("a".into()));
        let mut cache = ObjectCache::default();
        cache.creating(&ALL, &key);
        assert!(cache.created(&settings, &ALL, &key, Some(object("one", "5"))));
        cache.wrote(&settings, &ALL, &key, object("one", "7"));
        cache.show(&settings, &ALL, &key, object("one", "6"));
        assert_eq!(version(&cache, &key).as_deref(), Some("7"));
        cache.show(&settings, &ALL, &key, object("one", "8"));
        assert_eq!(version(&cache, &key).as_deref(), Some("8"));
        cache.begin_list(&ALL);
        cache.show(&settings, &ALL, &key, object("one", "3"));
        cache.end_list(&ALL, "1");
        assert_eq!(version(&cache, &key).as_deref(), Some("3"));
    }

    #[test]
    fn what_was_written_before_a_list_and_is_not_in_it_is_gone() {
        let (settings, key, later) = (
            settings(),
            IntegrationKey::MultiKueueCluster("a".into()),
            IntegrationKey::MultiKueueCluster("b".into()),
        );
        let mut cache = ObjectCache::default();
        for key in [&key, &later] {
            cache.creating(&ALL, key);
            assert!(cache.created(&settings, &ALL, key, Some(object("one", "5"))));
        }
        cache.begin_list(&ALL);
        cache.wrote(&settings, &ALL, &later, object("one", "6"));
        cache.end_list(&ALL, "1");
        assert_eq!(cache.ours().collect::<Vec<_>>(), [&later]);
    }

    #[test]
    fn a_kind_that_is_not_served_is_no_longer_listed_and_another_watch_is() {
        let (settings, key, other) = (
            settings(),
            IntegrationKey::MultiKueueCluster("a".into()),
            IntegrationKey::MultiKueueCluster("b".into()),
        );
        let another = WatchName(Some("other".into()));
        let mut cache = ObjectCache::default();
        for (watch, key) in [(&ALL, &key), (&another, &other)] {
            assert!(!cache.is_listed(watch));
            cache.begin_list(watch);
            cache.show(&settings, watch, key, object("one", "1"));
            cache.end_list(watch, "1");
            assert!(cache.is_listed(watch));
        }
        cache.unlist(&ALL, |shown| *shown == key);
        assert!(!cache.is_listed(&ALL) && cache.get(&key).is_none());
        assert!(cache.is_listed(&another) && cache.get(&other).is_some());
    }

    #[test]
    fn the_content_of_an_object_of_another_owner_is_kept_only_for_a_declared_account() {
        let mut settings = settings();
        settings.consumers = r#"[{ "namespace": "team", "managedServiceAccount": "app" }]"#.parse().unwrap();
        let annotated = ObservedObject::read(
            &ObjectMeta {
                uid: Some("one".to_owned()),
                annotations: Some(BTreeMap::from([("a".to_owned(), "b".to_owned())])),
                ..ObjectMeta::default()
            },
            None,
        );
        let account = |name: &str| AccountKey { cluster: "c".into(), account: name.into() };
        let mut cache = ObjectCache::default();
        for (key, kept) in [(account("app"), true), (account("other"), false)] {
            cache.show(&settings, &ALL, &key, annotated.clone());
            assert!(!cache.is_ours(&key));
            assert_eq!(cache.get(&key).unwrap().object == annotated, kept, "{key:?}");
        }
        let created = account("created");
        cache.creating(&ALL, &created);
        assert!(cache.created(&settings, &ALL, &created, Some(annotated)));
        cache.show(&settings, &ALL, &created, object("one", "2"));
        assert!(cache.is_ours(&created));
    }

    #[test]
    fn a_late_response_does_not_restore_an_object_that_has_ended() {
        let (settings, key) = (settings(), IntegrationKey::MultiKueueCluster("a".into()));
        let mut cache = ObjectCache::default();
        cache.creating(&ALL, &key);
        cache.show(&settings, &ALL, &key, object("one", "1"));
        cache.ended(&ALL, &key);
        assert!(!cache.created(&settings, &ALL, &key, Some(object("one", "1"))));
        assert!(cache.get(&key).is_none());
        for listed in ["3", "4"] {
            cache.creating(&ALL, &key);
            cache.begin_list(&ALL);
            cache.end_list(&ALL, listed);
            assert!(!cache.created(&settings, &ALL, &key, Some(object("two", "3"))));
            assert!(cache.get(&key).is_none());
        }
        cache.wrote(&settings, &ALL, &key, object("two", "4"));
        assert!(cache.get(&key).is_none(), "a patch");
        cache.creating(&ALL, &key);
        cache.begin_list(&ALL);
        cache.end_list(&ALL, "2");
        assert!(cache.created(&settings, &ALL, &key, Some(object("two", "3"))), "the list is older");
    }

    #[test]
    fn a_late_response_does_not_remove_a_successor() {
        let (settings, key) = (settings(), IntegrationKey::MultiKueueCluster("a".into()));
        let mut cache = ObjectCache::default();
        cache.show(&settings, &ALL, &key, object("two", "3"));
        cache.gone(&key, "one");
        assert!(cache.get(&key).is_some());
        cache.gone(&key, "two");
        assert!(cache.get(&key).is_none());
    }

    #[test]
    fn a_list_of_another_watch_does_not_concern_a_create() {
        let (settings, key) = (settings(), IntegrationKey::MultiKueueCluster("a".into()));
        let mut cache = ObjectCache::default();
        cache.creating(&ALL, &key);
        cache.end_list(&WatchName(Some("other".into())), "1");
        assert!(cache.created(&settings, &ALL, &key, Some(object("one", "1"))));
    }

    #[test]
    fn the_end_of_an_earlier_object_does_not_concern_its_successor() {
        let (settings, key) = (settings(), IntegrationKey::MultiKueueCluster("a".into()));
        let mut cache = ObjectCache::default();
        cache.show(&settings, &ALL, &key, object("one", "1"));
        cache.creating(&ALL, &key);
        cache.ended(&ALL, &key);
        assert!(cache.created(&settings, &ALL, &key, Some(object("two", "3"))));
        assert!(cache.is_ours(&key));
    }
}
