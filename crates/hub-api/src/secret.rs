//! `Secret` as a type that cannot leak its data: neither `Debug` nor decoding errors contain a byte of it, and its
//! bytes are wiped when they are dropped.
//!
//! k8s-openapi's type prints its data, and its errors may quote what they cannot decode.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::TypeMeta;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// The type of Secrets with tokens of ManagedServiceAccounts, and of their copies.
pub const TYPE_OPAQUE: &str = "Opaque";

/// A Secret.
#[derive(Clone, Default, PartialEq, Resource, Deserialize, Serialize)]
#[resource(inherit = k8s_openapi::api::core::v1::Secret)]
#[serde(default)]
pub struct Secret {
    /// The kind and API version; absent in lists.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub types: Option<TypeMeta>,
    /// The metadata. Its annotations may contain the data: `kubectl apply` copies the object there.
    pub metadata: ObjectMeta,
    /// The type; the API server defaults it to `Opaque`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<BTreeMap<String, SecretBytes>>,
}

impl Secret {
    /// A Secret of type [`TYPE_OPAQUE`] to create.
    #[must_use]
    pub fn opaque(
        metadata: ObjectMeta,
        data: impl IntoIterator<Item = (String, SecretBytes)>,
    ) -> Self {
        Self {
            types: Some(TypeMeta::resource::<Self>()),
            metadata,
            type_: Some(TYPE_OPAQUE.to_owned()),
            immutable: None,
            data: Some(data.into_iter().collect()),
        }
    }

    /// The data, by key.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &SecretBytes)> {
        self.data.iter().flatten().map(|(key, bytes)| (key.as_str(), bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespace, name) = (&self.metadata.namespace, &self.metadata.name);
        f.debug_struct("Secret")
            .field("namespace", namespace)
            .field("name", name)
            .finish_non_exhaustive()
    }
}

/// Bytes that must not be printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// The bytes, to compare or to write them.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for SecretBytes {
    fn from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

impl Serialize for SecretBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(STANDARD.encode(self.expose())))
    }
}

impl<'de> Deserialize<'de> for SecretBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        let bytes = STANDARD.decode(&*text);
        // The decoder's own error quotes the byte that it rejects.
        bytes
            .map(|bytes| Self(Zeroizing::new(bytes)))
            .map_err(|_| D::Error::custom("invalid base64"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret() -> Secret {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": "a", "namespace": "b", "annotations": { "last-applied": "c2VjcmV0" } },
            "data": { "token": "c2VjcmV0" },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_is_read_is_written_back() {
        let written = serde_json::to_value(secret()).unwrap();
        assert_eq!(written["data"], json!({ "token": "c2VjcmV0" }));
        assert_eq!((&written["kind"], &written["type"]), (&json!("Secret"), &json!("Opaque")));
        assert_eq!(
            secret().entries().map(|(_, bytes)| bytes.expose().to_vec()).next().unwrap(),
            b"secret"
        );
    }

    #[test]
    fn debug_shows_nothing_of_what_is_in_it() {
        let shown = format!("{:?} {:?}", secret(), secret().data);
        for hidden in ["c2VjcmV0", "secret", "115"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }

    #[test]
    fn an_error_shows_nothing_of_what_it_met() {
        for bad in [json!("sEcReT!"), json!({ "sEcReT": 1 }), json!(["sEcReT"])] {
            let error = serde_json::from_value::<SecretBytes>(bad).unwrap_err().to_string();
            assert!(!error.contains("sEcReT") && !error.contains("33"), "{error}");
        }
    }
}
