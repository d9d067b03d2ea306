//! The `CustomResourceDefinition`s of the kinds in this crate.
//!
//! The CRD of ClusterProfile is upstream's, in every published [`Flavour`], with printer columns for v1alpha1. The CRDs of Open Cluster Management's kinds
//! are for a hub without Open Cluster Management: they validate the fields that the controllers read as upstream does,
//! and preserve every other field.

use std::str::FromStr;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;

use crate::cluster_access::ClusterAccess;
use crate::cluster_profile::ClusterProfile;
use crate::managed_cluster::ManagedCluster;
use crate::managed_cluster_addon::ManagedClusterAddOn;
use crate::managed_cluster_set::ManagedClusterSet;
use crate::managed_cluster_set_binding::ManagedClusterSetBinding;
use crate::managed_proxy_configuration::ManagedProxyConfiguration;
use crate::managed_service_account::ManagedServiceAccount;
use crate::manifest_work::ManifestWork;

mod v1alpha2;

/// The published CRDs of ClusterProfile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// v1alpha1 with map lists in the status, which server-side apply merges entry by entry: cluster-inventory-api
    /// v0.1.
    #[default]
    Map,
    /// v1alpha1 with atomic lists in the status, which server-side apply replaces as a whole: the CRD that Open Cluster
    /// Management installs. A writer that owns one entry must not use server-side apply with it.
    Atomic,
    /// Like [`Self::Map`], and serves v1alpha2 beside v1alpha1: cluster-inventory-api's main branch, for v0.2.0.
    V1alpha2,
}

impl Flavour {
    pub const ALL: [Self; 3] = [Self::Map, Self::Atomic, Self::V1alpha2];

    /// The flavour's name in flags, values and file names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Atomic => "atomic",
            Self::V1alpha2 => "v1alpha2",
        }
    }
}

/// The text is not one of [`Flavour::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a flavour of the ClusterProfile CRD: expected map, atomic or v1alpha2")]
pub struct UnknownFlavour(String);

impl FromStr for Flavour {
    type Err = UnknownFlavour;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|flavour| flavour.as_str() == text);
        named.ok_or_else(|| UnknownFlavour(text.to_owned()))
    }
}

/// The CRDs of all kinds, ClusterProfile in the [`Flavour::Map`] flavour.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        finished(ManagedCluster::crd(), Spec::Optional),
        finished(ManagedClusterSet::crd(), Spec::Optional),
        finished(ManagedClusterSetBinding::crd(), Spec::Optional),
        finished(ManagedClusterAddOn::crd(), Spec::Required),
        finished(ManagedProxyConfiguration::crd(), Spec::Optional),
        finished(ManagedServiceAccount::crd(), Spec::Optional),
        finished(ManifestWork::crd(), Spec::Optional),
        cluster_profile(Flavour::Map),
        cluster_access(),
    ]
}

/// The CRD of ClusterAccess.
#[must_use]
pub fn cluster_access() -> CustomResourceDefinition {
    let mut crd = finished(ClusterAccess::crd(), Spec::Required);
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns([
            ("Identity", "string", ".spec.identity"),
            ("Clusters", "integer", ".status.clusters.selected"),
            ("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#),
            ("Age", "date", ".metadata.creationTimestamp"),
        ]));
    }
    for root in roots(&mut crd) {
        root.x_kubernetes_validations = Some(vec![ValidationRule {
            rule: "self.metadata.name.size() <= 63".to_owned(),
            message: Some("The name of a ClusterAccess has at most 63 characters.".to_owned()),
            ..ValidationRule::default()
        }]);
    }
    crd
}

/// The CRD of ClusterProfile.
#[must_use]
pub fn cluster_profile(flavour: Flavour) -> CustomResourceDefinition {
    let mut crd = finished(ClusterProfile::crd(), Spec::Required);
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(printer_columns());
    }
    match flavour {
        Flavour::Map => {}
        Flavour::Atomic => {
            for status in
                roots(&mut crd).filter_map(|root| root.properties.as_mut()?.get_mut("status"))
            {
                for list in status.properties.iter_mut().flat_map(|lists| lists.values_mut()) {
                    list.x_kubernetes_list_type = None;
                    list.x_kubernetes_list_map_keys = None;
                }
            }
        }
        Flavour::V1alpha2 => {
            crd.spec.names.categories = Some(vec!["multicluster".to_owned()]);
            let served_beside: Vec<_> = crd.spec.versions.iter().map(v1alpha2::beside).collect();
            crd.spec.versions.extend(served_beside);
        }
    }
    crd
}

/// Whether the control plane of a cluster is healthy.
const HEALTHY: &str = r#".status.conditions[?(@.type=="ControlPlaneHealthy")].status"#;

/// What `kubectl get clusterprofiles` shows of v1alpha1, for which upstream's CRD has no columns.
fn printer_columns() -> Vec<CustomResourceColumnDefinition> {
    columns([
        ("Manager", "string", ".spec.clusterManager.name"),
        ("Set", "string", r".metadata.labels.multicluster\.x-k8s\.io/clusterset"),
        ("Version", "string", ".status.version.kubernetes"),
        ("Healthy", "string", HEALTHY),
        ("Age", "date", ".metadata.creationTimestamp"),
    ])
}

fn columns<const N: usize>(
    columns: [(&str, &str, &str); N],
) -> Vec<CustomResourceColumnDefinition> {
    let column = |(name, type_, json_path): (&str, &str, &str)| CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    };
    columns.map(column).into()
}

/// Whether an object requires a spec.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spec {
    Required,
    Optional,
}

/// Adds to the derived CRD what controller-gen writes and kube's derive does not: the list kind and the three fields
/// that every object has. Removes `nullable` from optional fields.
fn finished(mut crd: CustomResourceDefinition, spec: Spec) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for root in roots(&mut crd) {
        for_each(root, &mut |schema| schema.nullable = None);
        root.title = None;
        if spec == Spec::Optional {
            root.required = None;
        }
        root.properties.get_or_insert_default().extend(
            [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")]
                .map(|(name, type_)| (name.to_owned(), of_type(type_))),
        );
    }
    crd
}

/// The schemas of the CRD's versions.
fn roots(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn of_type(type_: &str) -> JSONSchemaProps {
    JSONSchemaProps { type_: Some(type_.to_owned()), ..JSONSchemaProps::default() }
}

/// Visits a schema and all those inside it.
fn for_each(schema: &mut JSONSchemaProps, visit: &mut impl FnMut(&mut JSONSchemaProps)) {
    visit(schema);
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        for_each(property, visit);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        for_each(items, visit);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        for_each(values, visit);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Every keyword in a schema, with its path.
    fn keywords(schema: &JSONSchemaProps) -> Vec<(String, String, Value)> {
        fn collect(schema: &Value, path: &str, found: &mut Vec<(String, String, Value)>) {
            for (keyword, value) in schema.as_object().into_iter().flatten() {
                match (keyword.as_str(), value) {
                    ("properties", Value::Object(properties)) => {
                        properties.iter().for_each(|(name, property)| {
                            collect(property, &format!("{path}.{name}"), found);
                        });
                    }
                    ("items" | "additionalProperties", _) => {
                        collect(value, &format!("{path}[]"), found);
                    }
                    _ => found.push((path.to_owned(), keyword.clone(), value.clone())),
                }
            }
        }
        let mut found = Vec::new();
        collect(&json!(schema), "", &mut found);
        found
    }

    /// What the API server requires of a schema before it uses it for pruning and defaulting:
    /// <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>
    #[test]
    fn every_schema_is_structural() {
        const ALLOWED: [&str; 17] = [
            "type",
            "description",
            "required",
            "default",
            "enum",
            "format",
            "pattern",
            "minimum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "maxProperties",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type",
        ];
        let profiles = Flavour::ALL.map(cluster_profile);
        for mut crd in all().into_iter().chain(profiles) {
            let name = crd.spec.names.kind.clone();
            for root in roots(&mut crd) {
                for (path, keyword, value) in keywords(root) {
                    let rule = keyword == "x-kubernetes-validations";
                    assert!(
                        rule || ALLOWED.contains(&keyword.as_str()),
                        "{name}{path}: {keyword} {value}"
                    );
                }
                for_each(root, &mut |schema| {
                    assert!(schema.type_.is_some(), "{name}: no type: {schema:?}");
                });
            }
        }
    }

    #[test]
    fn map_and_atomic_differ_in_the_lists_of_the_status_alone() {
        let of = |flavour| {
            let mut crd = cluster_profile(flavour);
            roots(&mut crd).flat_map(|root| keywords(root)).collect::<Vec<_>>()
        };
        let atomic = of(Flavour::Atomic);
        let only_map = of(Flavour::Map).into_iter().filter(|keyword| !atomic.contains(keyword));
        let mut list_types: Vec<_> =
            only_map.map(|(path, keyword, _)| format!("{path} {keyword}")).collect();
        list_types.retain(|keyword| keyword.ends_with("x-kubernetes-list-type"));
        assert_eq!(
            list_types,
            ["accessProviders", "conditions", "credentialProviders", "properties"]
                .map(|list| format!(".status.{list} x-kubernetes-list-type"))
        );
        assert!(atomic.iter().all(|(_, keyword, _)| !keyword.starts_with("x-kubernetes-list")));
    }
}
