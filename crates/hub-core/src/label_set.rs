//! The labels of an observed object.

use std::collections::BTreeMap;

use hub_api::text::Text;

/// The labels of an observed object. Keys and values share their memory ([`Text`]), since thousands of objects repeat
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSet(Box<[(Text, Text)]>);

impl LabelSet {
    /// The value of a label, possibly empty.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Every label, in order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl From<&BTreeMap<String, String>> for LabelSet {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        Self(labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect())
    }
}
