//! Compares two CRDs path by path. The order of keys, of `required` and of `enum` does not count, nor do descriptions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The differences of two values.
pub(crate) fn equal(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    walk(&without_descriptions(ours), &without_descriptions(theirs), "", &mut differences);
    differences
}

/// A SHA-256 of everything that [`equal`] compares, in hexadecimal: the same for two values without differences.
pub(crate) fn digest(value: &Value) -> String {
    let mut text = String::new();
    canonical(&without_descriptions(value), &mut text);
    let mut hex = String::new();
    for byte in Sha256::digest(text) {
        write!(hex, "{byte:02x}").unwrap();
    }
    hex
}

/// JSON with the keys in order and every number as a float, which compares `0` and `0.0` as equal.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().collect();
            text.push('{');
            for (key, value) in fields {
                write!(text, "{key:?}:").unwrap();
                canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(list) => {
            text.push('[');
            for value in list {
                canonical(value, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Number(number) => write!(text, "{:?}", number.as_f64()).unwrap(),
        Value::String(_) | Value::Bool(_) | Value::Null => text.push_str(&value.to_string()),
    }
}

fn walk(ours: &Value, theirs: &Value, path: &str, differences: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (key, value) in ours {
                match theirs.get(key) {
                    Some(other) => walk(value, other, &format!("{path}.{key}"), differences),
                    None => differences.push(format!("{path}.{key}: only ours, {value}")),
                }
            }
            for (key, value) in theirs.iter().filter(|(key, _)| !ours.contains_key(*key)) {
                differences.push(format!("{path}.{key}: only upstream's, {value}"));
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (value, other)) in ours.iter().zip(theirs).enumerate() {
                walk(value, other, &format!("{path}[{index}]"), differences);
            }
        }
        // 0 and 0.0 are the same limit.
        _ if ours == theirs || (ours.is_number() && ours.as_f64() == theirs.as_f64()) => {}
        _ => differences.push(format!("{path}: {ours} instead of {theirs}")),
    }
}

/// The value without descriptions, and with lists sorted whose order is irrelevant.
fn without_descriptions(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            // A property can be named `description`; its schema is an object.
            .filter(|(key, value)| !(*key == "description" && value.is_string()))
            .map(|(key, value)| match (key.as_str(), value) {
                ("required" | "enum", Value::Array(list)) => (key.clone(), sorted(list)),
                _ => (key.clone(), without_descriptions(value)),
            })
            .collect(),
        Value::Array(list) => list.iter().map(without_descriptions).collect(),
        _ => value.clone(),
    }
}

fn sorted(list: &[Value]) -> Value {
    let mut list = list.to_vec();
    list.sort_by_key(Value::to_string);
    list.into()
}

/// Where our schema, which declares only a part of upstream's, differs in that part, requires more, or would prune the
/// rest.
pub(crate) fn subset(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    descend(ours, theirs, "schema", &mut differences);
    differences
}

/// Keywords that contain schemas or list fields; all others must be identical.
const STRUCTURE: [&str; 5] = [
    "properties",
    "items",
    "additionalProperties",
    "required",
    "x-kubernetes-preserve-unknown-fields",
];

fn descend(ours: &Value, theirs: &Value, path: &str, differences: &mut Vec<String>) {
    let keywords = |schema: &Value| -> Value {
        let mut keywords = schema.as_object().cloned().unwrap_or_default();
        keywords.retain(|keyword, _| !STRUCTURE.contains(&keyword.as_str()));
        without_descriptions(&keywords.into())
    };
    walk(&keywords(ours), &keywords(theirs), path, differences);

    for field in ours["required"].as_array().into_iter().flatten() {
        if !theirs["required"].as_array().is_some_and(|required| required.contains(field)) {
            differences.push(format!("{path}: requires {field}, which upstream does not"));
        }
    }
    for keyword in ["items", "additionalProperties"] {
        match (&ours[keyword], &theirs[keyword]) {
            (Value::Null, Value::Null) => {}
            (Value::Object(_), Value::Object(_)) => {
                descend(
                    &ours[keyword],
                    &theirs[keyword],
                    &format!("{path}.{keyword}"),
                    differences,
                );
            }
            (ours, theirs) => differences.push(format!("{path}.{keyword}: {ours} not {theirs}")),
        }
    }

    let none = Map::new();
    let our_fields = ours["properties"].as_object().unwrap_or(&none);
    let their_fields = theirs["properties"].as_object().unwrap_or(&none);
    for (name, field) in our_fields {
        match their_fields.get(name) {
            Some(upstream) => descend(field, upstream, &format!("{path}.{name}"), differences),
            None => differences.push(format!("{path}.{name}: upstream has no such field")),
        }
    }
    let complete = their_fields.keys().all(|name| our_fields.contains_key(name));
    let keeps_unknown = ours["x-kubernetes-preserve-unknown-fields"] == true;
    if complete == keeps_unknown {
        differences
            .push(format!("{path}: complete: {complete}, keeps unknown fields: {keeps_unknown}"));
    }
}
