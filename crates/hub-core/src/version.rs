//! The version of an object, which makes a write conditional on it.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, Serializer};
use uuid::Uuid;

/// The preconditions of a write: this object, unchanged since it was read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version {
    pub uid: Uid,
    pub resource_version: Box<str>,
}

/// The uid of an object. A UUID, as the API server assigns it, takes no memory beside it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    Uuid(Uuid),
    Other(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        // Another notation of a UUID is kept as it is.
        let written =
            |uuid: &Uuid| *uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == *text;
        let uuid = Uuid::try_parse(text).ok().filter(written);
        Self(uuid.map_or_else(|| Form::Other(text.into()), Form::Uuid))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Uuid(uuid) => uuid.fmt(f),
            Form::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Version {
    /// The version of the object with this metadata.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            resource_version: metadata.resource_version.clone().unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Uid;

    #[test]
    fn a_uid_stays_as_it_was_read() {
        let uuid = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        for text in
            [uuid, &uuid.to_uppercase(), &uuid.replace('-', ""), &uuid[1..], "", "u1", "+a-b"]
        {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert_ne!(Uid::from(uuid), Uid::from(""));
        assert_eq!(size_of::<Uid>(), 24);
    }
}
