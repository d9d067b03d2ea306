//! The trust anchors that profiles publish: those of the latest reading and, for an overlap, those that they replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hub_api::names::ProfileKey;

use crate::trust::{TrustAnchor, TrustBundle, TrustError};

/// Identifies anchors that were replaced together, and stay published until their overlap ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap(u64);

impl Overlap {
    /// The overlap of all anchors that profiles published at startup and the source lacked: replaced while no provisioner
    /// ran.
    pub const INHERITED: Self = Self(0);
}

/// The effect of a new reading of the trust anchors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnchorChange {
    None,
    /// Published entries change, or no new entry is published.
    Changed,
    /// Published entries change; the replaced anchors stay until this overlap ends.
    Overlapping(Overlap),
}

/// The result of a call that ends an overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlapEnd {
    /// It had ended before.
    Over,
    Ended,
    /// The server was seen with a certificate of replaced anchors, which therefore stay for another overlap.
    Extended,
}

/// Anchors that were replaced together.
#[derive(Debug, Default)]
struct Retiring {
    anchors: BTreeSet<TrustAnchor>,
    /// Those of them with whose certificate the server was seen since the overlap began or was extended.
    seen: BTreeSet<TrustAnchor>,
    /// Whether the overlap was extended.
    is_extended: bool,
}

#[derive(Debug)]
pub(super) struct Anchors {
    /// The latest valid reading.
    current: Option<TrustBundle>,
    /// Whether the latest reading was valid.
    is_readable: bool,
    /// The anchors that were replaced, and whose overlap has not ended.
    retiring: BTreeMap<Overlap, Retiring>,
    /// The numbers of the sets in which profiles have inherited the anchors in [`Overlap::INHERITED`]: few, since most have
    /// inherited the same. The first is empty.
    sets: BTreeMap<BTreeSet<TrustAnchor>, usize>,
    /// What profiles with each set publish.
    joined: Vec<Joined>,
    /// The number of the set that a profile has inherited, if it is not empty. Each anchor is kept for its own profile only,
    /// so that an anchor added to one profile never reaches another.
    inherited: BTreeMap<ProfileKey, usize>,
    /// The number of overlaps that readings began.
    begun: u64,
}

/// The current anchors, those that they replaced, and a set that was inherited, or why these are too large together.
type Joined = Option<Result<TrustBundle, TrustError>>;

impl Default for Anchors {
    fn default() -> Self {
        Self {
            current: None,
            is_readable: false,
            retiring: BTreeMap::new(),
            sets: [(BTreeSet::new(), 0)].into(),
            joined: vec![None],
            inherited: BTreeMap::new(),
            begun: 0,
        }
    }
}

impl Anchors {
    /// The anchors of the latest valid reading.
    pub fn current(&self) -> Option<&TrustBundle> {
        self.current.as_ref()
    }

    /// The anchors of the latest reading, if it was valid.
    pub fn readable(&self) -> Option<&TrustBundle> {
        self.current().filter(|_| self.is_readable)
    }

    /// Records that the anchors cannot be read; returns whether that is new.
    pub fn set_unreadable(&mut self) -> bool {
        std::mem::replace(&mut self.is_readable, false)
    }

    /// Records a valid reading, and whether those that it replaces stay for an overlap.
    pub fn read(&mut self, new: &TrustBundle, has_overlap: bool) -> AnchorChange {
        let was_readable = std::mem::replace(&mut self.is_readable, true);
        if self.current.as_ref() == Some(new) {
            return if was_readable { AnchorChange::None } else { AnchorChange::Changed };
        }
        let old = self.current.replace(new.clone());
        let replaced: BTreeSet<_> = old.iter().flat_map(|old| old.without(new)).cloned().collect();
        let change = if replaced.is_empty() || !has_overlap {
            AnchorChange::Changed
        } else {
            self.begun += 1;
            let overlap = Overlap(self.begun);
            self.retiring.insert(overlap, Retiring { anchors: replaced, ..Retiring::default() });
            AnchorChange::Overlapping(overlap)
        };
        self.join();
        change
    }

    /// Records what a profile publishes at startup: what was not read, and is not in the serving Secret, counts as replaced.
    /// Returns whether there is any, the first time.
    pub fn inherit(
        &mut self,
        key: &ProfileKey,
        published: &TrustBundle,
        served: Option<&TrustBundle>,
    ) -> bool {
        if self.inherited.contains_key(key) {
            return false;
        }
        let present = self.current.iter().chain(served);
        let present: BTreeSet<_> = present.flat_map(TrustBundle::anchors).collect();
        let replaced = published.anchors().filter(|anchor| !present.contains(anchor));
        let replaced: BTreeSet<_> = replaced.cloned().collect();
        if replaced.is_empty() {
            return false;
        }
        let retiring = self.retiring.entry(Overlap::INHERITED).or_default();
        retiring.anchors.extend(replaced.iter().cloned());
        let number = self.number(replaced.clone());
        if number == self.joined.len() {
            self.joined.push(self.with(&replaced));
        }
        self.inherited.insert(key.clone(), number);
        true
    }

    /// Every anchor that is published although it was replaced.
    pub fn replaced(&self) -> impl Iterator<Item = &TrustAnchor> {
        self.retiring.values().flat_map(|retiring| &retiring.anchors)
    }

    /// Whether replaced anchors are published.
    pub fn is_overlapping(&self) -> bool {
        !self.retiring.is_empty()
    }

    /// Whether an overlap was extended.
    pub fn is_extended(&self) -> bool {
        self.retiring.values().any(|retiring| retiring.is_extended)
    }

    /// Records that the server was seen with a certificate of these anchors.
    pub fn observe(&mut self, verified_by: &BTreeSet<TrustAnchor>) {
        for retiring in self.retiring.values_mut() {
            retiring.seen.extend(retiring.anchors.intersection(verified_by).cloned());
        }
    }

    /// Ends an overlap, except for anchors with whose certificate the server was seen since it began.
    pub fn end_overlap(&mut self, overlap: Overlap) -> OverlapEnd {
        let Some(ending) = self.retiring.remove(&overlap) else { return OverlapEnd::Over };
        let seen = ending.seen;
        let end = if seen.is_empty() { OverlapEnd::Ended } else { OverlapEnd::Extended };
        if end == OverlapEnd::Extended {
            let anchors = seen.clone();
            let extended = Retiring { anchors, seen: BTreeSet::new(), is_extended: true };
            self.retiring.insert(overlap, extended);
        }
        if overlap == Overlap::INHERITED {
            self.end_inherited(&seen);
        }
        self.join();
        end
    }

    /// Ends every overlap, since the server was seen with a certificate of the current anchors.
    pub fn end_overlaps(&mut self) {
        self.retiring.clear();
        self.end_inherited(&BTreeSet::new());
        self.join();
    }

    /// The PEM text for one profile: the current anchors, and those whose overlap has not ended. If the bundle would be
    /// too large for clients, only the current ones.
    pub fn published_to(&self, key: &ProfileKey) -> Option<Arc<str>> {
        let current = self.readable()?;
        let number = self.inherited.get(key).copied().unwrap_or_default();
        let joined = self.joined.get(number)?.as_ref()?;
        Some(Arc::clone(joined.as_ref().unwrap_or(current).pem()))
    }

    /// Why the anchors that recent readings replaced are not published beside the current ones.
    pub fn too_large(&self) -> Option<&TrustError> {
        self.joined.first()?.as_ref()?.as_ref().err()
    }

    /// Joins the anchors after a change of any.
    fn join(&mut self) {
        let mut joined = vec![None; self.sets.len()];
        for (set, number) in &self.sets {
            joined[*number] = self.with(set);
        }
        self.joined = joined;
    }

    fn with(&self, inherited: &BTreeSet<TrustAnchor>) -> Joined {
        let read = self.retiring.iter().filter(|(overlap, _)| **overlap != Overlap::INHERITED);
        let replaced = read.flat_map(|(_, retiring)| &retiring.anchors);
        Some(self.current.as_ref()?.with(replaced.chain(inherited)))
    }

    /// The number of a set, which is added if it is new.
    fn number(&mut self, set: BTreeSet<TrustAnchor>) -> usize {
        let next = self.sets.len();
        *self.sets.entry(set).or_insert(next)
    }

    /// Ends what was inherited, except for these anchors; [`Self::join`] has to follow.
    fn end_inherited(&mut self, seen: &BTreeSet<TrustAnchor>) {
        let before = std::mem::take(&mut self.sets);
        // The first one, as in the beginning.
        self.number(BTreeSet::new());
        let kept = before.into_iter().map(|(set, number)| (number, self.number(&set & seen)));
        let kept: BTreeMap<_, _> = kept.collect();
        self.inherited.retain(|_, number| {
            *number = kept.get(number).copied().unwrap_or_default();
            *number > 0
        });
    }
}
