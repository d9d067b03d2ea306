//! The feature gates of the program.

use std::str::FromStr;

use hub_runtime::gates::{self, Gate, GateError};

/// The gates that exist. The three of the first version are on unless switched off; later ones are off
/// unless switched on.
const GATES: [Gate; 4] = [
    Gate { name: profile_projector::GATE, default: true },
    Gate { name: access_provisioner::GATE, default: true },
    Gate { name: CRED_SYNCER, default: true },
    Gate { name: access_provisioner::DIRECT_GATE, default: false },
];

/// The gate of the credential syncer, which this version does not have yet. It is known so that the flags of a
/// deployment need not change when it comes.
const CRED_SYNCER: &str = "ClusterProfileCredSyncer";

/// Which controllers run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGates {
    /// The profile projector.
    pub cluster_profile: bool,
    /// The access-provider provisioner.
    pub access_provider: bool,
    /// Direct access providers.
    pub direct_access_provider: bool,
    /// The credential syncer, which this version does not have yet.
    pub cred_syncer: bool,
}

impl FromStr for FeatureGates {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let on = gates::parse(text, &GATES)?;
        let on = |name| on.get(name).copied().unwrap_or(false);
        Ok(Self {
            cluster_profile: on(profile_projector::GATE),
            access_provider: on(access_provisioner::GATE),
            direct_access_provider: on(access_provisioner::DIRECT_GATE),
            cred_syncer: on(CRED_SYNCER),
        })
    }
}

impl FeatureGates {
    /// The controllers that run, by the names that logs and the Lease use.
    #[must_use]
    pub fn controllers(&self) -> Vec<&'static str> {
        let all = [
            (self.cluster_profile, "profile-projector"),
            (self.access_provider, "access-provisioner"),
            (self.direct_access_provider, "direct-access"),
        ];
        all.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect()
    }
}
