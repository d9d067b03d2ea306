//! The feature gates of the program.

use std::str::FromStr;

use hub_runtime::gates::{self, Gate, GateError};

/// The gates that exist. The three of the first version are on unless switched off; later ones are off
/// unless switched on.
const GATES: [Gate; 3] = [
    Gate { name: profile_projector::GATE, default: true },
    Gate { name: "ClusterProfileAccessProvider", default: true },
    Gate { name: "ClusterProfileCredSyncer", default: true },
];

/// Which controllers run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGates {
    /// The profile projector.
    pub cluster_profile: bool,
}

impl FromStr for FeatureGates {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let on = gates::parse(text, &GATES)?;
        let on = |name| on.get(name).copied().unwrap_or(false);
        Ok(Self { cluster_profile: on(profile_projector::GATE) })
    }
}

impl FeatureGates {
    /// The controllers that run, by the names that logs and the Lease use.
    #[must_use]
    pub fn controllers(&self) -> Vec<&'static str> {
        let all = [(self.cluster_profile, "profile-projector")];
        all.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect()
    }
}
