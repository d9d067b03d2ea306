//! Random operations. Setting a hub up is more likely than taking it down.

use fastrand::Rng;

use super::{Operation, ProfileTenant, SecretTenant};
use crate::world::Fault;

impl Operation {
    /// which is known makes fail: see [`SecretTenant`].
    #[must_use]
    pub fn random(rng: &mut Rng, faults: bool, known: bool) -> Self {
        let cluster = rng.u8(..3);
        let (set, namespace, account) = (rng.u8(..2), rng.u8(..2), rng.u8(..2));
        match rng.u8(..if faults { 118 } else { 94 }) {
            0..6 => Self::CreateCluster(cluster),
            6..8 => Self::LeaveCluster(cluster),
            8..10 => Self::RemoveCluster(cluster),
            10..16 => Self::MoveCluster(cluster, (rng.u8(..4) > 0).then_some(set)),
            16..18 => Self::LabelCluster(cluster, rng.bool()),
            18..21 => Self::Health(cluster, rng.u8(..)),
            21..23 => Self::CreateSet(set),
            23 => Self::DeleteSet(set),
            24..27 => Self::Select(set, rng.u8(..12)),
            27..31 => Self::Bind(namespace, set),
            31..33 => Self::Unbind(namespace, set),
            33..35 => Self::Bound(namespace, set, rng.u8(..3) > 0),
            35 => Self::EndNamespace(namespace),
            36..38 => Self::CreateNamespace(namespace),
            38..40 => Self::Configure((rng.u8(..4) > 0).then(|| rng.u8(..2))),
            40..42 => Self::Addon(cluster, rng.u8(..3) > 0),
            42..45 => Self::Serve(rng.u8(..2), (rng.u8(..5) > 0).then(|| rng.u8(..))),
            45..50 => Self::CreateAccount(cluster, account),
            50..52 => Self::DeleteAccount(cluster, account),
            52..54 => Self::Ask(cluster, account, rng.u8(..3) > 0),
            54..56 => Self::Scope(cluster, account, rng.u8(..)),
            56..63 => Self::Report(cluster, account, rng.u8(..)),
            63..65 => Self::Unreport(cluster, account),
            65..73 => Self::Profile(namespace, cluster, ProfileTenant::random(rng)),
            73..80 => Self::Secret(namespace, cluster, account, SecretTenant::random(rng, known)),
            80..84 => Self::Collect,
            84..94 => Self::Wait(rng.u16(..4000)),
            94..98 => Self::Start(rng.u8(..2)),
            98..100 => Self::Crash(rng.u8(..2)),
            100..105 => Self::CrashAtWrite(rng.u8(..2), rng.u8(..4), rng.bool()),
            105..107 => Self::Disconnect,
            107 => Self::Compact,
            108 => Self::Stall(rng.u8(1..40)),
            109..111 => Self::Lag(rng.u8(..40)),
            111..115 => Self::Fail(Fault::ALL[rng.usize(..6)], rng.u8(1..6)),
            115 => Self::Refuse(namespace, rng.bool()),
            116 => Self::RemoveCrd(rng.u8(..2)),
            _ => Self::RestoreCrds,
        }
    }
}

impl ProfileTenant {
    fn random(rng: &mut Rng) -> Self {
        use ProfileTenant as P;
        let all = [
            P::Delete,
            P::Delete,
            P::Strip,
            P::Rename,
            P::Annotate,
            P::WipeStatus,
            P::Hold,
            P::Release,
            P::CreateOurs,
            P::CreateForeign,
            P::AddProvider,
            P::RemoveProvider,
            P::AddCondition,
            P::DisguiseProvider,
        ];
        all[rng.usize(..all.len())]
    }
}

impl SecretTenant {
    fn random(rng: &mut Rng, known: bool) -> Self {
        use SecretTenant as S;
        let all =
            [S::Delete, S::Edit, S::Unlabel, S::Hold, S::Release, S::CreateForeign, S::Disown, S::Forge];
        all[rng.usize(..if known { 8 } else { 5 })]
    }
}
