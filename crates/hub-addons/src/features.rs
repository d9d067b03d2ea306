//! The feature gates of the program: `--feature-gates=A=true,B=false`, as Kubernetes writes them.

use std::collections::BTreeMap;
use std::str::FromStr;

/// The known gates and their defaults: those of the first version are on, later ones off.
const GATES: [(&str, bool); 7] = [
    (profile_projector::GATE, true),
    (access_provisioner::GATE, true),
    (credential_syncer::GATE, true),
    (access_provisioner::DIRECT_GATE, false),
    (access_provisioner::OWN_IDENTITY_GATE, false),
    (credential_rights::GATE, false),
    (consumer_access::GATE, false),
];

/// The state of each gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl FromStr for FeatureGates {
    type Err = String;

    /// Gates that are not in the list have their default. The last occurrence of a gate takes precedence.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |why: String| {
            let known = GATES.map(|(name, default)| format!("{name} (default {default})"));
            format!("{why}; known gates: {}", known.join(", "))
        };
        let mut gates = BTreeMap::from(GATES);
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((name, value)) = entry.split_once('=') else {
                return Err(refused(format!("{entry:?} is not GATE=true or GATE=false")));
            };
            let (name, value) = (name.trim(), value.trim());
            let Some(state) = gates.get_mut(name) else {
                return Err(refused(format!("unknown feature gate {name:?}")));
            };
            let malformed = |_| refused(format!("feature gate {name} must be true or false, got {value:?}"));
            *state = value.parse().map_err(malformed)?;
        }
        Ok(Self(gates))
    }
}

impl FeatureGates {
    /// Whether a gate is on.
    pub fn is_on(&self, gate: &str) -> bool {
        self.0.get(gate).copied().unwrap_or(false)
    }

    /// Whether every gate is off.
    pub fn none_is_on(&self) -> bool {
        self.0.values().all(|is_on| !is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> FeatureGates {
        text.parse().unwrap()
    }

    #[test]
    fn an_empty_list_means_the_defaults() {
        assert_eq!(parse("").0, BTreeMap::from(GATES));
    }

    #[test]
    fn gates_are_switched_by_name() {
        let gates = parse("ClusterProfileConsumers=true, ClusterProfile=false");
        assert!(gates.is_on(consumer_access::GATE) && !gates.is_on(profile_projector::GATE));
        assert!(gates.is_on(access_provisioner::GATE) && !gates.is_on(credential_rights::GATE));
        assert!(parse("ClusterProfile=false,ClusterProfile=true").is_on(profile_projector::GATE));
    }

    #[test]
    fn a_mistake_is_an_error_that_lists_the_known_gates() {
        for bad in ["clusterprofile=true", "ClusterProfile", "ClusterProfile=yes", "ClusterProfile=", "=true"]
        {
            let error = bad.parse::<FeatureGates>().unwrap_err();
            assert!(error.contains("; known gates: ClusterProfile (default true), "), "{bad}: {error}");
        }
    }
}
