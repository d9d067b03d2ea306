//! Objects as watches show them, and what our own writes have changed meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use hub_core::consumer_access::{AccessSettings, FoundObject, ObservedObject};
use hub_core::version::{Uid, Version};
use hub_runtime::reconciler::Read;
use hub_runtime::watch::Unreadable;
use kube::api::DynamicObject;
use serde_json::json;

/// Reads an object that a watch shows.
pub(crate) fn shown(object: Result<DynamicObject, Unreadable>) -> ObservedObject {
    match object {
        Ok(object) => ObservedObject::read(&object.metadata, Some(&object.data)),
        // No write depends on the status, so the spec suffices.
        Err(unreadable) => {
            let spec = unreadable.spec.map(|spec| json!({ "spec": spec }));
            ObservedObject::read(&unreadable.metadata, spec.as_ref())
        }
    }
}

/// The object that a read has found.
pub(crate) fn as_read(read: &Read) -> Option<DynamicObject> {
    serde_json::from_str(read.object.as_deref()?).ok()
}

/// Objects, as watches show them, by keys of type `K`. A `W` identifies a watch.
pub(crate) struct ObjectCache<K, W> {
    objects: BTreeMap<K, FoundObject>,
    /// The uids of objects that this process has created and no watch has shown yet.
    created: BTreeMap<K, Uid>,
    /// The watches whose list is complete.
    listed: BTreeSet<W>,
}

impl<K, W> Default for ObjectCache<K, W> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), created: BTreeMap::new(), listed: BTreeSet::new() }
    }
}

impl<K: Clone + Ord, W: Ord> ObjectCache<K, W> {
    pub(crate) fn get(&self, key: &K) -> Option<&FoundObject> {
        self.objects.get(key)
    }

    /// Whether the object of this key is ours.
    pub(crate) fn is_ours(&self, key: &K) -> bool {
        self.objects.get(key).is_some_and(|found| found.is_ours)
    }

    /// The uid of an object of this key that this process has created and no watch has shown yet.
    pub(crate) fn uid_of_created(&self, key: &K) -> Option<&Uid> {
        self.created.get(key)
    }

    /// Every key with an object of ours.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &K> {
        self.objects.iter().filter(|(_, found)| found.is_ours).map(|(key, _)| key)
    }

    /// Whether the list of this watch is complete, so that an absent object does not exist.
    pub(crate) fn is_listed(&self, watch: &W) -> bool {
        self.listed.contains(watch)
    }

    pub(crate) fn version(&self, key: &K) -> Option<Version> {
        self.objects.get(key).map(|found| found.object.version.clone())
    }

    /// Records that the list of this watch is complete.
    pub(crate) fn end_list(&mut self, watch: W) {
        self.listed.insert(watch);
    }

    /// Records that what exists is unknown until the next list, and that these objects are gone: those that the watch
    /// has shown, if the hub does not serve the kind.
    pub(crate) fn unlist(&mut self, watch: &W, is_gone: impl Fn(&K) -> bool) {
        self.listed.remove(watch);
        self.objects.retain(|key, _| !is_gone(key));
    }

    /// Stores an object that the watch shows; of one of another owner, only the version, unless its content matters.
    pub(crate) fn show(
        &mut self,
        settings: &AccessSettings,
        key: &K,
        object: ObservedObject,
        keeps_content: bool,
    ) {
        let mut found = self.as_read(settings, key, object);
        if self.created.get(key) == Some(&found.object.version.uid) {
            self.created.remove(key);
        }
        if !found.is_ours && !keeps_content {
            found.object.forget_content();
        }
        self.objects.insert(key.clone(), found);
    }

    /// An object as a read shows it.
    pub(crate) fn as_read(&self, settings: &AccessSettings, key: &K, object: ObservedObject) -> FoundObject {
        let mut found = FoundObject::seen(settings, self.objects.get(key), object);
        found.is_ours |= self.created.get(key) == Some(&found.object.version.uid);
        found
    }

    /// Records that this process has created the object with this uid, which makes it ours, even if a webhook has
    /// changed it.
    pub(crate) fn created(&mut self, key: &K, uid: &Uid) {
        match self.objects.get_mut(key).filter(|found| found.object.version.uid == *uid) {
            Some(found) => found.is_ours = true,
            None => drop(self.created.insert(key.clone(), uid.clone())),
        }
    }

    /// Records that the API server has deleted the object with this uid.
    pub(crate) fn deleted(&mut self, key: &K, uid: &Uid) {
        if self.uid_of_created(key) == Some(uid) {
            self.created.remove(key);
        }
    }

    /// Removes an object whose end the watch shows. Returns its uid.
    pub(crate) fn ended(&mut self, key: &K) -> Option<Uid> {
        self.objects.remove(key).map(|found| found.object.version.uid)
    }
}

#[cfg(test)]
mod tests {
    use hub_core::protected::ProtectedNamespaces;
    use kube::api::ObjectMeta;

    use super::*;

    fn settings() -> AccessSettings {
        AccessSettings {
            consumers: hub_core::consumer_access::Consumers::default(),
            permissions: None,
            account_namespace: Some("agents".into()),
            protected: ProtectedNamespaces::none(),
            installation: "hub-addons".into(),
            includes_local_cluster: false,
            hub_openshift_id: None,
            provider: "open-cluster-management".to_owned(),
            own_provider: String::new(),
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

    #[test]
    fn a_kind_that_is_not_served_is_no_longer_listed_and_another_watch_is() {
        let mut cache = ObjectCache::default();
        for resource in ["one", "another"] {
            assert!(!cache.is_listed(&resource));
            cache.show(&settings(), &resource, object("uid", "1"), true);
            cache.end_list(resource);
            assert!(cache.is_listed(&resource));
        }
        cache.unlist(&"one", |shown| *shown == "one");
        assert!(!cache.is_listed(&"one") && cache.get(&"one").is_none());
        assert!(cache.is_listed(&"another") && cache.get(&"another").is_some());
    }

    #[test]
    fn what_was_created_and_not_shown_yet_is_known_until_it_is_shown_or_deleted() {
        let (settings, mut cache) = (settings(), ObjectCache::<_, ()>::default());
        let (one, two) = (Uid::from("one"), Uid::from("two"));
        cache.created(&"shown", &one);
        assert_eq!(cache.uid_of_created(&"shown"), Some(&one));
        cache.show(&settings, &"shown", object("one", "2"), true);
        assert!(cache.is_ours(&"shown") && cache.uid_of_created(&"shown").is_none());
        cache.created(&"deleted", &two);
        cache.deleted(&"deleted", &one);
        assert_eq!(cache.uid_of_created(&"deleted"), Some(&two));
        cache.deleted(&"deleted", &two);
        assert_eq!(cache.uid_of_created(&"deleted"), None);
    }
}
