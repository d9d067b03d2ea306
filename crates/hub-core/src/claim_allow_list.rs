//! The claims that profiles show as properties.

use std::convert::Infallible;
use std::str::FromStr;

/// The names of the claims that profiles show; every claim if it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimAllowList(Vec<String>);

impl ClaimAllowList {
    /// Whether profiles show the claim of this name.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        let matches = |pattern: &String| match pattern.split_once('*') {
            Some((prefix, suffix)) => {
                name.strip_prefix(prefix).is_some_and(|rest| rest.ends_with(suffix))
            }
            None => name == pattern,
        };
        self.0.is_empty() || self.0.iter().any(matches)
    }
}

impl FromStr for ClaimAllowList {
    type Err = Infallible;

    /// Parses names, and patterns with one asterisk, separated by commas.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let patterns = text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        Ok(Self(patterns.map(str::to_owned).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_shown_if_its_name_matches_or_the_list_is_empty() {
        for (list, name, is_shown) in [
            ("", "any", true),
            (" , ", "any", true),
            ("id.k8s.io", "id.k8s.io", true),
            ("id.k8s.io", "id.k8s.io.example", false),
            ("id.k8s.io, *.example.com", "zone.example.com", true),
            ("*.example.com", "example.com", false),
            ("gpu-*", "gpu-count", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(
                list.parse::<ClaimAllowList>().unwrap().allows(name),
                is_shown,
                "{list:?} {name}"
            );
        }
    }
}
