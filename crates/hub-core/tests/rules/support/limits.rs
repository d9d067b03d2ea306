//! What the API server says to a ClusterProfile that we write: the limits of every version of every live CRD,
//! and beyond them that nothing is null and no text or list is empty.

use std::sync::LazyLock;

use hub_api::crds::{Flavour, cluster_profile};
use hub_api::names::{is_label_key, is_label_value};
use serde_json::Value;

/// The schemas of every flavour's versions.
static SCHEMAS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let crds = Flavour::ALL
        .map(|flavour| serde_saphyr::from_str::<Value>(cluster_profile(flavour)).unwrap());
    let versions = crds.iter().flat_map(|crd| crd["spec"]["versions"].as_array().unwrap());
    versions.map(|version| version["schema"]["openAPIV3Schema"].clone()).collect()
});

/// What is wrong with a ClusterProfile, in every flavour.
pub fn faults(profile: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for (key, value) in profile["metadata"]["labels"].as_object().into_iter().flatten() {
        if !is_label_key(key) || !value.as_str().is_some_and(is_label_value) {
            faults.push(format!("label {key}: {value}"));
        }
    }
    for schema in SCHEMAS.iter() {
        check(profile, schema, "", &mut faults);
    }
    faults
}

/// Whether there is a null, an empty text or an empty list anywhere below, but for the message of a
/// condition, which is required and may say nothing, and the value of a label.
pub fn emptiness(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    look_for_emptiness(value, "", &mut found);
    found
}

fn look_for_emptiness(value: &Value, path: &str, found: &mut Vec<String>) {
    let may_be_empty = path.ends_with(".message") || path.contains(".labels.");
    match value {
        Value::Null => found.push(format!("{path} is null")),
        Value::String(text) if text.is_empty() && !may_be_empty => {
            found.push(format!("{path} is empty"));
        }
        Value::Array(list) if list.is_empty() => found.push(format!("{path} is an empty list")),
        Value::Array(list) => list.iter().for_each(|value| look_for_emptiness(value, path, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                look_for_emptiness(value, &format!("{path}.{name}"), found);
            }
        }
        _ => {}
    }
}

fn check(value: &Value, schema: &Value, path: &str, faults: &mut Vec<String>) {
    match (value, schema["type"].as_str()) {
        (Value::Object(fields), Some("object")) => {
            for name in list(&schema["required"]).iter().filter_map(Value::as_str) {
                if !fields.contains_key(name) {
                    faults.push(format!("{path}.{name} is missing"));
                }
            }
            for (name, field) in fields {
                let path = format!("{path}.{name}");
                match schema["properties"].get(name) {
                    // The API server validates metadata with its own schema.
                    Some(_) if path == ".metadata" => {}
                    Some(schema) => check(field, schema, &path, faults),
                    None if schema["x-kubernetes-preserve-unknown-fields"] == true => {}
                    None => faults.push(format!("{path} is unknown")),
                }
            }
        }
        (Value::Array(entries), Some("array")) => {
            let keys = list(&schema["x-kubernetes-list-map-keys"]);
            for (index, entry) in entries.iter().enumerate() {
                check(entry, &schema["items"], path, faults);
                let is_same =
                    |other: &Value| keys.iter().all(|key| other[text(key)] == entry[text(key)]);
                if !keys.is_empty() && entries[..index].iter().any(is_same) {
                    faults.push(format!("{path} has an entry twice: {entry}"));
                }
            }
        }
        (Value::String(text), Some("string")) => check_text(text, schema, path, faults),
        (Value::Bool(_), Some("boolean")) | (Value::Number(_), Some("integer")) => {}
        (value, type_) => faults.push(format!("{path} is {value} and not of type {type_:?}")),
    }
}

fn check_text(text: &str, schema: &Value, path: &str, faults: &mut Vec<String>) {
    let length = u64::try_from(text.chars().count()).unwrap();
    let too_short = schema["minLength"].as_u64().is_some_and(|least| length < least);
    let too_long = schema["maxLength"].as_u64().is_some_and(|most| length > most);
    let not_listed = !schema["enum"].is_null() && !list(&schema["enum"]).contains(&text.into());
    let not_a_reason =
        path.ends_with(".reason") && !schema["pattern"].is_null() && !is_reason(text);
    let not_a_time = schema["format"] == "date-time" && !is_time(text);
    for (fault, what) in [
        (too_short, "too short"),
        (too_long, "too long"),
        (not_listed, "not in the list"),
        (not_a_reason, "not a reason"),
        (not_a_time, "not a time"),
    ] {
        if fault {
            faults
                .push(format!("{path} is {what}: {:?}", text.chars().take(80).collect::<String>()));
        }
    }
}

/// `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`, spelt out.
fn is_reason(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(word)
        && text.chars().all(|c| word(c) || c == ',' || c == ':')
}

/// RFC 3339, whose years have four digits.
fn is_time(text: &str) -> bool {
    text.find('-') == Some(4) && text.parse::<jiff::Timestamp>().is_ok()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
