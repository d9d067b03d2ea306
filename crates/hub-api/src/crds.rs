//! The `CustomResourceDefinition`s of the kinds in this crate, from files: those of the chart, and one for the kinds of
//! Open Cluster Management.
//!
//! The CRD of ClusterProfile is upstream's, in every published [`Flavour`], with printer columns for v1alpha1. The CRDs of
//! Open Cluster Management's kinds are for a hub without it: they validate the fields that the controllers read as
//! upstream does, and preserve every other field.

use std::str::FromStr;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

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
    let of_ocm = include_str!("crds/open-cluster-management.yaml").split("---\n").skip(1).map(read);
    of_ocm.chain([cluster_profile(Flavour::Map), cluster_access()]).collect()
}

/// The CRD of ClusterAccess.
#[must_use]
pub fn cluster_access() -> CustomResourceDefinition {
    read(include_str!("../../../charts/hub-addons/files/clusteraccess.yaml"))
}

/// The CRD of ClusterProfile.
#[must_use]
pub fn cluster_profile(flavour: Flavour) -> CustomResourceDefinition {
    read(match flavour {
        Flavour::Map => include_str!("../../../charts/hub-addons/files/clusterprofile-map.yaml"),
        Flavour::Atomic => include_str!("../../../charts/hub-addons/files/clusterprofile-atomic.yaml"),
        Flavour::V1alpha2 => include_str!("../../../charts/hub-addons/files/clusterprofile-v1alpha2.yaml"),
    })
}

#[expect(clippy::expect_used, reason = "the text is part of the program, and the tests below read each")]
fn read(text: &str) -> CustomResourceDefinition {
    serde_saphyr::from_str(text).expect("a CRD")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    };
    use serde_json::{Value, json};

    use super::*;

    /// The schemas of the CRD's versions.
    fn roots(crd: &CustomResourceDefinition) -> impl Iterator<Item = &JSONSchemaProps> {
        crd.spec.versions.iter().filter_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref())
    }

    fn assert_typed(schema: &JSONSchemaProps, name: &str) {
        assert!(schema.type_.is_some(), "{name}: no type: {schema:?}");
        let items = match &schema.items {
            Some(JSONSchemaPropsOrArray::Schema(items)) => Some(&**items),
            _ => None,
        };
        let values = match &schema.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(values)) => Some(&**values),
            _ => None,
        };
        let properties = schema.properties.iter().flat_map(|properties| properties.values());
        properties.chain(items).chain(values).for_each(|inner| assert_typed(inner, name));
    }

    /// Every keyword in a schema, with its path.
    fn keywords(schema: &JSONSchemaProps) -> Vec<(String, String, Value)> {
        fn collect(schema: &Value, path: &str, found: &mut Vec<(String, String, Value)>) {
            for (keyword, value) in schema.as_object().into_iter().flatten() {
                match (keyword.as_str(), value) {
                    ("properties", Value::Object(properties)) => properties
                        .iter()
                        .for_each(|(name, property)| collect(property, &format!("{path}.{name}"), found)),
                    ("items" | "additionalProperties", _) => collect(value, &format!("{path}[]"), found),
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
        const ALLOWED: [&str; 16] = [
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
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type",
        ];
        let profiles = Flavour::ALL.map(cluster_profile);
        for crd in all().into_iter().chain(profiles) {
            let name = crd.spec.names.kind.clone();
            for root in roots(&crd) {
                for (path, keyword, value) in keywords(root) {
                    let rule = keyword == "x-kubernetes-validations";
                    assert!(rule || ALLOWED.contains(&keyword.as_str()), "{name}{path}: {keyword} {value}");
                }
                assert_typed(root, &name);
            }
        }
    }

    #[test]
    fn map_and_atomic_differ_in_the_lists_of_the_status_alone() {
        let of = |flavour| {
            let crd = cluster_profile(flavour);
            roots(&crd).flat_map(keywords).collect::<Vec<_>>()
        };
        let atomic = of(Flavour::Atomic);
        let only_map = of(Flavour::Map).into_iter().filter(|keyword| !atomic.contains(keyword));
        let mut list_types: Vec<_> = only_map.map(|(path, keyword, _)| format!("{path} {keyword}")).collect();
        list_types.retain(|keyword| keyword.ends_with("x-kubernetes-list-type"));
        assert_eq!(
            list_types,
            ["accessProviders", "conditions", "credentialProviders", "properties"]
                .map(|list| format!(".status.{list} x-kubernetes-list-type"))
        );
        assert!(atomic.iter().all(|(_, keyword, _)| !keyword.starts_with("x-kubernetes-list")));
    }
}
