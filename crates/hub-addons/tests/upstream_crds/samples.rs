//! Objects that a schema allows, generated from the schema: with no, some and all optional fields, and with the unusual
//! values that the API server accepts.

use serde_json::{Map, Value, json};

/// How to make a sample.
#[derive(Clone, Copy)]
struct Shape {
    /// With every optional field, or with none.
    optional: bool,
    /// With unknown fields in every object.
    unknown: bool,
    /// Which of the possible values to use; each value takes it modulo its own list.
    variant: usize,
}

/// The name of an unknown field.
const UNKNOWN: &str = "fieldOfALaterVersion";

/// How many variants are needed to reach every possible value inside a list; see [`list`].
const VARIANTS: usize = 12;

/// Samples that cover the schema: the smallest object, the smallest spec and status, all fields in each variant of
/// their values, the same with unknown fields, and for each optional field everything but that field.
pub(crate) fn of(schema: &Value) -> Vec<Value> {
    let mut samples = vec![
        sample(schema, Shape { optional: false, unknown: false, variant: 0 }),
        sample(schema, Shape { optional: false, unknown: true, variant: 0 }),
    ];
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for part in ["spec", "status"] {
        let mut with_least_part = samples[0].clone();
        if !required.contains(&json!(part)) {
            let least = Shape { optional: false, unknown: false, variant: 0 };
            with_least_part[part] = sample(&schema["properties"][part], least);
        }
        samples.push(with_least_part);
    }
    for variant in 0..VARIANTS {
        samples.push(sample(schema, Shape { optional: true, unknown: false, variant }));
        samples.push(sample(schema, Shape { optional: true, unknown: true, variant }));
    }
    let mut optional = Vec::new();
    optional_fields(schema, String::new(), &mut optional);
    for pointer in optional {
        let mut without = complete(schema);
        remove(&mut without, &pointer);
        samples.push(without);
    }
    samples
}

/// The sample with every field that the schema declares, each with an ordinary value.
pub(crate) fn complete(schema: &Value) -> Value {
    sample(schema, Shape { optional: true, unknown: false, variant: 0 })
}

fn sample(schema: &Value, shape: Shape) -> Value {
    if schema["nullable"] == true && shape.variant % 2 == 1 {
        return Value::Null;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return nth(&[json!(1), json!("1")], shape.variant);
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, shape),
        Some("array") => list(schema, shape),
        Some("string") => string(schema, shape.variant),
        Some("boolean") => json!(shape.variant.is_multiple_of(2)),
        Some("integer") if schema["format"] == "int32" => {
            nth(&[json!(1), json!(0), json!(i32::MAX)], shape.variant)
        }
        Some("integer") => nth(&[json!(1), json!(0), json!(i64::MAX)], shape.variant),
        other => panic!("no sample for the type {other:?}"),
    }
}

fn object(schema: &Value, shape: Shape) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut object: Map<String, Value> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| shape.optional || required.contains(&json!(name)))
        .map(|(name, field)| (name.clone(), sample(field, shape)))
        .collect();
    if schema["additionalProperties"].is_object() && shape.optional {
        object.insert("a".into(), sample(&schema["additionalProperties"], shape));
    } else if shape.unknown {
        object.insert(UNKNOWN.into(), json!({ "a": [1, null] }));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        object.insert("clusterName".into(), json!("a"));
    }
    object.into()
}

/// One entry in even variants, none in odd ones: the keys of a map list stay unique.
fn list(schema: &Value, shape: Shape) -> Value {
    let entries = 1 - shape.variant % 2;
    // Odd variants of what is inside are reached through the even ones of the list.
    let inside = Shape { variant: shape.variant / 2, ..shape };
    vec![sample(&schema["items"], inside); entries].into()
}

fn string(schema: &Value, variant: usize) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return nth(values, variant);
    }
    match schema["format"].as_str() {
        Some("date-time") => {
            // Other languages write fractions and offsets; the last two only pass the API server's pattern.
            let times = [
                "2026-01-02T03:04:05Z",
                "2026-01-02T03:04:05.678901+02:00",
                "2026-01-02t03:04:05z",
                "9999-12-31T23:59:59Z",
                "2026-01-02T03:04:05.0123456789Z",
            ];
            return nth(&times.map(Value::from), variant);
        }
        Some("byte") => return nth(&["YWJj", "AB==", "AAB="].map(Value::from), variant),
        Some(other) => panic!("no sample for the format {other}"),
        None => {}
    }
    // The shortest allowed text: letters match every pattern in the schemas whose patterns are checked.
    let shortest =
        schema["minLength"].as_u64().map_or(1, |shortest| usize::try_from(shortest).unwrap());
    let mut values = vec![json!("a".repeat(shortest))];
    if schema["minLength"].is_null() && schema["pattern"].is_null() {
        values.push(json!(""));
    }
    if let Some(longest) = schema["maxLength"].as_u64() {
        values.push(json!("a".repeat(usize::try_from(longest).unwrap())));
    }
    nth(&values, variant)
}

fn nth(values: &[Value], variant: usize) -> Value {
    values[variant % values.len()].clone()
}

/// JSON pointers to the optional fields, through the first entry of each list.
fn optional_fields(schema: &Value, pointer: String, found: &mut Vec<String>) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let inside = format!("{pointer}/{name}");
        if !required.contains(&json!(name)) {
            found.push(inside.clone());
        }
        optional_fields(field, inside, found);
    }
    if schema["items"].is_object() {
        optional_fields(&schema["items"], pointer + "/0", found);
    }
}

fn remove(object: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').expect("a JSON pointer");
    let parent = object.pointer_mut(parent).and_then(Value::as_object_mut);
    parent
        .and_then(|parent| parent.remove(name))
        .unwrap_or_else(|| panic!("no {pointer} to remove"));
}
