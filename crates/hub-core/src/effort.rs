//! How often this thread has planned, decided and matched, for tests of what a start or an event costs: a count, unlike a
//! time, is the same on every machine.

use std::cell::Cell;

/// What was evaluated so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Plans of profiles, copies, Roles, and accounts on clusters.
    pub plans: usize,
    /// Decisions about a cluster in a namespace.
    pub decisions: usize,
    /// Selectors matched with a cluster.
    pub matches: usize,
}

thread_local! {
    static SPENT: Cell<Effort> = const { Cell::new(Effort { plans: 0, decisions: 0, matches: 0 }) };
}

/// What this thread has evaluated so far.
#[must_use]
pub fn spent() -> Effort {
    SPENT.get()
}

pub(crate) fn count(add: impl FnOnce(&mut Effort)) {
    let mut spent = SPENT.get();
    add(&mut spent);
    SPENT.set(spent);
}
