//! Structural schemas: the fields of a custom object that an API server drops, defaults and refuses.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

/// An error in an object: the path of the field and the reason.
pub type Causes = Vec<(String, String)>;

/// A structural schema, limited to the features that the CRDs of a hub use.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a keyword of the language")]
pub struct Schema {
    type_: Option<String>,
    int_or_string: bool,
    nullable: bool,
    preserve: bool,
    properties: BTreeMap<String, Schema>,
    additional: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    default: Option<Value>,
    enumeration: Option<Vec<Value>>,
    lengths: (Option<u64>, Option<u64>),
    sizes: (Option<u64>, Option<u64>),
    bounds: (Option<f64>, Option<f64>),
    pattern: Option<Regex>,
    format: Option<String>,
    /// The keys of a list that is a map; empty for a set.
    list_keys: Option<Vec<String>>,
    immutable: bool,
}

impl Schema {
    /// Reads a schema from the JSON of a CRD; `None` if it is not a valid schema.
    pub(crate) fn read(schema: &Value) -> Option<Self> {
        let object = schema.as_object()?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        let strings = |key: &str| {
            let list = object.get(key).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let number = |key: &str| object.get(key).and_then(Value::as_u64);
        let is = |key: &str| object.get(key) == Some(&Value::Bool(true));
        let child = |key: &str| object.get(key).and_then(Self::read).map(Box::new);
        let rules = object.get("x-kubernetes-validations").and_then(Value::as_array);
        let properties = object.get("properties").and_then(Value::as_object).into_iter().flatten();
        Some(Self {
            type_: text("type"),
            int_or_string: is("x-kubernetes-int-or-string"),
            nullable: is("nullable"),
            preserve: is("x-kubernetes-preserve-unknown-fields"),
            properties: properties
                .filter_map(|(name, schema)| Some((name.clone(), Self::read(schema)?)))
                .collect(),
            additional: child("additionalProperties"),
            items: child("items"),
            required: strings("required"),
            default: object.get("default").cloned(),
            enumeration: object.get("enum").and_then(Value::as_array).cloned(),
            lengths: (number("minLength"), number("maxLength")),
            sizes: (number("minItems"), number("maxItems")),
            bounds: (
                object.get("minimum").and_then(Value::as_f64),
                object.get("maximum").and_then(Value::as_f64),
            ),
            pattern: text("pattern").and_then(|pattern| Regex::new(&pattern).ok()),
            format: text("format"),
            list_keys: match text("x-kubernetes-list-type").as_deref() {
                Some("map") => Some(strings("x-kubernetes-list-map-keys")),
                Some("set") => Some(Vec::new()),
                _ => None,
            },
            immutable: rules.into_iter().flatten().any(|rule| rule["rule"] == "self == oldSelf"),
        })
    }

    /// Brings an object into the form in which it is stored: drops unknown fields and forbidden nulls, and sets
    /// defaults.
    pub fn complete(&self, object: &mut Value) {
        let Value::Object(fields) = object else { return };
        self.complete_fields(fields, &["apiVersion", "kind", "metadata"]);
    }

    fn complete_fields(&self, fields: &mut Map<String, Value>, kept: &[&str]) {
        for (name, schema) in &self.properties {
            let drop_null = |value: &Value| value.is_null() && !schema.nullable;
            if fields.get(name).is_some_and(drop_null) {
                fields.remove(name);
            }
            if let (None, Some(default)) = (fields.get(name), &schema.default) {
                fields.insert(name.clone(), default.clone());
            }
        }
        if let Some(additional) = &self.additional {
            fields.retain(|_, value| !value.is_null() || additional.nullable);
        } else if !self.preserve {
            fields.retain(|name, _| {
                kept.contains(&name.as_str()) || self.properties.contains_key(name)
            });
        }
        for (name, value) in fields.iter_mut().filter(|(name, _)| !kept.contains(&name.as_str())) {
            if let Some(schema) = self.properties.get(name).or(self.additional.as_deref()) {
                schema.complete_value(value);
            }
        }
    }

    fn complete_value(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => self.complete_fields(fields, &[]),
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    for item in list {
                        items.complete_value(item);
                    }
                }
            }
            _ => {}
        }
    }

    /// The errors in an object that replaces another.
    pub(crate) fn validate(&self, object: &Value, before: Option<&Value>) -> Causes {
        let mut causes = Vec::new();
        let Value::Object(fields) = object else { return causes };
        for name in self.required.iter().filter(|name| !fields.contains_key(*name)) {
            causes.push((name.clone(), "Required value".to_owned()));
        }
        for (name, value) in fields {
            if let Some(schema) = self.properties.get(name).filter(|_| name != "metadata") {
                schema.check(value, before.and_then(|before| before.get(name)), name, &mut causes);
            }
        }
        causes
    }

    fn check(&self, value: &Value, before: Option<&Value>, path: &str, causes: &mut Causes) {
        let mut wrong = |why: String| causes.push((path.to_owned(), why));
        if value.is_null() && self.nullable {
            return;
        }
        if !self.has_type(value) {
            return wrong(format!(
                "Invalid value: must be of type {}",
                self.type_.as_deref().unwrap_or("?")
            ));
        }
        if let Some(allowed) = self.enumeration.as_ref().filter(|allowed| !allowed.contains(value))
        {
            wrong(format!("Unsupported value: {value}: supported values: {allowed:?}"));
        }
        if self.immutable && before.is_some_and(|before| before != value) {
            wrong("Invalid value: field is immutable".to_owned());
        }
        match value {
            Value::String(text) => self.check_text(text, &mut wrong),
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or_default();
                if self.bounds.0.is_some_and(|least| number < least)
                    || self.bounds.1.is_some_and(|most| number > most)
                {
                    wrong("Invalid value: out of bounds".to_owned());
                }
            }
            Value::Array(list) => self.check_list(list, path, causes),
            Value::Object(fields) => {
                for name in self.required.iter().filter(|name| !fields.contains_key(*name)) {
                    causes.push((format!("{path}.{name}"), "Required value".to_owned()));
                }
                for (name, value) in fields {
                    if let Some(schema) = self.properties.get(name).or(self.additional.as_deref()) {
                        let before = before.and_then(|before| before.get(name));
                        schema.check(value, before, &format!("{path}.{name}"), causes);
                    }
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn check_text(&self, text: &str, wrong: &mut impl FnMut(String)) {
        let length = text.chars().count() as u64;
        if self.lengths.0.is_some_and(|least| length < least) {
            wrong("Invalid value: should be longer".to_owned());
        }
        if self.lengths.1.is_some_and(|most| length > most) {
            wrong("Too long".to_owned());
        }
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
            wrong("Invalid value: does not match the pattern".to_owned());
        }
        if self.format.as_deref() == Some("date-time") && text.parse::<jiff::Timestamp>().is_err() {
            wrong("Invalid value: must be of type date-time".to_owned());
        }
    }

    fn check_list(&self, list: &[Value], path: &str, causes: &mut Causes) {
        let size = list.len() as u64;
        if self.sizes.0.is_some_and(|least| size < least) {
            causes.push((path.to_owned(), "Invalid value: too few items".to_owned()));
        }
        if self.sizes.1.is_some_and(|most| size > most) {
            causes.push((path.to_owned(), "Too many".to_owned()));
        }
        if let Some(keys) = &self.list_keys {
            let key = |item: &Value| match &keys[..] {
                [] => item.clone(),
                keys => keys.iter().map(|key| item.get(key).cloned().unwrap_or_default()).collect(),
            };
            let all: Vec<Value> = list.iter().map(key).collect();
            let twice = all.iter().enumerate().filter(|(index, key)| all[..*index].contains(key));
            for (index, key) in twice {
                causes.push((format!("{path}[{index}]"), format!("Duplicate value: {key}")));
            }
        }
        if let Some(items) = &self.items {
            for (index, item) in list.iter().enumerate() {
                items.check(item, None, &format!("{path}[{index}]"), causes);
            }
        }
    }

    fn has_type(&self, value: &Value) -> bool {
        if self.int_or_string {
            return value.is_i64() || value.is_u64() || value.is_string();
        }
        match self.type_.as_deref() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("number") => value.is_number(),
            Some("boolean") => value.is_boolean(),
            _ => true,
        }
    }
}
