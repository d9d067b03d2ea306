//! The feature gates of the program: `--feature-gates=A=true,B=false`, as Kubernetes writes them.

use std::collections::BTreeMap;
use std::str::FromStr;

/// The known gates, their defaults, and the Leases of their controllers. The gates of the first version are on, later
/// ones off.
const GATES: [(&str, bool, &str); 7] = [
    (profile_projector::GATE, true, "hub-addons-profile-projector"),
    (access_provisioner::GATE, true, "hub-addons-access-provisioner"),
    (credential_syncer::GATE, true, "hub-addons-credential-syncer"),
    (access_provisioner::DIRECT_GATE, false, "hub-addons-direct-access"),
    (access_provisioner::OWN_IDENTITY_GATE, false, "hub-addons-own-identity-provisioner"),
    (credential_rights::GATE, false, "hub-addons-credential-rights"),
    (consumer_access::GATE, false, "hub-addons-consumer-access"),
];

/// The state of each gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl FromStr for FeatureGates {
    type Err = String;

    /// Gates that are not in the list have their default. The last occurrence of a gate takes precedence.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |why: String| {
            let known = GATES.map(|(name, default, _)| format!("{name} (default {default})"));
            format!("{why}; known gates: {}", known.join(", "))
        };
        let mut gates = BTreeMap::from(GATES.map(|(name, default, _)| (name, default)));
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((name, value)) = entry.split_once('=') else {
                return Err(refused(format!("{entry:?} is not GATE=true or GATE=false")));
            };
            let (name, value) = (name.trim(), value.trim());
            let Some(state) = gates.get_mut(name) else {
                return Err(refused(format!("unknown feature gate {name:?}")));
            };
            let malformed =
                |_| refused(format!("feature gate {name} must be true or false, got {value:?}"));
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

    /// The name of the Lease of a process with these gates: that of the syncer, which credential rights watch, or of the
    /// first gate.
    pub fn lease(&self) -> &'static str {
        let on = GATES.iter().filter(|(name, ..)| self.is_on(name));
        let first = on.min_by_key(|(name, ..)| *name != credential_syncer::GATE);
        first.map_or("hub-addons", |(_, _, lease)| lease)
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
        assert_eq!(parse("").0, BTreeMap::from(GATES.map(|(name, default, _)| (name, default))));
    }

    #[test]
    fn gates_are_switched_by_name() {
        let gates = parse("ClusterProfileConsumers=true, ClusterProfile=false");
        assert!(gates.is_on(consumer_access::GATE) && !gates.is_on(profile_projector::GATE));
        assert!(gates.is_on(access_provisioner::GATE) && !gates.is_on(credential_rights::GATE));
        assert!(parse("ClusterProfile=false,ClusterProfile=true").is_on(profile_projector::GATE));
    }

    #[test]
    fn processes_with_other_gates_have_other_leases() {
        assert_eq!(parse("").lease(), "hub-addons-credential-syncer");
        assert_eq!(parse("ClusterProfileCredSyncer=false").lease(), "hub-addons-profile-projector");
        let provisioner = parse("ClusterProfileCredSyncer=false,ClusterProfile=false");
        assert_eq!(provisioner.lease(), "hub-addons-access-provisioner");
    }

    #[test]
    fn a_mistake_is_an_error_that_lists_the_known_gates() {
        for bad in [
            "clusterprofile=true",
            "ClusterProfile",
            "ClusterProfile=yes",
            "ClusterProfile=",
            "=true",
        ] {
            let error = bad.parse::<FeatureGates>().unwrap_err();
            assert!(
                error.contains("; known gates: ClusterProfile (default true), "),
                "{bad}: {error}"
            );
        }
    }
}
