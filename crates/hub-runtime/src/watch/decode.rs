//! Decodes each object on its own, so that an object that does not decode affects no other.
//!
//! Besides fields that do not match the kind's type, `serde_json` rejects more than 128 levels of nesting, and every
//! writer of a field without a schema can store more. Parts that are skipped have no such limit, so an object's
//! metadata is read even if the rest is not.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    FieldsV1, ManagedFieldsEntry, ObjectMeta, Time,
};
use kube::core::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error::Malformed;
use super::items::Envelope;
use super::{ObjectKey, Unreadable};

/// The fields that identify an object, all strings.
const IDENTITY: [&str; 4] = ["namespace", "name", "uid", "resourceVersion"];

/// An object, decoded if possible.
pub(super) type Decoded<K> = (ObjectKey, Result<K, Unreadable>);

/// Decodes an object. Returns an error if the object cannot be identified.
pub(super) type Decode<K> = fn(&[u8]) -> Result<Decoded<K>, Malformed>;

/// Decodes a whole object, or what was requested of it, without `managedFields`.
pub(super) fn whole<K: Resource + DeserializeOwned>(text: &[u8]) -> Result<Decoded<K>, Malformed> {
    decode(text, false)
}

/// Decodes a whole object.
pub(super) fn whole_with_managed_fields<K: Resource + DeserializeOwned>(
    text: &[u8],
) -> Result<Decoded<K>, Malformed> {
    decode(text, true)
}

fn decode<K: Resource + DeserializeOwned>(
    text: &[u8],
    managed_fields: bool,
) -> Result<Decoded<K>, Malformed> {
    match object::<K>(text, managed_fields) {
        Ok(object) => Ok((ObjectKey::of(object.meta()), Ok(object))),
        Err(error) => {
            let parts = Parts::of(text)?;
            let unreadable = Unreadable {
                metadata: Box::new(parts.metadata()?),
                spec: parts.spec(),
                error: error.to_string(),
            };
            Ok((ObjectKey::of(&unreadable.metadata), Err(unreadable)))
        }
    }
}

/// `managed_fields` decides whether these are decoded, apart from those of the status. They are two fifths of the text
/// of a profile, and most of the memory of its decoded metadata.
pub(super) fn object<K: Resource + DeserializeOwned>(
    text: &[u8],
    managed_fields: bool,
) -> serde_json::Result<K> {
    let range = managed_fields_of(text);
    let mut object: K = serde_json::from_slice(&without(range.clone(), text))?;
    if managed_fields {
        object.meta_mut().managed_fields = range.and_then(|at| entries(&text[at]));
    }
    Ok(object)
}

/// Where the value of `managedFields` is in the text of an object.
fn managed_fields_of(text: &[u8]) -> Option<Range<usize>> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow)]
        managed_fields: Option<&'a RawValue>,
    }
    let object: Object<'_> = serde_json::from_slice(text).ok()?;
    let value = object.metadata.managed_fields?.get();
    let start = value.as_ptr().addr() - text.as_ptr().addr();
    Some(start..start + value.len())
}

/// The text with `null` in place of a value.
fn without(value: Option<Range<usize>>, text: &[u8]) -> Cow<'_, [u8]> {
    match value {
        Some(at) => Cow::Owned([&text[..at.start], b"null", &text[at.end..]].concat()),
        None => Cow::Borrowed(text),
    }
}

/// The entries of `managedFields` without the fields of the status, or nothing if they cannot be read.
fn entries(text: &[u8]) -> Option<Vec<ManagedFieldsEntry>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry<'a> {
        manager: Option<String>,
        time: Option<Time>,
        #[serde(borrow)]
        fields_v1: Option<BTreeMap<String, &'a RawValue>>,
    }
    let entry = |entry: Entry<'_>| {
        let mut fields = Map::new();
        for (field, value) in entry.fields_v1.unwrap_or_default() {
            if field != "f:status" {
                fields.insert(field, serde_json::from_str(value.get()).ok()?);
            }
        }
        let fields_v1 = Some(FieldsV1(fields.into()));
        Some(ManagedFieldsEntry {
            manager: entry.manager,
            time: entry.time,
            fields_v1,
            ..Default::default()
        })
    };
    serde_json::from_slice::<Vec<Entry<'_>>>(text).ok()?.into_iter().map(entry).collect()
}

/// The key of an object.
pub(super) fn key(text: &[u8]) -> Result<ObjectKey, Malformed> {
    Ok(ObjectKey::of(&Parts::of(text)?.metadata()?))
}

/// The resourceVersion of an object.
pub(super) fn version(text: &[u8]) -> Result<String, Malformed> {
    let object = serde_json::from_slice::<Envelope>(text).ok();
    let version = object.and_then(|object| object.metadata.resource_version);
    version.ok_or_else(|| Malformed("an object without a resourceVersion".to_owned()))
}

/// The parts of an object that can be read even if the rest cannot.
#[derive(Deserialize)]
struct Parts {
    metadata: BTreeMap<String, Box<RawValue>>,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
}

impl Parts {
    fn of(text: &[u8]) -> Result<Self, Malformed> {
        // Without the decoder's error, which may quote a Secret.
        serde_json::from_slice(text).map_err(|_| Malformed("an object without metadata".to_owned()))
    }

    /// The metadata, as far as it can be read.
    fn metadata(&self) -> Result<ObjectMeta, Malformed> {
        let fields = || self.metadata.iter();
        read(fields())
            // `managedFields` mirror the objects that clients write, and nest as deeply.
            .or_else(|_| read(fields().filter(|(field, _)| *field != "managedFields")))
            .or_else(|_| read(fields().filter(|(field, _)| IDENTITY.contains(&field.as_str()))))
            .map_err(|_| Malformed("an object whose name is not a string".to_owned()))
    }

    fn spec(&self) -> Option<Value> {
        serde_json::from_str(self.spec.as_ref()?.get()).ok()
    }
}

/// Decodes metadata from these fields.
fn read<'a>(
    fields: impl Iterator<Item = (&'a String, &'a Box<RawValue>)>,
) -> Result<ObjectMeta, serde_json::Error> {
    let fields: BTreeMap<&String, &RawValue> =
        fields.map(|(field, value)| (field, &**value)).collect();
    serde_json::from_str(&serde_json::to_string(&fields)?)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{DynamicObject, PartialObjectMeta};

    use super::*;

    fn deep(levels: usize) -> String {
        format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
    }

    fn decode<K: Resource + DeserializeOwned>(text: &str) -> (ObjectKey, Result<K, Unreadable>) {
        whole::<K>(text.as_bytes()).unwrap()
    }

    #[test]
    fn nesting_makes_one_object_unreadable_and_costs_no_stack() {
        for levels in [150, 100_000] {
            let text = format!(
                r#"{{"metadata":{{"name":"a","namespace":"ns","labels":{{"l":"v"}}}},"spec":{{"s":1}},"status":{}}}"#,
                deep(levels)
            );
            let (key, object) = decode::<DynamicObject>(&text);
            assert_eq!((&*key.namespace, &*key.name), ("ns", "a"));
            let unreadable = object.unwrap_err();
            assert_eq!(unreadable.metadata.labels.unwrap()["l"], "v");
            assert_eq!(unreadable.spec.unwrap()["s"], 1);
        }
    }

    #[test]
    fn nesting_that_the_kind_does_not_have_is_skipped() {
        let text = format!(r#"{{"metadata":{{"name":"a"}},"status":{}}}"#, deep(100_000));
        assert!(decode::<ConfigMap>(&text).1.is_ok());
    }

    #[test]
    fn managed_fields_are_decoded_on_request_without_those_of_the_status() {
        let status = deep(150);
        let text = format!(
            r#"{{"metadata":{{"managedFields":[{{"manager":"m","operation":"Update","time":"2026-05-01T12:00:00Z",
            "fieldsV1":{{"f:metadata":{{"f:labels":{{}}}},"f:status":{status}}}}}],"name":"a"}}}}"#
        );
        let (_, dropped) = decode::<ConfigMap>(&text);
        let dropped = dropped.unwrap().metadata;
        assert_eq!((dropped.name.as_deref(), dropped.managed_fields), (Some("a"), None));
        let asked = whole_with_managed_fields::<ConfigMap>(text.as_bytes()).unwrap();
        let entry = asked.1.unwrap().metadata.managed_fields.unwrap().remove(0);
        assert_eq!((entry.manager.as_deref(), entry.time.is_some()), (Some("m"), true));
        assert_eq!(
            entry.fields_v1.unwrap().0,
            serde_json::json!({ "f:metadata": { "f:labels": {} } })
        );
    }

    #[test]
    fn managed_fields_that_nest_too_deep_hide_nothing_else() {
        let managed = format!(r#"[{{"manager":"m","fieldsV1":{{"f:metadata":{}}}}}]"#, deep(150));
        let text = format!(
            r#"{{"metadata":{{"name":"a","uid":"u","labels":{{"l":"v"}},"managedFields":{managed}}}}}"#
        );
        for decode in [whole::<ConfigMap>, whole_with_managed_fields::<ConfigMap>] {
            let (_, object) = decode(text.as_bytes()).unwrap();
            let metadata = object.unwrap().metadata;
            assert_eq!((&*metadata.labels.unwrap()["l"], metadata.managed_fields), ("v", None));
        }
        let (_, object) = decode::<PartialObjectMeta<ConfigMap>>(&text);
        assert_eq!(object.unwrap().metadata.uid.as_deref(), Some("u"));
    }

    #[test]
    fn metadata_that_cannot_be_read_still_identifies_the_object() {
        let text = r#"{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7","labels":[7]}}"#;
        let (key, object) = decode::<ConfigMap>(text);
        let metadata = object.unwrap_err().metadata;
        assert_eq!((&*key.namespace, &*key.name), ("ns", "a"));
        assert_eq!(
            (metadata.uid.as_deref(), metadata.resource_version.as_deref()),
            (Some("u"), Some("7"))
        );
        let (key, object) = decode::<PartialObjectMeta<ConfigMap>>(text);
        assert_eq!((&*key.name, object.is_err()), ("a", true));
    }

    #[test]
    fn what_is_not_an_object_is_an_error_that_does_not_quote_it() {
        for text in [r#"{"data":"secret"}"#, r#"["secret"]"#, r#"{"metadata":"secret"}"#, "secret"]
        {
            let error = whole::<ConfigMap>(text.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
