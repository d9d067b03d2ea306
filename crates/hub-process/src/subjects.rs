//! How Events refer to the objects of findings.

use hub_api::cluster_profile::{ClusterProfile, ProfileVersion};
use hub_api::managed_cluster::ManagedCluster;
use hub_api::managed_cluster_set::ManagedClusterSet;
use hub_api::managed_cluster_set_binding::ManagedClusterSetBinding;
use hub_api::managed_proxy_configuration::ManagedProxyConfiguration;
use hub_api::managed_service_account::ManagedServiceAccount;
use hub_core::finding::Subject;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Secret};
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;

/// The object of a finding; `profiles` is the version of ClusterProfile in use.
pub(crate) fn reference(subject: &Subject, profiles: ProfileVersion) -> ObjectReference {
    fn of(api_version: String, kind: &str, namespace: Option<&str>, name: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind.to_owned()),
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        }
    }
    fn to<K: Resource<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> ObjectReference {
        of(K::api_version(&()).into_owned(), &K::kind(&()), namespace, name)
    }
    match subject {
        Subject::Cluster(name) => to::<ManagedCluster>(None, name.as_str()),
        Subject::ClusterSet(name) => to::<ManagedClusterSet>(None, name.as_str()),
        Subject::Binding(namespace, name) => {
            to::<ManagedClusterSetBinding>(Some(namespace.as_str()), name.as_str())
        }
        Subject::Profile(key) => ObjectReference {
            api_version: Some(profiles.resource().api_version),
            ..to::<ClusterProfile>(Some(key.namespace.as_str()), key.cluster.as_str())
        },
        Subject::ProxyConfiguration(name) => to::<ManagedProxyConfiguration>(None, name),
        Subject::Account(key) => {
            to::<ManagedServiceAccount>(Some(key.cluster.as_str()), key.account.as_str())
        }
        Subject::Secret(namespace, name) => to::<Secret>(Some(namespace.as_str()), name),
        Subject::ConfigMap(namespace, name) => to::<ConfigMap>(Some(namespace.as_str()), name),
        Subject::Role(namespace, name) => to::<Role>(Some(namespace.as_str()), name),
        Subject::Crd(name) => to::<CustomResourceDefinition>(None, name),
        Subject::ApiService(name) => {
            of("apiregistration.k8s.io/v1".to_owned(), "APIService", None, name)
        }
        Subject::Access(key) => {
            let kind = key.api().resource();
            of(kind.api_version, &kind.kind, key.namespace(), &key.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use hub_api::names::ProfileKey;

    use super::*;

    #[test]
    fn an_event_about_a_profile_names_the_version_in_use() {
        let key = ProfileKey { namespace: "app".into(), cluster: "c1".into() };
        let about = reference(&Subject::Profile(key), ProfileVersion::V1alpha2);
        assert_eq!(about.api_version.as_deref(), Some("multicluster.x-k8s.io/v1alpha2"));
        assert_eq!((about.namespace.as_deref(), about.name.as_deref()), (Some("app"), Some("c1")));
    }
}
