//! What controllers do that come with every API server: the garbage collector, and the end of namespaces.

use std::collections::BTreeSet;

use serde_json::Value;

use super::meta::{is_held, is_terminating, uid_of};
use super::{Key, Kind, Server, Serving};

/// Who the changes of these controllers are by.
pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";

impl Server {
    /// Lets the controllers do all that is to do now; returns whether that was anything.
    pub fn collect(&mut self) -> bool {
        let mut any = false;
        while self.collect_once() {
            any = true;
        }
        any
    }

    fn collect_once(&mut self) -> bool {
        let uids: BTreeSet<&str> = self.objects.values().map(|object| uid_of(object)).collect();
        let ending: BTreeSet<&str> = self
            .objects_of("namespaces")
            .filter(|namespace| is_terminating(namespace))
            .filter_map(|namespace| namespace["metadata"]["name"].as_str())
            .collect();
        let is_orphan = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| {
                !owners.is_empty()
                    && owners.iter().all(|owner| !owner["uid"].as_str().is_some_and(|uid| uids.contains(uid)))
            })
        };
        let is_over = |key: &Key, object: &Value| {
            !is_terminating(object) && (is_orphan(object) || ending.contains(key.namespace.as_str()))
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

    /// Begins or ends an object's end, as finalizers allow.
    pub(super) fn remove(&mut self, key: &Key, agent: &str) -> Option<std::sync::Arc<Value>> {
        let object = self.objects.get(key)?;
        if is_terminating(object) && is_held(object) {
            return Some(std::sync::Arc::clone(object));
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

    /// Deletes a CRD: with all objects of its kind at once, or, while finalizers hold some, in the end.
    pub fn remove_crd(&mut self, plural: &str) {
        let Some(kind) = self.kind_of(plural).filter(|kind| self.kinds[*kind].custom) else { return };
        self.kinds[kind].serving = Serving::Terminating;
        let keys: Vec<Key> = self.objects_of_kind(kind).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove(&key, CONTROLLER_MANAGER);
        }
        self.finish_crds();
    }

    /// Ends the CRDs that nothing holds any more.
    pub fn finish_crds(&mut self) {
        for kind in 0..self.kinds.len() {
            if self.kinds[kind].serving == Serving::Terminating && self.objects_of_kind(kind).next().is_none()
            {
                self.kinds[kind].serving = Serving::Missing;
            }
        }
    }

    /// Makes a CRD again that was deleted. One that is not gone yet stays as it is.
    pub fn restore_crd(&mut self, plural: &str) {
        self.finish_crds();
        let missing = |kind: &&mut Kind| kind.plural == plural && kind.serving == Serving::Missing;
        if let Some(kind) = self.kinds.iter_mut().find(missing) {
            kind.serving = Serving::Served;
        }
    }
}
