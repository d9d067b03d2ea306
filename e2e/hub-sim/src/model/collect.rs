//! The controllers that come with every API server: the garbage collector and the namespace controller.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::meta::{is_held, is_terminating, uid_of};
use super::{Key, Kind, Server};

/// The client of the changes that these controllers make.
pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";

impl Server {
    /// Lets the controllers do all pending work; returns whether there was any.
    pub fn collect(&mut self) -> bool {
        let mut any = false;
        while self.collect_once() {
            any = true;
        }
        any
    }

    fn collect_once(&mut self) -> bool {
        let ending: BTreeSet<&str> = self
            .objects_of("namespaces")
            .filter(|namespace| is_terminating(namespace))
            .filter_map(|namespace| namespace["metadata"]["name"].as_str())
            .collect();
        let is_orphan = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
                !owners.is_empty() && owners.iter().all(|owner| self.is_absent(owner, namespace))
            })
        };
        let is_over = |key: &Key, object: &Value| {
            !is_terminating(object)
                && (is_orphan(object) || ending.contains(key.namespace.as_str()))
        };
        let over: Vec<Key> = self
            .objects
            .iter()
            .filter(|(key, object)| is_over(key, object))
            .map(|(key, _)| key.clone())
            .collect();
        let empty: Vec<Key> = ending
            .iter()
            .filter(|name| self.objects.keys().all(|key| key.namespace != **name))
            .filter_map(|name| self.key("namespaces", "", name))
            .collect();
        let any = !over.is_empty() || !empty.is_empty();
        for key in over {
            self.remove(&key, CONTROLLER_MANAGER);
        }
        for key in empty {
            self.commit(key, None, CONTROLLER_MANAGER);
        }
        any
    }

    /// Whether an owner of an object in a namespace does not exist: the namespace and the cluster scope have no object
    /// of its kind, name and uid. An owner of an unknown kind counts as existing.
    fn is_absent(&self, owner: &Value, namespace: &str) -> bool {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let is_it = |kind: &Arc<Kind>| kind.group == group && kind.kind == text("kind");
        let Some(kind) = self.kinds.iter().position(is_it) else { return false };
        let namespace = if self.kinds[kind].namespaced { namespace } else { "" };
        let key = Key { kind, namespace: namespace.to_owned(), name: text("name").to_owned() };
        self.objects.get(&key).is_none_or(|found| uid_of(found) != text("uid"))
    }

    /// Starts or completes the deletion of an object, as its finalizers allow.
    pub(super) fn remove(&mut self, key: &Key, agent: &str) -> Option<Arc<Value>> {
        let object = self.objects.get(key)?;
        if is_terminating(object) && is_held(object) {
            return Some(Arc::clone(object));
        }
        if !is_held(object) {
            return Some(self.commit(key.clone(), None, agent));
        }
        let mut held = Value::clone(object);
        held["metadata"]["deletionTimestamp"] = self.timestamp().into();
        held["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        if let Some(generation) = held["metadata"]["generation"].as_i64() {
            held["metadata"]["generation"] = (generation + 1).into();
        }
        Some(self.commit(key.clone(), Some(held), agent))
    }
}
