//! Kueue's kinds that consumer access writes: with the rules of Kueue's CRDs for the fields that it writes, and without
//! descriptions and statuses.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use local_hub::LocalHub;
use local_hub::ocm::Object;
use serde_json::{Value, json};

const GROUP: &str = "kueue.x-k8s.io";

/// The MultiKueueCluster of this name.
pub fn multi_kueue_cluster(name: &str) -> Object {
    Object::new((GROUP, "v1beta2", "MultiKueueCluster"), "multikueueclusters", None, name)
}

/// The MultiKueueConfig of this name.
pub fn multi_kueue_config(name: &str) -> Object {
    Object::new((GROUP, "v1beta2", "MultiKueueConfig"), "multikueueconfigs", None, name)
}

/// Installs the kinds as Kueue 0.19 does (`config/components/crd/bases`, of which the field tests use the files).
pub async fn install_kueue(hub: &LocalHub) {
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    let source = json!({
        "type": "object",
        "properties": {
            "clusterProfileRef": { "type": "object", "required": ["name"], "properties": { "name": name } },
            "kubeConfig": {
                "type": "object",
                "required": ["location"],
                "properties": {
                    "location": name,
                    "locationType": { "type": "string", "enum": ["Secret", "Path"], "default": "Secret" },
                },
            },
        },
        "x-kubernetes-validations": [{
            "message": "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
            "rule": "[has(self.kubeConfig),has(self.clusterProfileRef)].filter(x,x==true).size() == 1",
        }],
    });
    let clusters = json!({
        "type": "array",
        "items": { "type": "string", "maxLength": 256 },
        "minItems": 1,
        "maxItems": 20,
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": [{
            "message": "must be unique",
            "rule": "size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0",
        }],
    });
    let quotas = json!({ "type": "string", "enum": ["Manual", "Automated"] });
    for (kind, singular, required, properties) in [
        (
            "MultiKueueCluster",
            "multikueuecluster",
            "clusterSource",
            json!({ "clusterSource": source }),
        ),
        (
            "MultiKueueConfig",
            "multikueueconfig",
            "clusters",
            json!({ "clusters": clusters, "quotaManagement": quotas }),
        ),
    ] {
        hub.install_crd(&crd(kind, singular, required, &properties)).await.unwrap();
    }
}

fn crd(kind: &str, singular: &str, required: &str, properties: &Value) -> CustomResourceDefinition {
    let status = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": { "type": "object", "required": [required], "properties": properties }, "status": status,
        },
    });
    serde_json::from_value(json!({
        "metadata": { "name": format!("{singular}s.{GROUP}") },
        "spec": {
            "group": GROUP,
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular },
            "scope": "Cluster",
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema }, "subresources": { "status": {} },
            }],
        },
    }))
    .unwrap()
}
