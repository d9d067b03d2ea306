//! Values by the keys of Secrets, found by namespace and by name without visiting the others.

use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::ops::Bound;

use hub_api::names::{ClusterName, Namespace, SecretKey};
use hub_api::text::Text;

use crate::nested;

/// A value for each of some Secrets.
#[derive(Debug, Default)]
pub(super) struct SecretMap<T> {
    by_namespace: BTreeMap<Namespace, BTreeMap<Text, T>>,
    /// Pairs, since the copies of most accounts of applications are in one namespace: a set for each would be ten times
    /// as large.
    by_name: BTreeSet<(Text, Namespace)>,
}

impl<T> SecretMap<T> {
    pub(super) fn get(&self, key: &SecretKey) -> Option<&T> {
        self.by_namespace.get(&key.namespace)?.get(&key.name)
    }

    /// Changes the value of a key, which may be new, and returns whether to keep it.
    pub(super) fn change(&mut self, key: &SecretKey, change: impl FnOnce(&mut T) -> bool)
    where
        T: Default,
    {
        let names = self.by_namespace.get_mut(&key.namespace);
        if let Some(known) = names.and_then(|names| names.get_mut(&key.name)) {
            if !change(known) {
                nested::remove(&mut self.by_namespace, &key.namespace, &key.name);
                self.by_name.remove(&(key.name.clone(), key.namespace.clone()));
            }
            return;
        }
        let mut value = T::default();
        if change(&mut value) {
            let names = self.by_namespace.entry(key.namespace.clone()).or_default();
            names.insert(key.name.clone(), value);
            self.by_name.insert((key.name.clone(), key.namespace.clone()));
        }
    }

    /// The namespaces, in order.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.by_namespace.keys()
    }

    /// The values in a namespace, by name, from this name on.
    pub(super) fn in_namespace<'a>(
        &'a self,
        namespace: &Namespace,
        from: &str,
    ) -> impl Iterator<Item = (&'a Text, &'a T)> + use<'a, T> {
        let names = self.by_namespace.get(namespace);
        let range = (Bound::Included(from), Bound::Unbounded);
        names.map(|names| names.range::<str, _>(range)).into_iter().flatten()
    }

    /// The names in a namespace that may be those of copies for a cluster. Some may be for another cluster whose name
    /// begins with this one's.
    pub(super) fn of_cluster_in<'a>(
        &'a self,
        namespace: &Namespace,
        cluster: &ClusterName,
    ) -> impl Iterator<Item = &'a Text> + use<'a, T> {
        let names = self.by_namespace.get(namespace);
        let prefix = format!("{cluster}-");
        names
            .into_iter()
            .flat_map(move |names| beginning_with(names, prefix.clone()))
            .map(|(name, _)| name)
    }

    /// The keys that may be those of copies for a cluster, like [`Self::of_cluster_in`].
    pub(super) fn of_cluster<'a>(
        &'a self,
        cluster: &ClusterName,
    ) -> impl Iterator<Item = SecretKey> + use<'a, T> {
        let prefix = format!("{cluster}-");
        // The name of the cluster is a text that is in use: the prefix would be a new one.
        self.named_from(cluster.as_str().into())
            .skip_while({
                let prefix = prefix.clone();
                move |(name, _)| **name < *prefix
            })
            .take_while(move |(name, _)| name.starts_with(&prefix))
            .map(|(name, namespace)| SecretKey { namespace: namespace.clone(), name: name.clone() })
    }

    /// The namespaces with a value of this name.
    pub(super) fn namespaces_with<'a>(
        &'a self,
        name: &str,
    ) -> impl Iterator<Item = &'a Namespace> + use<'a, T> {
        let name = Text::from(name);
        self.named_from(name.clone())
            .take_while(move |(of, _)| *of == name)
            .map(|(_, namespace)| namespace)
    }

    /// The names from this one on, each with one of its namespaces.
    fn named_from(&self, name: Text) -> btree_set::Range<'_, (Text, Namespace)> {
        self.by_name.range((name, Namespace::from(""))..)
    }
}

fn beginning_with<V>(
    names: &BTreeMap<Text, V>,
    prefix: String,
) -> impl Iterator<Item = (&Text, &V)> {
    let from = names.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
    from.take_while(move |(name, _)| name.starts_with(&prefix))
}
