//! The kinds that a hub serves, which change with its CRDs.

use std::sync::Arc;

use serde_json::Value;

use super::collect::CONTROLLER_MANAGER;
use super::{Key, Kind, Server, Serving, is_terminating};

/// The plural of CRDs.
const CRDS: &str = "customresourcedefinitions";

impl Server {
    /// Updates the object of a CRD from its kind, or deletes it.
    pub(super) fn define(&mut self, kind: usize) {
        let definition = self.kinds[kind].definition.clone();
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let Some(key) = self.key(CRDS, "", name) else { return };
        let before = self.objects.get(&key).cloned();
        if self.kinds[kind].serving == Serving::Missing {
            if before.is_some() {
                self.commit(key, None, CONTROLLER_MANAGER);
            }
            return;
        }
        let mut object = definition;
        let metadata = &mut object["metadata"];
        if let Some(before) = before {
            *metadata = before["metadata"].clone();
        } else {
            metadata["uid"] = self.next_uid().into();
            metadata["creationTimestamp"] = self.timestamp().into();
        }
        if self.kinds[kind].serving == Serving::Terminating {
            object["metadata"]["deletionTimestamp"] = self.timestamp().into();
        }
        self.commit(key, Some(object), CONTROLLER_MANAGER);
    }

    /// Updates a kind from the object of its CRD after that has been restored from a backup.
    pub(super) fn redefine(&mut self, kind: usize) {
        let name = self.kinds[kind].definition["metadata"]["name"].as_str().unwrap_or_default();
        let object = self.object(CRDS, "", name).cloned();
        let kind = Arc::make_mut(&mut self.kinds[kind]);
        let Some(object) = object else {
            kind.serving = Serving::Missing;
            return;
        };
        kind.serving = if is_terminating(&object) { Serving::Terminating } else { Serving::Served };
        kind.definition["spec"] = object["spec"].clone();
        let mut all = std::mem::take(&mut kind.versions);
        all.append(&mut kind.unserved);
        let versions = object["spec"]["versions"].as_array().into_iter().flatten();
        let served: Vec<&str> = versions
            .filter(|it| it["served"] == true)
            .filter_map(|it| it["name"].as_str())
            .collect();
        (kind.versions, kind.unserved) =
            all.into_iter().partition(|(name, _)| served.contains(&name.as_str()));
    }

    fn change_crd(&mut self, kind: usize, change: impl FnOnce(&mut Kind)) {
        change(Arc::make_mut(&mut self.kinds[kind]));
        self.define(kind);
    }

    /// Deletes a CRD: at once with all objects of its kind or, if finalizers keep some, after these have ended.
    pub fn remove_crd(&mut self, plural: &str) {
        let Some(kind) = self.kind_of(plural).filter(|kind| self.kinds[*kind].custom) else {
            return;
        };
        if self.kinds[kind].serving != Serving::Served {
            return;
        }
        self.change_crd(kind, |kind| kind.serving = Serving::Terminating);
        let keys: Vec<Key> = self.objects_of_kind(kind).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove(&key, CONTROLLER_MANAGER);
        }
        self.finish_crds();
    }

    /// Ends the deletion of CRDs whose objects have all ended.
    pub fn finish_crds(&mut self) {
        for kind in 0..self.kinds.len() {
            if self.kinds[kind].serving == Serving::Terminating
                && self.objects_of_kind(kind).next().is_none()
            {
                self.change_crd(kind, |kind| {
                    kind.serving = Serving::Missing;
                    kind.revision += 1;
                });
            }
        }
    }

    /// Whether a kind is served, and be it while its CRD is being deleted.
    pub(crate) fn is_served(&self, plural: &str) -> bool {
        self.kind_of(plural).is_some_and(|kind| self.kinds[kind].serving != Serving::Missing)
    }

    /// Creates a deleted CRD again. A CRD whose deletion has not ended stays as it is.
    pub fn restore_crd(&mut self, plural: &str) {
        self.finish_crds();
        let missing = |kind: &Arc<Kind>| kind.plural == plural && kind.serving == Serving::Missing;
        if let Some(kind) = self.kinds.iter().position(missing) {
            self.change_crd(kind, |kind| kind.serving = Serving::Served);
        }
    }

    /// Serves a version of a kind, or stops serving it. Ends the watches of the kind, as a real server does.
    pub fn serve_version(&mut self, plural: &str, version: &str, served: bool) {
        let Some(kind) = self.kind_of(plural) else { return };
        if self.kinds[kind].serving != Serving::Served {
            return;
        }
        let from = if served { &self.kinds[kind].unserved } else { &self.kinds[kind].versions };
        if !from.contains_key(version) {
            return;
        }
        self.change_crd(kind, |kind| {
            let (from, to) = if served {
                (&mut kind.unserved, &mut kind.versions)
            } else {
                (&mut kind.versions, &mut kind.unserved)
            };
            to.extend(from.remove_entry(version));
            kind.revision += 1;
            for shown in kind.definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
                if shown["name"] == version {
                    shown["served"] = Value::Bool(served);
                }
            }
        });
    }
}
