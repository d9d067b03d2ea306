//! The size of a fleet.

/// How many objects a fleet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Sets that select the clusters; all are bound in every namespace.
    pub sets: usize,
    /// K: ClusterAccesses, each with an account on every cluster; the namespaces share them.
    pub consumers: usize,
}

impl Size {
    /// P: a profile for every cluster in every namespace.
    pub fn profiles(self) -> usize {
        self.clusters * self.namespaces
    }

    /// The accounts of consumers, on all clusters.
    pub fn consumer_accounts(self) -> usize {
        self.consumers * self.clusters
    }

    /// How many clusters change one by one.
    pub fn one_by_one(self) -> usize {
        (self.clusters / 10).clamp(1, 20)
    }
}
