//! The watch on the CRD of ClusterProfile.

use hub_api::cluster_profile::{CRD, ServedVersions};
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject};

use super::ServedVersion;

pub(crate) fn watch() -> Watch<DynamicObject> {
    let kind = ApiResource::erase::<CustomResourceDefinition>(&());
    Watch::dynamic("customresourcedefinitions", &kind, None).named(CRD).optional()
}

/// The sink of the watch.
pub(crate) struct Versions(pub(crate) ServedVersion);

impl Sink<DynamicObject> for Versions {
    fn apply(&mut self, _: &ObjectKey, object: Result<DynamicObject, Unreadable>) {
        let Ok(crd) = object else { return };
        let versions = crd.data["spec"]["versions"].as_array().into_iter().flatten();
        let served = versions.filter(|version| version["served"] == true);
        let served: Vec<&str> = served.filter_map(|version| version["name"].as_str()).collect();
        if let Some(versions) = ServedVersions::read(&served) {
            self.0.set(versions);
        }
    }

    fn delete(&mut self, _: &ObjectKey) {}

    fn listed(&mut self) {
        // The CustomResourceDefinition does not exist or is not readable: the watch on profiles need not wait for it.
        self.0.settle();
    }

    fn refused(&mut self) {
        // Without permission the process uses v1alpha1, as it does without a readable CRD.
        self.0.settle();
    }
}

#[cfg(test)]
mod tests {
    use hub_api::cluster_profile::ProfileVersion;
    use serde_json::json;

    use super::*;

    fn seen(versions: &ServedVersion, served: &[(&str, bool)]) -> ProfileVersion {
        let served: Vec<_> = served
            .iter()
            .map(|(name, served)| json!({ "name": name, "served": served, "storage": *name == "v1alpha1" }))
            .collect();
        let names = json!({ "kind": "ClusterProfile", "plural": "clusterprofiles" });
        let spec = json!({ "group": "multicluster.x-k8s.io", "names": names, "scope": "Namespaced", "versions": served });
        let crd =
            serde_json::from_value(json!({ "metadata": { "name": CRD }, "spec": spec })).unwrap();
        let key = ObjectKey { namespace: "".into(), name: CRD.into() };
        Versions(versions.clone()).apply(&key, Ok(crd));
        versions.current()
    }

    #[test]
    fn the_latest_known_version_that_is_served_is_used_and_the_last_one_where_none_is() {
        let versions = ServedVersion::default();
        assert_eq!(seen(&versions, &[("v1alpha1", true)]), ProfileVersion::V1alpha1);
        let both = [("v1alpha1", true), ("v1alpha2", true), ("v1beta1", true)];
        assert_eq!(seen(&versions, &both), ProfileVersion::V1alpha2);
        let first = [("v1alpha1", true), ("v1alpha2", false)];
        assert_eq!(seen(&versions, &first), ProfileVersion::V1alpha1);
        assert!(!versions.versions().has(ProfileVersion::V1alpha2));
        let second = [("v1alpha1", false), ("v1alpha2", true)];
        assert_eq!(seen(&versions, &second), ProfileVersion::V1alpha2);
        assert!(!versions.versions().has(ProfileVersion::V1alpha1));
        assert_eq!(seen(&versions, &[("v1beta1", true)]), ProfileVersion::V1alpha2);
    }

    #[tokio::test]
    async fn who_needs_a_version_waits_for_the_first() {
        let versions = ServedVersion::default();
        let waiting = tokio::spawn({
            let versions = versions.clone();
            async move { versions.known().await }
        });
        seen(&versions, &[("v1alpha2", true)]);
        assert_eq!(waiting.await.unwrap(), ProfileVersion::V1alpha2);
    }

    #[tokio::test]
    async fn a_version_that_is_not_in_use_and_disappears_is_noticed_too() {
        let versions = ServedVersion::default();
        seen(&versions, &[("v1alpha1", true), ("v1alpha2", true)]);
        let (noticed, mut changes) = tokio::sync::mpsc::unbounded_channel();
        let following = versions.clone();
        tokio::spawn(async move { following.follow(|| noticed.send(()).unwrap()).await });
        tokio::task::yield_now().await;
        seen(&versions, &[("v1alpha1", false), ("v1alpha2", true)]);
        assert_eq!(changes.recv().await, Some(()));
    }

    #[tokio::test]
    async fn without_the_permission_or_a_definition_no_caller_waits() {
        for ends in [Sink::refused, Sink::listed] as [fn(&mut Versions); 2] {
            let versions = ServedVersion::default();
            ends(&mut Versions(versions.clone()));
            assert_eq!(versions.known().await, ProfileVersion::V1alpha1);
            assert_eq!(seen(&versions, &[("v1alpha2", true)]), ProfileVersion::V1alpha2);
            ends(&mut Versions(versions.clone()));
            assert_eq!(versions.current(), ProfileVersion::V1alpha2);
        }
    }
}
