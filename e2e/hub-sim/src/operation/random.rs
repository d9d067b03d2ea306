//! Random operations. Operations that set a hub up are more likely than those that take it down.

use std::collections::BTreeSet;

use fastrand::Rng;
use strum::VariantArray as _;

use super::fault::{BREAKABLE, BREAKABLE_ALWAYS};
use super::{
    ObjectTenant as T, Operation as O, ProfileTenant as P, RoleBindingTenant as R,
    SecretTenant as S,
};
use crate::world::{FailureMode, Fault};

/// The weight of an operation, and how to generate it.
type Draw = (u16, fn(&mut Rng) -> O);

/// The operations of users, agents and tenants.
const DEEDS: &[Draw] = &[
    (6, |rng| O::CreateCluster(cluster(rng))),
    (2, |rng| O::LeaveCluster(cluster(rng))),
    (2, |rng| O::RemoveCluster(cluster(rng))),
    (6, |rng| O::MoveCluster(cluster(rng), (rng.u8(..4) > 0).then(|| rng.u8(..2)))),
    (2, |rng| O::LabelCluster(cluster(rng), rng.bool())),
    (3, |rng| O::Health(cluster(rng), rng.u8(..))),
    (2, |rng| O::Accept(cluster(rng), rng.u8(..3) > 0)),
    (2, |rng| O::CreateSet(rng.u8(..2))),
    (1, |rng| O::DeleteSet(rng.u8(..2))),
    (3, |rng| O::Select(rng.u8(..2), rng.u8(..12))),
    (4, |rng| O::Bind(rng.u8(..2), rng.u8(..2))),
    (2, |rng| O::Unbind(rng.u8(..2), rng.u8(..2))),
    (2, |rng| O::Bound(rng.u8(..2), rng.u8(..2), rng.u8(..3) > 0)),
    (1, |rng| O::EndNamespace(rng.u8(..2))),
    (2, |rng| O::CreateNamespace(rng.u8(..2))),
    (2, |rng| O::Configure((rng.u8(..4) > 0).then(|| rng.u8(..2)))),
    (2, |rng| O::Addon(cluster(rng), rng.u8(..3) > 0)),
    (3, |rng| O::Serve(rng.u8(..2), (rng.u8(..5) > 0).then(|| rng.u8(..)))),
    (5, |rng| O::CreateAccount(cluster(rng), rng.u8(..2))),
    (2, |rng| O::DeleteAccount(cluster(rng), rng.u8(..2))),
    (2, |rng| O::Ask(cluster(rng), rng.u8(..2), rng.u8(..3) > 0)),
    (2, |rng| O::Scope(cluster(rng), rng.u8(..2), rng.u8(..))),
    (7, |rng| O::Report(cluster(rng), rng.u8(..2), rng.u8(..))),
    (2, |rng| O::Unreport(cluster(rng), rng.u8(..2))),
    (8, |rng| O::Profile(rng.u8(..2), cluster(rng), profile_tenant(rng))),
    (9, |rng| O::Secret(rng.u8(..2), cluster(rng), rng.u8(..2), one_of(rng, S::VARIANTS))),
    (4, |_| O::Collect),
    (10, |rng| O::Wait(rng.u16(..4000))),
    (1, |_| O::Backup),
];

const FAULTS: &[Draw] = &[
    (4, |rng| O::Start(rng.u8(..2))),
    (2, |rng| O::Crash(rng.u8(..2))),
    (5, |rng| O::CrashAtWrite(rng.u8(..2), rng.u8(..4), rng.bool())),
    (2, |_| O::Disconnect),
    (1, |_| O::Compact),
    (2, |_| O::CompactBetweenPages),
    (1, |rng| O::Stall(rng.u8(1..40))),
    (2, |rng| O::Lag(rng.u8(..40))),
    (4, |rng| O::Fail(one_of(rng, Fault::VARIANTS), rng.u8(1..6))),
    (1, |rng| O::Outage(rng.u8(1..))),
    (2, |rng| O::Restore(rng.u8(20..100))),
    (1, |rng| O::Refuse(rng.u8(..2), rng.bool())),
    (1, |rng| O::Forbid(rng.u8(..8))),
    (1, |_| O::Permit),
    (2, |rng| O::RemoveCrd(rng.u8(..2))),
    (1, |_| O::RestoreCrds),
    (1, |rng| O::ServeLater(rng.bool())),
    (1, |rng| O::RoleBinding(rng.u8(..2), one_of(rng, &[R::Delete, R::Redirect, R::Unlabel]))),
];

/// The operations where consumers are declared, in addition.
const CONSUMERS: &[Draw] = &[
    (16, |_| O::Agents),
    (4, |rng| O::Install(cluster(rng), (rng.u8(..4) > 0).then(|| rng.u8(..2)))),
    (10, |rng| O::Access(rng.u8(..8), rng.u8(..3) > 0)),
    (3, |rng| O::HoldAccess(rng.u8(..8), rng.bool())),
    (6, |rng| O::Decide(rng.u8(..2), rng.u8(..16))),
    (24, |rng| O::Object(cluster(rng), rng.u8(..2), rng.u8(..5), object_tenant(rng))),
];

/// The faults where consumers are declared, in addition.
const CONSUMER_FAULTS: &[Draw] = &[
    (5, |rng| O::Declare(rng.u8(..3))),
    (4, |rng| O::RemoveCrd(rng.u8(2..4))),
    (5, |rng| O::Forbid(rng.u8(8..16))),
];

/// The failures that last.
const LASTING: &[Draw] = &[(1, |rng| partial_failure(rng, BREAKABLE_ALWAYS))];

/// The failures that last where consumers are declared.
const CONSUMER_LASTING: &[Draw] =
    &[(1, |rng| partial_failure(rng, u8::try_from(BREAKABLE.len()).unwrap_or(u8::MAX)))];

/// What makes a kind unreadable, or what is known of it old.
const UNREAD: &[Draw] = &[
    (6, |rng| O::Unread(rng.u8(..), one_of(rng, FailureMode::VARIANTS))),
    (1, |_| O::Reread),
    (3, |rng| O::RemoveCrd(rng.u8(..2) * 4 + rng.u8(..3))),
    (1, |rng| O::Freeze(rng.u8(..))),
    (1, |rng| O::Slow(rng.u8(1..=50))),
];

fn partial_failure(rng: &mut Rng, most: u8) -> O {
    O::Break(rng.u8(..most), rng.u8(..), one_of(rng, FailureMode::VARIANTS))
}

fn cluster(rng: &mut Rng) -> u8 {
    rng.u8(..3)
}

/// The first one, a deletion, is twice as likely.
fn profile_tenant(rng: &mut Rng) -> P {
    P::VARIANTS[rng.usize(..=P::VARIANTS.len()).saturating_sub(1)]
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())]
}

fn object_tenant(rng: &mut Rng) -> T {
    let all = [
        T::Create,
        T::Delete,
        T::Delete,
        T::Edit,
        T::Edit,
        T::Unmark,
        T::Hold,
        T::Release,
        T::Fail,
    ];
    one_of(rng, &all)
}

fn draw(rng: &mut Rng, from: &[&[Draw]]) -> O {
    let all = || from.iter().copied().flatten();
    let whole: u16 = all().map(|(weight, _)| weight).sum();
    let mut left = rng.u16(..whole);
    for (weight, draw) in all() {
        match left.checked_sub(*weight) {
            Some(rest) => left = rest,
            None => return draw(rng),
        }
    }
    O::Collect
}

impl O {
    /// A random operation.
    #[must_use]
    pub fn random(rng: &mut Rng, faults: bool, consumers: bool) -> Self {
        let from: &[&[Draw]] = match (faults, consumers) {
            (false, false) => &[DEEDS],
            (true, false) => &[DEEDS, FAULTS],
            (false, true) => &[DEEDS, CONSUMERS],
            (true, true) => &[DEEDS, FAULTS, CONSUMERS, CONSUMER_FAULTS],
        };
        draw(rng, from)
    }

    /// A random failure that lasts.
    pub(crate) fn random_lasting(rng: &mut Rng, consumers: bool) -> Self {
        draw(rng, &[if consumers { CONSUMER_LASTING } else { LASTING }])
    }

    /// A kind that can no longer be read, some minutes, and what happens on the hub meanwhile.
    pub(crate) fn random_unread(rng: &mut Rng, consumers: bool) -> Vec<Self> {
        let mut all = vec![O::Wait(5000), Self::random_request(rng), Self::random_request(rng)];
        all.extend((0..rng.usize(1..3)).map(|_| draw(rng, &[UNREAD])));
        all.extend((0..[2, 2, 2, 7][rng.usize(..4)]).map(|_| O::Wait(60_000)));
        all.extend((0..rng.usize(3..12)).map(|_| Self::random(rng, false, consumers)));
        all.extend([O::Wait(10_000), if rng.bool() { O::RestoreCrds } else { O::Reread }]);
        all
    }

    /// A random request by an own identity.
    pub fn random_request(rng: &mut Rng) -> Self {
        O::Request(rng.u8(..2), cluster(rng))
    }

    /// The kinds of operations that can be generated.
    #[must_use]
    pub fn kinds() -> BTreeSet<String> {
        let mut rng = Rng::with_seed(0);
        let all = [DEEDS, FAULTS, CONSUMERS, CONSUMER_FAULTS, CONSUMER_LASTING, UNREAD]
            .into_iter()
            .flatten();
        let kinds =
            all.flat_map(|(_, draw)| (0..300).map(|_| draw(&mut rng).name()).collect::<Vec<_>>());
        kinds.chain([O::Request(0, 0).name()]).collect()
    }
}
