//! The size of a fleet.

use serde::Serialize;

/// How many objects a fleet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// N: clusters in the set.
    pub clusters: usize,
    /// B: namespaces in which the set is bound.
    pub namespaces: usize,
    /// M: ManagedServiceAccounts per cluster whose token is copied.
    pub accounts: usize,
    /// Clusters that no namespace is granted, with as many accounts.
    pub ungranted: usize,
    /// C: claims per cluster.
    pub claims: usize,
}

impl Size {
    /// P: a profile for every cluster in every namespace.
    pub fn profiles(self) -> usize {
        self.clusters * self.namespaces
    }

    /// How many clusters change one by one.
    pub fn one_by_one(self) -> usize {
        (self.clusters / 10).clamp(1, 20)
    }
}
