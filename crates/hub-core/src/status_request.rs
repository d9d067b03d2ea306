//! The request that changes a status without losing data of other owners.
//!
//! A patch replaces lists as a whole, including the entries of other owners. In a merge patch, the API server drops
//! null fields from the entries of lists (its library prunes them), and an extension of an access provider, which has
//! no schema, can contain nulls. A JSON patch keeps them. It is used only if a list in the patch contains a null: a
//! merge patch names only the fields that differ, and every API server and every policy handles merge patches.

use serde_json::{Value, json};

use crate::version::Version;

/// The body of a request that changes the status of exactly one version of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum StatusRequest {
    /// A merge patch.
    Merge(Value),
    /// A JSON patch.
    Json(Value),
}

/// The request for a merge patch `{"status": {...}}` whose fields are values, objects without nested nulls, or null for
/// fields that exist.
#[must_use]
pub fn status_request(version: &Version, mut patch: Value) -> StatusRequest {
    let fields = || patch["status"].as_object().into_iter().flatten();
    if !fields().any(|(_, value)| value.as_array().is_some_and(|list| list.iter().any(has_null))) {
        patch["metadata"] =
            json!({ "uid": version.uid, "resourceVersion": version.resource_version });
        return StatusRequest::Merge(patch);
    }
    // Not `test`, whose failure the API server does not return as a conflict.
    let replace = |field: &str, value: &str| json!({ "op": "replace", "path": format!("/metadata/{field}"), "value": value });
    let preconditions = [
        replace("uid", &version.uid.to_string()),
        replace("resourceVersion", &version.resource_version),
    ];
    let changes = fields().map(|(field, value)| {
        let at = format!("/status/{field}");
        if value.is_null() {
            json!({ "op": "remove", "path": at })
        } else {
            json!({ "op": "add", "path": at, "value": value })
        }
    });
    StatusRequest::Json(preconditions.into_iter().chain(changes).collect())
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(patch: Value) -> StatusRequest {
        let version = Version { uid: "u1".into(), resource_version: "7".into() };
        status_request(&version, patch)
    }

    #[test]
    fn what_holds_no_null_in_a_list_is_a_merge_patch() {
        for status in [
            json!({ "conditions": null }),
            json!({ "properties": [{ "name": "a", "value": "b" }] }),
        ] {
            let metadata = json!({ "uid": "u1", "resourceVersion": "7" });
            let whole = json!({ "metadata": metadata, "status": status });
            assert_eq!(request(json!({ "status": status })), StatusRequest::Merge(whole));
        }
    }

    #[test]
    fn a_null_in_an_entry_of_a_list_makes_a_json_patch_of_the_same_change() {
        let entries = json!([{ "name": "theirs", "cluster": { "extensions": [{ "extension": { "a": [null] } }] } }]);
        let status = json!({ "accessProviders": entries, "conditions": null, "version": { "kubernetes": "v1" } });
        assert_eq!(
            request(json!({ "status": status })),
            StatusRequest::Json(json!([
                { "op": "replace", "path": "/metadata/uid", "value": "u1" },
                { "op": "replace", "path": "/metadata/resourceVersion", "value": "7" },
                { "op": "add", "path": "/status/accessProviders", "value": entries },
                { "op": "remove", "path": "/status/conditions" },
                { "op": "add", "path": "/status/version", "value": { "kubernetes": "v1" } },
            ]))
        );
    }
}
