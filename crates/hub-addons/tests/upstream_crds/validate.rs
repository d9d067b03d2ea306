//! Validates an object as the API server does, as far as these schemas go: types, required and unknown fields, enums,
//! lengths, formats. Patterns are left to the API server.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

/// The faults of an object that this project writes. Beyond the schema: nothing is null and no list is empty.
pub(crate) fn faults(object: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Check { ours: true, faults: &mut faults }.value(object, schema, "");
    faults
}

/// The faults of an object of any writer.
pub(crate) fn faults_as_sent(object: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Check { ours: false, faults: &mut faults }.value(object, schema, "");
    faults
}

struct Check<'a> {
    ours: bool,
    faults: &'a mut Vec<String>,
}

impl Check<'_> {
    fn fault(&mut self, path: &str, fault: &str) {
        self.faults.push(format!("{path}: {fault}"));
    }

    fn value(&mut self, value: &Value, schema: &Value, path: &str) {
        let any_type = schema["x-kubernetes-int-or-string"] == true;
        match (value, schema["type"].as_str()) {
            (Value::Null, _) if schema["nullable"] == true && !self.ours => {}
            (Value::Object(_), Some("object")) => self.object(value, schema, path),
            (Value::Array(entries), Some("array")) => {
                if entries.is_empty() && self.ours {
                    self.fault(path, "an empty list");
                }
                for (index, entry) in entries.iter().enumerate() {
                    self.value(entry, &schema["items"], &format!("{path}[{index}]"));
                }
            }
            (Value::String(text), Some("string")) => self.string(text, schema, path),
            (Value::Bool(_), Some("boolean")) => {}
            (Value::Number(number), Some("integer")) if number.is_i64() => {}
            (Value::Number(_) | Value::String(_), None) if any_type => {}
            (value, type_) => self.fault(path, &format!("{value} is not of type {type_:?}")),
        }
    }

    fn object(&mut self, value: &Value, schema: &Value, path: &str) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if value.get(name).is_none() {
                self.fault(path, &format!("{name} is missing"));
            }
        }
        // The API server validates metadata with its own schema.
        let open = schema["x-kubernetes-preserve-unknown-fields"] == true || path == ".metadata";
        for (name, field) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, Value::Null) if open => {}
                (Value::Null, Value::Null) => self.fault(&path, "an unknown field"),
                (Value::Null, every) => self.value(field, every, &path),
                (declared, _) => self.value(field, declared, &path),
            }
        }
    }

    fn string(&mut self, text: &str, schema: &Value, path: &str) {
        let length = u64::try_from(text.chars().count()).unwrap();
        if schema["minLength"].as_u64().is_some_and(|least| length < least) {
            self.fault(path, "too short");
        }
        if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
            self.fault(path, "too long");
        }
        if schema["enum"].as_array().is_some_and(|values| !values.iter().any(|value| value == text)) {
            self.fault(path, &format!("{text} is not one of {}", schema["enum"]));
        }
        match schema["format"].as_str() {
            Some("byte") if self.ours && serde_json::from_value::<ByteString>(text.into()).is_err() => {
                self.fault(path, "not base64");
            }
            Some("date-time") if self.ours && serde_json::from_value::<Time>(text.into()).is_err() => {
                self.fault(path, "not a time");
            }
            _ => {}
        }
    }
}
