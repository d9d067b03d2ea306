//! Schemas of Kubernetes' own types as controller-gen writes them into upstream's CRDs: with the limits, patterns and
//! list types that k8s-openapi's schemas lack.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A rule in CEL, and the sentence that the author of an object reads if it does not hold.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

/// Bytes, as base64.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "byte" })
}

/// A list of `metav1.Condition`.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": {
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": { "type": "string", "format": "date-time" },
            "message": { "type": "string", "maxLength": 32768 },
            "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
            "reason": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
            "type": {
                "type": "string",
                "maxLength": 316,
                "pattern": concat!(
                    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
                    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                ),
            },
        },
    } })
}

/// `metav1.LabelSelector`.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string" },
                        "operator": { "type": "string" },
                        "values": {
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string" },
                        },
                    },
                },
            },
            "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } },
        },
    })
}

/// `metav1.LabelSelector`, and what makes one valid: but for the keys of `matchLabels`, whose check would cost too much.
pub(crate) fn valid_label_selector(_: &mut SchemaGenerator) -> Schema {
    const KEY: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?\
                       [A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
    const VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";
    let value =
        "A value of a selector must be a valid label value: letters, digits, '-', '_' and '.'.";
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "maxItems": 16,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "type": "string",
                            "maxLength": 317,
                            "x-kubernetes-validations": [rule(
                                &format!("self.matches('{KEY}') && self.indexOf('/') <= 253"),
                                "A key of a selector must be a valid label key, such as environment or example.com/tier.",
                            )],
                        },
                        "operator": { "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"] },
                        "values": {
                            "type": "array",
                            "maxItems": 64,
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string", "maxLength": 63 },
                            "x-kubernetes-validations": [
                                rule(&format!("self.all(value, value.matches('{VALUE}'))"), value),
                            ],
                        },
                    },
                    "x-kubernetes-validations": [rule(
                        "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                        "The operators In and NotIn need values; Exists and DoesNotExist have none.",
                    )],
                },
            },
            "matchLabels": {
                "type": "object",
                "maxProperties": 16,
                "additionalProperties": { "type": "string", "maxLength": 63 },
                "x-kubernetes-validations": [
                    rule(&format!("self.all(key, self[key].matches('{VALUE}'))"), value),
                ],
            },
        },
    })
}
