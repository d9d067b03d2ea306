//! The metadata of objects: the fields that a server sets, keeps and refuses.

use serde_json::{Map, Value};

use super::fields::UNOWNED;
use super::schema::Causes;

/// The name of an object.
pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The uid of an object.
pub(crate) fn uid_of(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The resourceVersion of an object.
pub(crate) fn version_of(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

/// Whether an object is being deleted.
pub(crate) fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether an object has finalizers.
pub(super) fn is_held(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// The fields that `metadata` can have, beside those without an owner.
const OWNED: [&str; 5] = ["generateName", "labels", "annotations", "ownerReferences", "finalizers"];

/// Brings metadata into the form in which they are stored.
pub(super) fn complete(object: &mut Value) {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    metadata.retain(|field, value| {
        UNOWNED.iter().chain(&OWNED).any(|known| known == field) && !is_empty(value)
    });
    for field in ["labels", "annotations"] {
        if let Some(Value::Object(map)) = metadata.get_mut(field) {
            // Go decodes null as an empty string, which is the default.
            map.values_mut().filter(|value| value.is_null()).for_each(|value| *value = "".into());
        }
    }
    for owner in
        metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten()
    {
        if let Some(owner) = owner.as_object_mut() {
            owner.retain(|_, value| !value.is_null());
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// The errors in the metadata of an object that replaces another.
pub(super) fn validate(object: &Value, before: Option<&Value>) -> Causes {
    let mut causes = Causes::new();
    let metadata = &object["metadata"];
    let mut wrong =
        |field: &str, why: &str| causes.push((format!("metadata.{field}"), why.to_owned()));
    let name = name_of(object);
    if name.is_empty() {
        wrong("name", "Required value: name or generateName is required");
    } else if before.is_none() && !object_names::is_dns_subdomain(name) {
        wrong("name", "Invalid value: a lowercase RFC 1123 subdomain is expected");
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        let valid = value.as_str().is_some_and(object_names::is_label_value);
        if !valid || !object_names::is_label_key(key) {
            wrong("labels", "Invalid value");
        }
    }
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                wrong(&format!("ownerReferences.{field}"), "Invalid value: must not be empty");
            }
        }
    }
    if let Some(before) = before {
        let added = |finalizer: &&Value| {
            !before["metadata"]["finalizers"]
                .as_array()
                .is_some_and(|list| list.contains(finalizer))
        };
        if is_terminating(before)
            && metadata["finalizers"].as_array().into_iter().flatten().any(|it| added(&it))
        {
            wrong(
                "finalizers",
                "Forbidden: no new finalizers can be added if the object is being deleted",
            );
        }
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "name", "namespace"] {
            if metadata[field] != before["metadata"][field] {
                wrong(field, "Invalid value: field is immutable");
            }
        }
    }
    causes
}
