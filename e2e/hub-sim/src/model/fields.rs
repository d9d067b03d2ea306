//! `managedFields`: which field manager wrote what. The fields of a manager are a flat list here, by the path of each
//! value that is not an object; the real server keeps a tree.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The writer of a change.
pub(super) struct Writer<'a> {
    pub(super) manager: &'a str,
    pub(super) api_version: &'a str,
    pub(super) status: bool,
    pub(super) time: &'a str,
}

/// Metadata without an owner.
const UNOWNED: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// Records who wrote the difference between two states of an object.
pub(super) fn update(before: Option<&Value>, after: &mut Value, writer: &Writer<'_>) {
    let (mut old, mut new) = (BTreeSet::new(), BTreeSet::new());
    if let Some(before) = before {
        leaves(before, "", &mut |path, value| {
            old.insert((path, value.to_string()));
        });
    }
    leaves(after, "", &mut |path, value| {
        new.insert((path, value.to_string()));
    });
    let there: BTreeSet<&String> = new.iter().map(|(path, _)| path).collect();
    let changed: BTreeSet<String> = new.difference(&old).map(|(path, _)| path.clone()).collect();
    let mut entries: Vec<Value> = after["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    for entry in &mut entries {
        let is_writer = is_of(entry, writer);
        if let Some(fields) = entry["fieldsV1"].as_object_mut() {
            fields.retain(|path, _| there.contains(path) && (is_writer || !changed.contains(path)));
        }
    }
    if !changed.is_empty() {
        let mine: Map<String, Value> = changed.into_iter().map(|path| (path, json!({}))).collect();
        if let Some(entry) = entries.iter_mut().find(|entry| is_of(entry, writer)) {
            entry["time"] = writer.time.into();
            if let Some(fields) = entry["fieldsV1"].as_object_mut() {
                fields.extend(mine);
            }
        } else {
            let mut entry = json!({
                "manager": writer.manager, "operation": "Update", "apiVersion": writer.api_version,
                "time": writer.time, "fieldsType": "FieldsV1", "fieldsV1": mine,
            });
            if writer.status {
                entry["subresource"] = "status".into();
            }
            entries.push(entry);
        }
    }
    entries.retain(|entry| entry["fieldsV1"].as_object().is_some_and(|fields| !fields.is_empty()));
    if let Some(metadata) = after["metadata"].as_object_mut() {
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), entries.into());
        }
    }
}

fn is_of(entry: &Value, writer: &Writer<'_>) -> bool {
    entry["manager"] == writer.manager
        && entry["apiVersion"] == writer.api_version
        && (entry["subresource"] == "status") == writer.status
}

/// Visits every value that is not an object and has an owner.
fn leaves(value: &Value, path: &str, visit: &mut impl FnMut(String, &Value)) {
    match value {
        Value::Object(fields) => {
            let owned = fields.iter().filter(|(name, _)| match path {
                "" => !["apiVersion", "kind"].contains(&name.as_str()),
                ".metadata" => !UNOWNED.contains(&name.as_str()),
                _ => true,
            });
            for (name, value) in owned {
                leaves(value, &format!("{path}.{name}"), visit);
            }
            if fields.is_empty() && !path.is_empty() && path != ".metadata" {
                visit(path.to_owned(), value);
            }
        }
        value => visit(path.to_owned(), value),
    }
}
