//! The least that the API allows for each scenario.

use std::collections::BTreeMap;
use std::fmt;

use strum::VariantArray as _;

use crate::counts::{Counter, Counts};

/// The workers of the profiles, and of the copies.
const WORKERS: usize = 16;

/// What a counter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// This number.
    Exactly(usize),
    /// At most this number, because the hub's own controllers do the rest.
    AtMost(usize),
}

impl Bound {
    fn allows(self, count: usize) -> bool {
        match self {
            Self::Exactly(wanted) => count == wanted,
            Self::AtMost(most) => count <= most,
        }
    }

    fn number(self) -> usize {
        match self {
            Self::Exactly(number) | Self::AtMost(number) => number,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(wanted) => write!(f, "exactly {wanted}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

/// The bound of every counter; one that is not named must be 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limit(BTreeMap<Counter, Bound>);

impl Limit {
    /// No request is needed.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// `profiles` appear, each with `accounts` copies.
    pub fn appear(profiles: usize, accounts: usize) -> Self {
        Self::nothing()
            .exactly(Counter::ProfileCreates, profiles)
            .exactly(Counter::StatusWrites, profiles)
            .exactly(Counter::CopyCreates, profiles * accounts)
    }

    /// `profiles` and their copies are deleted by the controllers. The garbage collector may be faster with copies.
    pub fn disappear(self, profiles: usize, accounts: usize) -> Self {
        self.exactly(Counter::ProfileDeletes, profiles)
            .at_most(Counter::CopyDeletes, profiles * accounts)
    }

    /// `profiles` and their copies are deleted by the namespace controller, in an order that differs each time. A
    /// controller that restores a profile or a copy that has disappeared learns from a refusal that the namespace is
    /// being deleted: from one for each of its workers at most. If the binding is deleted long after the profiles, the
    /// accounts report the missing copies, and then no longer.
    pub fn collected(profiles: usize, accounts: usize) -> Self {
        Self::nothing()
            .at_most(Counter::ProfileDeletes, profiles)
            .at_most(Counter::CopyDeletes, profiles * accounts)
            .at_most(Counter::ProfileCreates, WORKERS)
            .at_most(Counter::CopyCreates, WORKERS)
            .at_most(Counter::Failures, 2 * WORKERS)
            .at_most(Counter::OtherWrites, 2 * profiles * accounts)
    }

    /// This counter has this value.
    pub fn exactly(mut self, counter: Counter, count: usize) -> Self {
        self.0.insert(counter, Bound::Exactly(count));
        self
    }

    /// This counter is at most this value.
    pub fn at_most(mut self, counter: Counter, count: usize) -> Self {
        self.0.insert(counter, Bound::AtMost(count));
        self
    }

    /// The bound of a counter.
    pub fn of(&self, counter: Counter) -> Bound {
        self.0.get(&counter).copied().unwrap_or(Bound::Exactly(0))
    }

    /// The sum of all writes.
    pub fn writes(&self) -> Bound {
        let writes = self.0.iter().filter(|(counter, _)| counter.is_write());
        let bounds: Vec<Bound> = writes.map(|(_, bound)| *bound).collect();
        let sum = bounds.iter().map(|bound| bound.number()).sum();
        let is_exact = bounds.iter().all(|bound| matches!(bound, Bound::Exactly(_)));
        if is_exact { Bound::Exactly(sum) } else { Bound::AtMost(sum) }
    }

    /// One line for each counter that is out of its bound.
    pub fn deviations(&self, counts: &Counts) -> Vec<String> {
        let wrong = |counter: &Counter| {
            let (bound, count) = (self.of(*counter), counts.get(*counter));
            (!bound.allows(count))
                .then(|| format!("expected {bound} {}, got {count}", counter.title()))
        };
        Counter::VARIANTS.iter().filter_map(wrong).collect()
    }
}

#[cfg(test)]
mod tests {
    use local_hub::Requests;

    use super::*;

    #[test]
    fn a_cold_start_takes_two_writes_a_profile_and_one_a_copy() {
        assert_eq!(Limit::appear(1000, 2).writes(), Bound::Exactly(2 * 1000 + 2000));
    }

    #[test]
    fn every_counter_that_is_not_named_must_be_zero() {
        let counts = Counts::default().with_changes(&Requests::default(), 0);
        assert_eq!(Limit::nothing().deviations(&counts), Vec::<String>::new());
        let wrong = Limit::nothing().exactly(Counter::StatusWrites, 7).deviations(&counts);
        assert_eq!(wrong, ["expected exactly 7 writes of profile status, got 0"]);
    }

    #[test]
    fn what_the_garbage_collector_may_delete_is_no_deviation() {
        let limit = Limit::nothing().disappear(5, 2);
        assert_eq!(limit.writes(), Bound::AtMost(15));
        assert_eq!(
            limit.deviations(&Counts::default()),
            ["expected exactly 5 deletes of profiles, got 0"]
        );
        assert_eq!(Limit::collected(5, 2).deviations(&Counts::default()), Vec::<String>::new());
    }
}
