//! Decodes each object on its own, so that an object that does not decode affects no other.
//!
//! Besides fields that do not match the kind's type, `serde_json` rejects more than 128 levels of nesting, and every
//! writer of a field without a schema can store more. Parts that are skipped or kept as text have no such limit, so an
//! object's metadata is read even if the rest is not.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{PartialObjectMeta, PartialObjectMetaExt as _, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::Malformed;
use super::{ObjectKey, Unreadable};

/// The fields that identify an object, all strings.
const IDENTITY: [&str; 4] = ["namespace", "name", "uid", "resourceVersion"];

/// An object, decoded if possible.
pub(super) type Decoded<K> = (ObjectKey, Result<K, Unreadable>);

/// How one object is decoded.
pub(super) trait Decode<K>: Send + 'static {
    /// Decodes an object. Returns an error if the object cannot be identified.
    fn decode(&self, text: &[u8]) -> Result<Decoded<K>, Malformed>;
}

/// Decodes whole objects.
pub(super) struct Whole;

impl<K: Resource + DeserializeOwned> Decode<K> for Whole {
    fn decode(&self, text: &[u8]) -> Result<Decoded<K>, Malformed> {
        match serde_json::from_slice::<K>(text) {
            Ok(object) => Ok((ObjectKey::of(object.meta()), Ok(object))),
            Err(error) => {
                let parts = Parts::of(text)?;
                let (metadata, _) = parts.metadata()?;
                let unreadable =
                    Unreadable { metadata: Box::new(metadata), spec: parts.spec(), error: error.to_string() };
                Ok((ObjectKey::of(&unreadable.metadata), Err(unreadable)))
            }
        }
    }
}

/// Decodes metadata, without `managedFields`: they are most of it, and no caller reads them.
pub(super) struct Metadata;

impl<K> Decode<PartialObjectMeta<K>> for Metadata {
    fn decode(&self, text: &[u8]) -> Result<Decoded<PartialObjectMeta<K>>, Malformed> {
        let mut parts = Parts::of(text)?;
        parts.metadata.remove("managedFields");
        let (metadata, error) = parts.metadata()?;
        let key = ObjectKey::of(&metadata);
        let object = match error {
            None => Ok(metadata.into_response_partial()),
            Some(error) => Err(Unreadable { metadata: Box::new(metadata), spec: None, error }),
        };
        Ok((key, object))
    }
}

/// The resourceVersion of an object.
pub(super) fn version(text: &[u8]) -> Result<String, Malformed> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let object: Object =
        serde_json::from_slice(text).map_err(|_| Malformed::new("an object without a resourceVersion"))?;
    Ok(object.metadata.resource_version)
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
        serde_json::from_slice(text).map_err(|_| Malformed::new("an object without metadata"))
    }

    /// The metadata, and an error if it is incomplete.
    fn metadata(&self) -> Result<(ObjectMeta, Option<String>), Malformed> {
        let error = match read(self.metadata.iter()) {
            Ok(metadata) => return Ok((metadata, None)),
            Err(error) => error.to_string(),
        };
        // `managedFields` mirror the writers' objects, and nest as deep.
        if let Ok(metadata) = read(self.metadata.iter().filter(|(field, _)| *field != "managedFields")) {
            return Ok((metadata, Some(error)));
        }
        let identity = read(self.metadata.iter().filter(|(field, _)| IDENTITY.contains(&field.as_str())));
        let identity = identity.map_err(|_| Malformed::new("an object whose name is not a string"))?;
        Ok((identity, Some(error)))
    }

    fn spec(&self) -> Option<Value> {
        serde_json::from_str(self.spec.as_ref()?.get()).ok()
    }
}

/// Decodes metadata from these fields.
fn read<'a>(
    fields: impl Iterator<Item = (&'a String, &'a Box<RawValue>)>,
) -> Result<ObjectMeta, serde_json::Error> {
    let fields: BTreeMap<&String, &RawValue> = fields.map(|(field, value)| (field, &**value)).collect();
    serde_json::from_str(&serde_json::to_string(&fields)?)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DynamicObject;

    use super::*;

    fn deep(levels: usize) -> String {
        format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
    }

    fn decode<K: Resource + DeserializeOwned>(text: &str) -> (ObjectKey, Result<K, Unreadable>) {
        Whole.decode(text.as_bytes()).unwrap()
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
    fn managed_fields_that_nest_too_deep_hide_no_other_metadata() {
        let managed = format!(r#"[{{"manager":"m","fieldsV1":{}}}]"#, deep(150));
        let text = format!(
            r#"{{"metadata":{{"name":"a","uid":"u","labels":{{"l":"v"}},"managedFields":{managed}}}}}"#
        );
        let unreadable = decode::<ConfigMap>(&text).1.unwrap_err();
        assert_eq!(unreadable.metadata.labels.unwrap()["l"], "v");
        let (_, object): Decoded<PartialObjectMeta<ConfigMap>> = Metadata.decode(text.as_bytes()).unwrap();
        assert_eq!(object.unwrap().metadata.uid.as_deref(), Some("u"));
    }

    #[test]
    fn metadata_that_cannot_be_read_still_identifies_the_object() {
        let text =
            r#"{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7","labels":[7]}}"#;
        let (key, object) = decode::<ConfigMap>(text);
        let metadata = object.unwrap_err().metadata;
        assert_eq!((&*key.namespace, &*key.name), ("ns", "a"));
        assert_eq!((metadata.uid.as_deref(), metadata.resource_version.as_deref()), (Some("u"), Some("7")));
        let (key, object): Decoded<PartialObjectMeta<ConfigMap>> = Metadata.decode(text.as_bytes()).unwrap();
        assert_eq!((&*key.name, object.is_err()), ("a", true));
    }

    #[test]
    fn what_is_not_an_object_is_an_error_that_does_not_quote_it() {
        for text in [r#"{"data":"secret"}"#, r#"["secret"]"#, r#"{"metadata":"secret"}"#, "secret"] {
            let error = Decode::<ConfigMap>::decode(&Whole, text.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
