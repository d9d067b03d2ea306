//! How often this thread has planned, decided and matched, for tests of what a start or an event costs: a count, unlike a
//! time, is the same on every machine.

use std::cell::Cell;

/// What was evaluated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Plans of profiles, copies, Roles, and accounts on clusters.
    pub plans: usize,
    /// Decisions about a cluster in a namespace.
    pub decisions: usize,
    /// Selectors matched with a cluster.
    pub matches: usize,
    /// Texts parsed as published trust anchors.
    pub parses: usize,
}

impl Effort {
    /// Each count.
    #[must_use]
    pub fn counts(self) -> [usize; 4] {
        [self.plans, self.decisions, self.matches, self.parses]
    }
}

thread_local! {
    static SPENT: Cell<Effort> = Cell::default();
}

/// What this thread has evaluated since the last call.
#[must_use]
pub fn take() -> Effort {
    SPENT.take()
}

pub(crate) fn count(add: impl FnOnce(&mut Effort)) {
    let mut spent = SPENT.get();
    add(&mut spent);
    SPENT.set(spent);
}
