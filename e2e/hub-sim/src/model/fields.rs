//! `managedFields`: which field manager wrote what. Lists have one owner here, as atomic lists have.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The writer of a change.
pub(super) struct Writer<'a> {
    pub(super) manager: &'a str,
    pub(super) api_version: &'a str,
    pub(super) status: bool,
    pub(super) time: &'a str,
}

/// Metadata without an owner.
pub(super) const UNOWNED: [&str; 10] = [
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

/// The path of a value that is not an object.
type Path = Vec<String>;

/// Records who wrote the difference between two states of an object.
pub(super) fn update(before: Option<&Value>, after: &mut Value, writer: &Writer<'_>) {
    let mut old = BTreeMap::new();
    if let Some(before) = before {
        leaves(before, &mut Vec::new(), &mut |path, value| {
            old.insert(path, value);
        });
    }
    let (mut there, mut changed) = (BTreeSet::new(), BTreeSet::new());
    leaves(after, &mut Vec::new(), &mut |path, value| {
        if old.get(&path) != Some(&value) {
            changed.insert(path.clone());
        }
        there.insert(path);
    });
    let mut entries: Vec<Value> =
        after["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    for entry in &mut entries {
        let is_writer = is_of(entry, writer);
        let mut owned = owned(&entry["fieldsV1"]);
        let count = owned.len();
        owned.retain(|path| there.contains(path) && (is_writer || !changed.contains(path)));
        if is_writer && !changed.is_empty() {
            owned.extend(changed.iter().cloned());
            entry["time"] = writer.time.into();
        } else if owned.len() == count {
            continue;
        }
        entry["fieldsV1"] = tree(&owned);
    }
    if !changed.is_empty() && !entries.iter().any(|entry| is_of(entry, writer)) {
        let mut entry = json!({
            "manager": writer.manager, "operation": "Update", "apiVersion": writer.api_version,
            "time": writer.time, "fieldsType": "FieldsV1", "fieldsV1": tree(&changed),
        });
        if writer.status {
            entry["subresource"] = "status".into();
        }
        entries.push(entry);
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

/// The tree of these paths, as `fieldsV1` has it.
fn tree(paths: &BTreeSet<Path>) -> Value {
    let mut tree = json!({});
    for path in paths {
        let mut node = &mut tree;
        for name in path {
            node = &mut node[format!("f:{name}")];
        }
        if node.is_null() {
            *node = json!({});
        }
    }
    tree
}

/// The paths in a tree.
fn owned(tree: &Value) -> BTreeSet<Path> {
    fn visit(node: &Value, path: &mut Path, found: &mut BTreeSet<Path>) {
        let fields = node.as_object().into_iter().flatten();
        let mut fields =
            fields.filter_map(|(key, child)| Some((key.strip_prefix("f:")?, child))).peekable();
        if fields.peek().is_none() && !path.is_empty() {
            found.insert(path.clone());
        }
        for (name, child) in fields {
            path.push(name.to_owned());
            visit(child, path, found);
            path.pop();
        }
    }
    let mut found = BTreeSet::new();
    visit(tree, &mut Vec::new(), &mut found);
    found
}

/// Visits every value that is not an object and has an owner.
fn leaves<'a>(value: &'a Value, path: &mut Path, visit: &mut impl FnMut(Path, &'a Value)) {
    let Value::Object(fields) = value else { return visit(path.clone(), value) };
    let is_metadata = path.len() == 1 && path[0] == "metadata";
    if fields.is_empty() && !path.is_empty() && !is_metadata {
        return visit(path.clone(), value);
    }
    for (name, value) in fields {
        let is_unowned = path.is_empty() && ["apiVersion", "kind"].contains(&name.as_str())
            || is_metadata && UNOWNED.contains(&name.as_str());
        if !is_unowned {
            path.push(name.clone());
            leaves(value, path, visit);
            path.pop();
        }
    }
}
