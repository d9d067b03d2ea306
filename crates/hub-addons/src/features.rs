//! The feature gates of the program.

use std::collections::BTreeMap;
use std::str::FromStr;

use hub_runtime::host::feature_gates::{self, FeatureGate, GateError};

/// The known gates. Those of the first version are on by default, later ones off.
const GATES: [FeatureGate; 7] = [
    FeatureGate { name: profile_projector::GATE, default: true },
    FeatureGate { name: access_provisioner::GATE, default: true },
    FeatureGate { name: credential_syncer::GATE, default: true },
    FeatureGate { name: access_provisioner::DIRECT_GATE, default: false },
    FeatureGate { name: access_provisioner::OWN_IDENTITY_GATE, default: false },
    FeatureGate { name: credential_rights::GATE, default: false },
    FeatureGate { name: consumer_access::GATE, default: false },
];

/// The state of each gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl FromStr for FeatureGates {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        feature_gates::parse(text, &GATES).map(Self)
    }
}

impl FeatureGates {
    /// Whether a gate is on.
    #[must_use]
    pub fn is_on(&self, gate: &str) -> bool {
        self.0.get(gate).copied().unwrap_or(false)
    }

    /// Whether every gate is off.
    #[must_use]
    pub fn none_is_on(&self) -> bool {
        self.0.values().all(|is_on| !is_on)
    }
}
