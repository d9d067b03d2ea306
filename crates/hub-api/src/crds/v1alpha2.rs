//! `multicluster.x-k8s.io/v1alpha2` of ClusterProfile, as cluster-inventory-api's main branch serves it for v0.2.0.
//!
//! v1alpha2 is v1alpha1 without the deprecated `credentialProviders` and with stricter validation. Objects of both
//! versions have the same shape, so the types of [`cluster_profile`](crate::cluster_profile) read and write both. There
//! is no conversion webhook: the API server changes only `apiVersion`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinitionVersion, CustomResourceValidation,
    JSONSchemaProps,
};
use serde_json::{Value, json};

use super::{HEALTHY, columns};
use crate::cluster_profile::ProfileVersion;

/// The version v1alpha2, served beside `v1alpha1`, which remains the storage version.
pub(super) fn beside(
    v1alpha1: &CustomResourceDefinitionVersion,
) -> CustomResourceDefinitionVersion {
    let schema = v1alpha1.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    CustomResourceDefinitionVersion {
        name: ProfileVersion::V1alpha2.as_str().to_owned(),
        served: true,
        storage: false,
        schema: Some(CustomResourceValidation { open_api_v3_schema: schema.and_then(tightened) }),
        subresources: v1alpha1.subresources.clone(),
        additional_printer_columns: Some(printer_columns()),
        ..CustomResourceDefinitionVersion::default()
    }
}

/// The schema of v1alpha1 with the changes of v1alpha2. Both are JSON schemas, so there is always a result.
fn tightened(schema: &JSONSchemaProps) -> Option<JSONSchemaProps> {
    let mut schema = serde_json::to_value(schema).ok()?;
    json_patch::merge(&mut schema, &changes());
    serde_json::from_value(schema).ok()
}

/// The changes of v1alpha2 to the schema of v1alpha1, as a JSON merge patch.
fn changes() -> Value {
    json!({ "properties": {
        "spec": { "properties": { "clusterManager": { "properties": { "name": {
            "minLength": 1,
            "maxLength": 63,
            "x-kubernetes-validations": [{
                "rule": "!format.labelValue().validate(self).hasValue()",
                "message": "must be a valid Kubernetes label value",
            }],
        } } } } },
        "status": { "properties": {
            "credentialProviders": null,
            "accessProviders": { "maxItems": 64, "items": {
                "required": ["cluster", "name"],
                "properties": {
                    "name": { "minLength": 1, "maxLength": 253 },
                    "cluster": { "properties": {
                        "certificate-authority": null,
                        "extensions": {
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["name"],
                            "items": { "properties": { "name": { "minLength": 1, "maxLength": 253 } } },
                        },
                        "proxy-url": {
                            "maxLength": 2048,
                            "x-kubernetes-validations": [{
                                "rule": concat!(
                                    "self == '' || (isURL(self) && url(self).getScheme() in ['http', 'https', 'socks5'] ",
                                    "&& url(self).getHost() != '')",
                                ),
                                "message": "proxy-url must be a valid URL with scheme http, https, or socks5 and a host",
                            }],
                        },
                        "server": {
                            "maxLength": 2048,
                            "x-kubernetes-validations": [{
                                "rule": "isURL(self) && url(self).getHost() != ''",
                                "message": "server must be a valid absolute URL with a host",
                            }],
                        },
                        "tls-server-name": { "maxLength": 253 },
                    } },
                },
            } },
        } },
    } })
}

/// What `kubectl get clusterprofiles` shows.
fn printer_columns() -> Vec<CustomResourceColumnDefinition> {
    columns([
        ("Display Name", "string", ".spec.displayName"),
        ("Manager", "string", ".spec.clusterManager.name"),
        ("Version", "string", ".status.version.kubernetes"),
        ("Healthy", "string", HEALTHY),
        ("Age", "date", ".metadata.creationTimestamp"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crds::{Flavour, cluster_profile};

    /// The facts of upstream's v1alpha2, path by path, for when its CRD is not available to compare with.
    #[test]
    fn v1alpha2_asks_for_what_upstreams_does() {
        let crd = serde_json::to_value(cluster_profile(Flavour::V1alpha2)).unwrap();
        let versions = crd["spec"]["versions"].as_array().unwrap();
        let stored: Vec<_> = versions
            .iter()
            .map(|version| {
                (version["name"].as_str().unwrap(), &version["served"], &version["storage"])
            })
            .collect();
        assert_eq!(
            stored,
            [("v1alpha1", &json!(true), &json!(true)), ("v1alpha2", &json!(true), &json!(false))]
        );
        assert_eq!(crd["spec"]["names"]["categories"], json!(["multicluster"]));
        assert_eq!(crd["spec"]["conversion"], Value::Null);
        assert_eq!(versions[1]["subresources"], json!({ "status": {} }));

        let schema = &versions[1]["schema"]["openAPIV3Schema"];
        let status = "/properties/status/properties";
        let entry = format!("{status}/accessProviders/items");
        let cluster = format!("{entry}/properties/cluster");
        let rule = "x-kubernetes-validations/0/rule";
        for (path, fact) in [
            (format!("{status}/credentialProviders"), Value::Null),
            (format!("{status}/accessProviders/maxItems"), json!(64)),
            (format!("{status}/accessProviders/x-kubernetes-list-type"), json!("map")),
            (format!("{entry}/required"), json!(["cluster", "name"])),
            (format!("{entry}/properties/name/minLength"), json!(1)),
            (format!("{entry}/properties/name/maxLength"), json!(253)),
            (format!("{cluster}/required"), json!(["server"])),
            (format!("{cluster}/properties/certificate-authority"), Value::Null),
            (format!("{cluster}/properties/certificate-authority-data/format"), json!("byte")),
            (format!("{cluster}/properties/server/maxLength"), json!(2048)),
            (
                format!("{cluster}/properties/server/{rule}"),
                json!("isURL(self) && url(self).getHost() != ''"),
            ),
            (format!("{cluster}/properties/proxy-url/maxLength"), json!(2048)),
            (format!("{cluster}/properties/tls-server-name/maxLength"), json!(253)),
            (format!("{cluster}/properties/extensions/x-kubernetes-list-type"), json!("map")),
            (
                format!("{cluster}/properties/extensions/items/properties/name/maxLength"),
                json!(253),
            ),
        ] {
            assert_eq!(schema.pointer(&path), Some(&fact).filter(|fact| !fact.is_null()), "{path}");
        }
        let name = "/properties/spec/properties/clusterManager/properties/name";
        for (keyword, fact) in [
            ("minLength", json!(1)),
            ("maxLength", json!(63)),
            (rule, json!("!format.labelValue().validate(self).hasValue()")),
        ] {
            assert_eq!(schema.pointer(&format!("{name}/{keyword}")), Some(&fact), "{keyword}");
        }
    }

    #[test]
    fn what_v1alpha2_does_not_change_is_as_in_v1alpha1() {
        let crd = serde_json::to_value(cluster_profile(Flavour::V1alpha2)).unwrap();
        let schema =
            |version: usize| crd["spec"]["versions"][version]["schema"]["openAPIV3Schema"].clone();
        let mut changed = schema(0);
        json_patch::merge(&mut changed, &changes());
        assert_eq!(changed, schema(1));
        let map = serde_json::to_value(cluster_profile(Flavour::Map)).unwrap();
        assert_eq!(schema(0), map["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    }
}
