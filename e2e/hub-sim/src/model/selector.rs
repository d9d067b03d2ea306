//! The selectors of lists and watches.

use serde_json::Value;

/// A label selector and a field selector. The default selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    name: Option<String>,
    namespace: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    Is(String, String),
    IsNot(String, String),
}

impl Selector {
    /// Reads the query parameters `labelSelector` and `fieldSelector`. Supports equality-based requirements on labels,
    /// and the fields name and namespace; any other requirement is an error that quotes it.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, String> {
        let mut selector = Self::default();
        for part in labels.split(',').filter(|part| !part.is_empty()) {
            let requirement = if let Some((key, value)) = part.split_once("!=") {
                Requirement::IsNot(key.to_owned(), value.to_owned())
            } else if let Some((key, value)) = part.split_once('=') {
                Requirement::Is(key.to_owned(), value.trim_start_matches('=').to_owned())
            } else if let Some(key) = part.strip_prefix('!') {
                Requirement::Absent(key.to_owned())
            } else if part.contains(' ') {
                return Err(format!("unable to parse requirement: {part}"));
            } else {
                Requirement::Exists(part.to_owned())
            };
            selector.labels.push(requirement);
        }
        for part in fields.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("metadata.name", name)) => selector.name = Some(name.to_owned()),
                Some(("metadata.namespace", name)) => selector.namespace = Some(name.to_owned()),
                _ => return Err(format!("field label not supported: {part}")),
            }
        }
        Ok(selector)
    }

    /// Whether the selector matches an object.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let label = |key: &str| metadata["labels"].get(key).and_then(Value::as_str);
        self.name.as_ref().is_none_or(|name| metadata["name"] == name.as_str())
            && self.namespace.as_ref().is_none_or(|name| metadata["namespace"] == name.as_str())
            && self.labels.iter().all(|requirement| match requirement {
                Requirement::Exists(key) => label(key).is_some(),
                Requirement::Absent(key) => label(key).is_none(),
                Requirement::Is(key, value) => label(key) == Some(value),
                Requirement::IsNot(key, value) => label(key) != Some(value),
            })
    }
}
