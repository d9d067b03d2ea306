//! The labels of an observed object.

use std::collections::BTreeMap;

use hub_api::text::Text;

/// The labels of an observed object as lines `key=value`: neither contains a line end, and no key an equals sign. The
/// text is shared, since the profiles of a cluster have the same labels in every namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSet(Text);

impl LabelSet {
    /// The value of a label, possibly empty.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Every label, in order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.split_once('='))
    }
}

impl From<&BTreeMap<String, String>> for LabelSet {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        Self(
            labels
                .iter()
                .flat_map(|(key, value)| [key, "=", value, "\n"])
                .collect::<String>()
                .into(),
        )
    }
}
