//! Decoding that accepts everything that the API server accepts.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::core::error_boundary::InvalidObject;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An object that does not match the type of its kind, or nests too deep to decode.
#[derive(Debug)]
pub struct Unreadable {
    /// Its metadata as far as readable, at least the fields that identify the object.
    pub metadata: Box<ObjectMeta>,
    /// Its `spec`, if readable on its own.
    pub spec: Option<Value>,
    /// Why the rest is not readable.
    pub error: String,
}

impl From<InvalidObject> for Unreadable {
    fn from(object: InvalidObject) -> Self {
        Self { metadata: Box::new(object.metadata), spec: None, error: object.error }
    }
}

/// Makes an absent spec decode as its default.
///
/// OCM's schemas do not require `spec`, but the root object that `kube::CustomResource` derives does, and it takes no
/// serde attribute to change that. serde lets a type decode an absent field as an option would (`ByteString` and other
/// types of k8s-openapi use this), so the spec does the same. The field-by-field code stays derived:
/// `#[serde(remote = "Self")]` turns it into inherent methods, which the trait implementations here call.
macro_rules! default_when_absent {
    ($spec:ident) => {
        impl serde::Serialize for $spec {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $spec::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $spec {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Present($spec);

                impl<'de> serde::Deserialize<'de> for Present {
                    fn deserialize<D: serde::Deserializer<'de>>(
                        deserializer: D,
                    ) -> Result<Self, D::Error> {
                        $spec::deserialize(deserializer).map(Self)
                    }
                }

                let spec = Option::<Present>::deserialize(deserializer)?;
                Ok(spec.map_or_else(Self::default, |Present(spec)| spec))
            }
        }
    };
}

pub(crate) use default_when_absent;

/// The API server validates `format: byte` with a pattern that allows unused bits to be set in the last character of
/// the base64 (`AB==`). Go's decoder ignores these bits, the decoder of `ByteString` rejects them.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Reads an optional `format: byte` string.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ByteString>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| BASE64.decode(text).map(ByteString).map_err(D::Error::custom)).transpose()
}

/// Reads a value as JSON text. It fails where decoding a [`Value`] would fail.
pub(crate) fn text<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    let text = Option::<Box<RawValue>>::deserialize(deserializer)?;
    if let Some(text) = &text {
        serde_json::from_str::<Value>(text.get()).map_err(D::Error::custom)?;
    }
    Ok(text)
}

/// Reads conditions, and their times [to the second](to_the_second); an invalid time reads as the start of the epoch.
pub(crate) fn conditions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Condition>, D::Error> {
    Vec::<Value>::deserialize(deserializer)?
        .into_iter()
        .map(|mut condition| {
            if let Some(Value::String(text)) = condition.get_mut("lastTransitionTime") {
                *text = to_the_second(text).unwrap_or(Timestamp::UNIX_EPOCH).to_string();
            }
            Condition::deserialize(condition).map_err(D::Error::custom)
        })
        .collect()
}

/// A time, truncated to the second, if it is valid.
///
/// The API server accepts fractions of a second, and `Time` holds but never writes them: a copied time would always
/// differ from its source and be written again and again. The API server also accepts invalid times
/// (`9999-12-31T23:59:59Z`, which is beyond the last [`Timestamp`], or ten digits of a second). One agent that reports
/// such a time must not make the hub unreadable.
fn to_the_second(text: &str) -> Option<Timestamp> {
    let time: Timestamp = text.parse().ok()?;
    let time =
        Timestamp::from_second(time.as_second() - i64::from(time.subsec_nanosecond() < 0)).ok()?;
    // An offset can turn a time in year 0 into one in the year before, which RFC 3339 cannot express.
    let year_zero: Timestamp = "0000-01-01T00:00:00Z".parse().ok()?;
    (time >= year_zero).then_some(time)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_bytes(text: &str) -> Result<Option<ByteString>, serde_json::Error> {
        bytes(json!(text))
    }

    fn read_time(text: &str) -> String {
        to_the_second(text).unwrap().to_string()
    }

    #[test]
    fn bits_that_belong_to_no_byte_are_dropped() {
        for (text, expected) in [
            ("YWJj", "abc"),
            ("YWI=", "ab"),
            ("YWJ=", "ab"),
            ("YQ==", "a"),
            ("Yf==", "a"),
            ("", ""),
        ] {
            assert_eq!(read_bytes(text).unwrap().unwrap().0, expected.as_bytes(), "{text}");
        }
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for text in ["a", "=", "==", "é==", "YQ", "Y===", "Y Q=", "YQ==YQ=="] {
            assert!(read_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn absent_bytes_stay_absent() {
        assert_eq!(bytes(Value::Null).unwrap(), None);
    }

    #[test]
    fn text_is_read_if_it_parses_and_not_otherwise() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let read = |json: &str| {
            let parsed = serde_json::from_str::<Value>(json).is_ok();
            let text = text(&mut serde_json::Deserializer::from_str(json));
            assert_eq!(text.is_ok(), parsed, "{json}");
            text.is_ok_and(|text| text.is_some())
        };
        for json in [r#"{"a":[1,-1,1.5,true,null,"b"]}"#, "7", r#""""#, "[]", &nested(120)] {
            assert!(read(json), "{json}");
        }
        for json in
            ["null", &nested(150), &nested(100_000), "1e999", r#"{"a":"\ud800"}"#, "{", r#"{"a":}"#]
        {
            assert!(!read(json), "{json}");
        }
    }

    #[test]
    fn a_time_is_read_as_it_is_written() {
        assert_eq!(read_time("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05Z");
        assert_eq!(read_time("2026-01-02T03:04:05.999999+02:00"), "2026-01-02T01:04:05Z");
        assert_eq!(read_time("1969-12-31T23:59:59.5Z"), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn an_invalid_time_affects_no_other_field() {
        for text in [
            "9999-12-31T23:59:59Z",
            "2026-01-02T03:04:05.0123456789Z",
            "2026-01-02T03:04:05+99:99",
            "0000-01-01T00:00:00+23:59",
        ] {
            assert_eq!(to_the_second(text), None, "{text}");
            let condition =
                json!({ "type": "Joined", "status": "True", "lastTransitionTime": text });
            let read = conditions(json!([condition])).unwrap();
            assert_eq!((read[0].type_.as_str(), read[0].status.as_str()), ("Joined", "True"));
            assert_eq!(read[0].last_transition_time.0, Timestamp::UNIX_EPOCH);
        }
    }
}
