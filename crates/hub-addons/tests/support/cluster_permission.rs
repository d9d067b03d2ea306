//! ClusterPermission, which consumer access writes: with the fields and rules of its CRD, and without descriptions. Its roles
//! may have more fields, as in a later version.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use local_hub::LocalHub;
use local_hub::ocm::Object;
use serde_json::{Value, json};

const GROUP: &str = "rbac.open-cluster-management.io";
/// The name of the CRD.
pub const CRD: &str = "clusterpermissions.rbac.open-cluster-management.io";

/// The ClusterPermission with the permissions of an account.
pub fn cluster_permission(cluster: &str, account: &str) -> Object {
    let gvk = (GROUP, "v1alpha1", "ClusterPermission");
    Object::new(gvk, "clusterpermissions", Some(cluster), &format!("hub-addons-consumer-{account}"))
}

/// What cluster-permission reports about the bindings of view in the cluster and of edit in the namespace jobs.
pub fn applied(status: &str) -> Value {
    let condition = |kind: &str| {
        json!([{
            "type": kind, "status": status, "reason": "FromTheAgent",
            "message": "clusterroles \"view\" not found", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }])
    };
    let name = |role: &str| format!("hub-addons-permission:app:{role}");
    json!({
        "conditions": condition("AppliedRBACManifestWork"),
        "resourceStatus": {
            "clusterRoleBindings": [{ "name": name("view"), "condition": condition("Applied") }],
            "roleBindings": [{ "name": name("edit"), "namespace": "jobs", "condition": condition("Applied") }],
        },
    })
}

/// Installs the kind as cluster-permission does
/// (<https://github.com/open-cluster-management-io/cluster-permission/blob/main/api/v1alpha1/clusterpermission_types.go>).
pub async fn install_cluster_permission(hub: &LocalHub) {
    let fields = [
        "clusterRoleBinding",
        "clusterRoleBindings",
        "roleBindings",
        "clusterRole",
        "roles",
        "validate",
    ];
    hub.install_crd(&crd(&fields)).await.unwrap();
}

/// The same as in its first versions, which take one binding in the whole cluster.
pub async fn install_first_cluster_permission(hub: &LocalHub) {
    let fields = ["clusterRoleBinding", "roleBindings", "clusterRole", "roles"];
    hub.install_crd(&crd(&fields)).await.unwrap();
}

fn crd(fields: &[&str]) -> CustomResourceDefinition {
    let text = json!({ "type": "string" });
    let of_texts = |required: &[&str], names: &[&str]| {
        let properties: serde_json::Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), text.clone())).collect();
        json!({
            "type": "object", "required": required, "properties": properties,
            "x-kubernetes-map-type": "atomic",
        })
    };
    let subject = of_texts(&["kind", "name"], &["apiGroup", "kind", "name", "namespace"]);
    let mut role = of_texts(&["kind"], &["apiGroup", "kind", "name"]);
    role["x-kubernetes-preserve-unknown-fields"] = json!(true);
    let of_labels = json!({ "type": "object", "additionalProperties": text });
    let selector = json!({ "type": "object", "properties": { "matchLabels": of_labels } });
    let binding = |more: &[&str]| {
        let mut properties = json!({
            "name": text, "roleRef": role, "subject": subject,
            "subjects": { "type": "array", "items": subject },
        });
        for field in more {
            properties[field] =
                if *field == "namespaceSelector" { selector.clone() } else { text.clone() };
        }
        json!({ "type": "object", "properties": properties })
    };
    let list = |more: &[&str]| {
        json!({
            "type": "array", "items": binding(more),
            "x-kubernetes-validations": [{
                "message": "Either subject or subjects has to exist in every binding",
                "rule": "self.all(i, has(i.subject) || has(i.subjects))",
            }],
        })
    };
    let texts = json!({ "type": "array", "items": text });
    let permission = ["apiGroups", "resources", "resourceNames", "nonResourceURLs", "verbs"];
    let permission: serde_json::Map<_, _> =
        permission.iter().map(|name| ((*name).to_owned(), texts.clone())).collect();
    let rules = json!({ "type": "array", "items": { "type": "object", "properties": permission } });
    let mut spec = json!({
        "clusterRoleBinding": binding(&[]), "clusterRoleBindings": list(&[]),
        "roleBindings": list(&["namespace", "namespaceSelector"]),
        "clusterRole": {
            "type": "object", "properties": { "rules": rules }, "x-kubernetes-preserve-unknown-fields": true,
        },
        "roles": { "type": "array", "items": { "type": "object", "properties": {
            "namespace": text, "namespaceSelector": selector, "rules": rules,
        } } },
        "validate": { "type": "boolean" },
    });
    spec.as_object_mut().unwrap().retain(|name, _| fields.contains(&name.as_str()));
    let status = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let properties = json!({ "spec": { "type": "object", "properties": spec }, "status": status });
    serde_json::from_value(json!({
        "metadata": { "name": CRD },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": "ClusterPermission", "listKind": "ClusterPermissionList",
                "plural": "clusterpermissions", "singular": "clusterpermission",
            },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": properties } },
            }],
        },
    }))
    .unwrap()
}
