//! The order of work when there is more of it than workers.

use crate::grant::Grant;

/// The priority of work on one object, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// It ends a grant: a namespace loses a profile, or a credential.
    End,
    /// It starts a grant: a namespace gets a profile, or a credential.
    Start,
    /// It changes what exists.
    Update,
}

impl Priority {
    /// Every priority, the most urgent first.
    pub const ALL: [Self; 3] = [Self::End, Self::Start, Self::Update];

    /// The priority of a profile. A refused profile that does not exist may have a create in flight.
    #[must_use]
    pub fn of_profile(grant: Grant, exists: bool) -> Self {
        match (grant, exists) {
            (Grant::Refused, _) => Self::End,
            (Grant::Granted, false) => Self::Start,
            _ => Self::Update,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_grant_goes_before_what_starts_one_and_updates_go_last() {
        assert_eq!(Priority::of_profile(Grant::Refused, true), Priority::End);
        assert_eq!(Priority::of_profile(Grant::Granted, false), Priority::Start);
        for grant in [Grant::Granted, Grant::Unknown] {
            assert_eq!(Priority::of_profile(grant, true), Priority::Update);
        }
        assert!(Priority::ALL.is_sorted());
    }
}
