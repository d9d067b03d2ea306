//! The cache of ClusterProfiles: by namespace and name, and by the cluster that they represent.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hub_api::labels;
use hub_api::names::{ClusterName, Namespace, ProfileKey};
use hub_core::profile::ObservedProfile;
use hub_core::{access, nested};
use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct ProfileCache {
    by_name: BTreeMap<Namespace, BTreeMap<ClusterName, Box<CachedProfile>>>,
    /// The namespaces that have a profile of each name, or a write of it that is pending.
    namespaces: BTreeMap<ClusterName, BTreeSet<Namespace>>,
    /// The profiles that are named after one cluster and whose label names another, by the cluster in the label.
    named_differently: BTreeMap<ClusterName, BTreeSet<ProfileKey>>,
}

pub(crate) struct CachedProfile {
    pub(crate) observed: ObservedProfile,
    /// When this process first saw an object with this uid.
    pub(crate) since: Instant,
}

impl ProfileCache {
    pub(crate) fn get(&self, key: &ProfileKey) -> Option<&CachedProfile> {
        self.by_name.get(&key.namespace)?.get(&key.cluster).map(Box::as_ref)
    }

    /// Adds a profile, or replaces the cached one.
    pub(crate) fn put(&mut self, key: &ProfileKey, observed: ObservedProfile) {
        let same = self.get(key).filter(|known| known.observed.version.uid == observed.version.uid);
        let since = same.map_or_else(Instant::now, |known| known.since);
        self.remove(key);
        if let Some(cluster) = other_cluster(key, &observed) {
            self.named_differently.entry(cluster).or_default().insert(key.clone());
        }
        let profiles = self.by_name.entry(key.namespace.clone()).or_default();
        profiles.insert(key.cluster.clone(), Box::new(CachedProfile { observed, since }));
        self.namespaces.entry(key.cluster.clone()).or_default().insert(key.namespace.clone());
    }

    /// Records whether a write of a profile that may not be cached is pending.
    pub(crate) fn set_pending(&mut self, key: &ProfileKey, is_pending: bool) {
        if is_pending {
            self.namespaces.entry(key.cluster.clone()).or_default().insert(key.namespace.clone());
        } else if self.get(key).is_none() {
            nested::remove_value(&mut self.namespaces, &key.cluster, &key.namespace);
        }
    }

    /// Removes a profile, and returns it.
    pub(crate) fn remove(&mut self, key: &ProfileKey) -> Option<ObservedProfile> {
        let removed = nested::remove(&mut self.by_name, &key.namespace, &key.cluster)?.observed;
        nested::remove_value(&mut self.namespaces, &key.cluster, &key.namespace);
        if let Some(cluster) = other_cluster(key, &removed) {
            nested::remove_value(&mut self.named_differently, &cluster, key);
        }
        Some(removed)
    }

    /// Visits so many profiles after this one. Returns the last one, unless there are no more.
    pub(crate) fn visit_after(
        &self,
        last: Option<&ProfileKey>,
        count: usize,
        mut visit: impl FnMut(&ProfileKey, &ObservedProfile),
    ) -> Option<ProfileKey> {
        let first = last.map_or_else(|| "".into(), |last| last.namespace.clone());
        let mut left = count;
        for (namespace, profiles) in self.by_name.range(first..) {
            let last = last.filter(|last| last.namespace == *namespace);
            let after = last.map_or(Bound::Unbounded, |last| Bound::Excluded(&last.cluster));
            for (cluster, known) in profiles.range::<ClusterName, _>((after, Bound::Unbounded)) {
                let key = cluster.in_namespace(namespace);
                visit(&key, &known.observed);
                left -= 1;
                if left == 0 {
                    return Some(key);
                }
            }
        }
        None
    }

    /// The profiles that are named after a cluster or whose label names it, and those of its name whose write is pending.
    pub(crate) fn of_cluster(&self, cluster: &ClusterName) -> Vec<ProfileKey> {
        let named = self.namespaces_with(cluster).cloned();
        let named = named.map(|namespace| ProfileKey { namespace, cluster: cluster.clone() });
        named.chain(self.named_differently.get(cluster).into_iter().flatten().cloned()).collect()
    }

    /// The namespaces with a profile of this name, or a write of it that is pending.
    pub(crate) fn namespaces_with(&self, name: &ClusterName) -> impl Iterator<Item = &Namespace> {
        self.namespaces.get(name).into_iter().flatten()
    }

    /// The names of a namespace's profiles.
    pub(crate) fn names_in(&self, namespace: &Namespace) -> impl Iterator<Item = &ClusterName> {
        self.by_name.get(namespace).into_iter().flat_map(BTreeMap::keys)
    }
}

/// The cluster that the label names, if the profile is not named after it.
fn other_cluster(key: &ProfileKey, observed: &ObservedProfile) -> Option<ClusterName> {
    let is_named_after = observed.labels.get(labels::CLUSTER_NAME) == Some(key.cluster.as_str());
    if is_named_after { None } else { access::cluster_of(observed).ok() }
}

#[cfg(test)]
mod tests {
    use hub_api::cluster_profile::StoredProfile;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn profile(cluster: &str) -> ObservedProfile {
        let labels = [(labels::CLUSTER_NAME.to_owned(), cluster.to_owned())];
        let metadata = ObjectMeta { labels: Some(labels.into()), ..ObjectMeta::default() };
        ObservedProfile::of(&StoredProfile { metadata, ..StoredProfile::default() })
    }

    fn key(namespace: &str, name: &str) -> ProfileKey {
        ProfileKey { namespace: namespace.into(), cluster: name.into() }
    }

    fn of(cache: &ProfileCache, cluster: &str) -> Vec<String> {
        cache.of_cluster(&cluster.into()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_profile_is_found_by_its_name_and_by_its_label_as_it_changes() {
        let mut cache = ProfileCache::default();
        cache.put(&key("a", "one"), profile("one"));
        cache.put(&key("b", "one"), profile("one"));
        cache.put(&key("b", "alias"), profile("one"));
        assert_eq!(of(&cache, "one"), ["a/one", "b/one", "b/alias"]);
        assert_eq!(of(&cache, "alias"), ["b/alias"]);
        cache.put(&key("b", "alias"), profile("two"));
        assert_eq!(of(&cache, "one"), ["a/one", "b/one"]);
        assert_eq!(of(&cache, "two"), ["b/alias"]);
        cache.remove(&key("b", "alias"));
        cache.remove(&key("a", "one"));
        assert_eq!(of(&cache, "two"), [""; 0]);
        assert_eq!(of(&cache, "one"), ["b/one"]);
        assert!(cache.named_differently.is_empty());
        for (is_pending, found) in [(true, vec!["a/one", "b/one"]), (false, vec!["b/one"])] {
            for namespace in ["a", "b"] {
                cache.set_pending(&key(namespace, "one"), is_pending);
            }
            assert_eq!(of(&cache, "one"), found, "one that is cached is found in any case");
        }
        cache.remove(&key("b", "one"));
        assert!(cache.namespaces.is_empty());
    }

    #[test]
    fn a_few_at_once_visit_each_profile_once() {
        let mut cache = ProfileCache::default();
        let keys = [("a", "one"), ("a", "two"), ("b", "one"), ("c", "two")];
        let keys = keys.map(|(namespace, name)| key(namespace, name));
        for key in &keys {
            cache.put(key, profile(key.cluster.as_str()));
        }
        for count in 1..=5 {
            let (mut visited, mut last) = (Vec::new(), None);
            loop {
                let before = visited.len();
                let visit = |key: &ProfileKey, _: &ObservedProfile| visited.push(key.clone());
                last = cache.visit_after(last.as_ref(), count, visit);
                assert!(visited.len() - before <= count);
                if last.is_none() {
                    break;
                }
            }
            assert_eq!(visited, keys, "{count} at once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_profile_is_new_again_only_when_it_is_recreated() {
        let mut cache = ProfileCache::default();
        let (key, begin) = (key("a", "one"), Instant::now());
        for (uid, since) in [("1", 0), ("1", 0), ("2", 2), ("2", 2)] {
            let metadata = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
            cache.put(
                &key,
                ObservedProfile::of(&StoredProfile { metadata, ..StoredProfile::default() }),
            );
            assert_eq!(
                cache.get(&key).unwrap().since - begin,
                std::time::Duration::from_secs(since)
            );
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
        }
    }
}
