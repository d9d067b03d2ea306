//! The claims that profiles show as properties.

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

/// The text is not a valid [`ClaimAllowList`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} has more than one asterisk")]
pub struct InvalidClaimPattern(String);

impl FromStr for ClaimAllowList {
    type Err = InvalidClaimPattern;

    /// Parses names, and patterns with one asterisk, separated by commas.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let patterns = text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        let valid = |pattern: &str| match pattern.matches('*').count() {
            0 | 1 => Ok(pattern.to_owned()),
            _ => Err(InvalidClaimPattern(pattern.to_owned())),
        };
        patterns.map(valid).collect::<Result<_, _>>().map(Self)
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
        assert!("a*,a*b*".parse::<ClaimAllowList>().is_err());
    }
}
