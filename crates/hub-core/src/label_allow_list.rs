//! The labels that are copied from a ManagedCluster to its profiles.

use std::collections::BTreeSet;
use std::str::FromStr;

use hub_api::labels;
use hub_api::names::is_label_key;

/// The label keys that are copied from a ManagedCluster to its profiles. Labels with these keys are owned on the
/// profile: a label that the cluster loses is removed from the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelAllowList {
    keys: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

impl LabelAllowList {
    /// Whether labels with this key are copied. The labels that the project itself sets never are.
    #[must_use]
    pub fn allows(&self, key: &str) -> bool {
        !matches!(
            key,
            labels::CLUSTER_MANAGER
                | labels::CLUSTER_NAME
                | labels::CLUSTER_SET
                | labels::MEMBER_ID
        ) && (self.keys.contains(key) || self.prefixes.iter().any(|prefix| key.starts_with(prefix)))
    }
}

/// The text is not a valid [`LabelAllowList`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is neither a label key nor the prefix of label keys with a slash and an asterisk, as in example.com/*"
)]
pub struct InvalidLabelPattern(String);

impl FromStr for LabelAllowList {
    type Err = InvalidLabelPattern;

    /// Parses keys and `prefix/*` patterns, separated by commas.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut list = Self::default();
        for pattern in text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty()) {
            match pattern.strip_suffix('*') {
                Some(prefix) if prefix.ends_with('/') && is_label_key(&format!("{prefix}x")) => {
                    list.prefixes.insert(prefix.to_owned())
                }
                None if is_label_key(pattern) => list.keys.insert(pattern.to_owned()),
                _ => return Err(InvalidLabelPattern(pattern.to_owned())),
            };
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::LabelAllowList;

    #[test]
    fn an_allow_list_that_cannot_match_labels_is_refused() {
        for bad in ["a b", "*", "example.com*", "example.com/a*", "/x"] {
            assert!(bad.parse::<LabelAllowList>().is_err(), "{bad:?}");
        }
    }
}
