//! The output for programs is what `docs/reference.md` lists.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::page::{quoted, rows};

/// Every field of a value, as `items[].name`, with the types that it has.
fn fields(value: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(items) => {
            for item in items {
                fields(item, &format!("{path}[]"), found);
            }
            "array"
        }
        Value::Object(map) => {
            for (name, field) in map {
                let dot = if path.is_empty() { "" } else { "." };
                fields(field, &format!("{path}{dot}{name}"), found);
            }
            "object"
        }
    };
    found.entry(path.to_owned()).or_default().insert(kind);
}

/// The output has every field that the page lists below the heading and does not call optional, no others, and of the
/// listed types.
pub fn is_documented(heading: &str, output: &Value) {
    let mut found = BTreeMap::new();
    fields(output, "", &mut found);
    // Objects and the items of arrays are listed by their fields.
    found.retain(|path, kinds| {
        !path.is_empty() && !path.ends_with("[]") && !kinds.contains("object")
    });
    let mut listed = BTreeSet::new();
    for row in rows(heading) {
        let (path, types) = (quoted(&row[0]).remove(0), &row[1]);
        match found.get(&path) {
            Some(kinds) => {
                assert!(
                    kinds.iter().all(|kind| types.contains(kind)),
                    "{heading}: {path} is {kinds:?}, not {types}"
                );
            }
            None => {
                assert!(types.contains("optional"), "{heading}: {path} is missing in {output:#}");
            }
        }
        listed.insert(path);
    }
    let missing: Vec<_> = found.keys().filter(|path| !listed.contains(*path)).collect();
    assert!(missing.is_empty(), "{heading}: {missing:?} are not listed: {output:#}");
}
