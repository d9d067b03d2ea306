//! The open requests, by namespace and cluster, so that they end with the grant.

use std::collections::HashMap;
use std::sync::Arc;

use hub_api::names::{ClusterName, Namespace, ProfileKey};
use hub_core::entry::Refusal;
use konnectivity::Budget;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The open requests.
#[derive(Clone)]
pub(crate) struct Sessions(Arc<Inner>);

struct Inner {
    open: Mutex<HashMap<Namespace, OfNamespace>>,
    /// How many requests of one namespace may be open.
    limit: usize,
}

/// What is open from one namespace.
#[derive(Default)]
struct OfNamespace {
    clusters: HashMap<ClusterName, Pair>,
    /// What waits to be read on connections that have switched protocols.
    budget: Budget,
}

/// What is open from one namespace to one cluster.
#[derive(Default)]
struct Pair {
    count: usize,
    cut: CancellationToken,
}

/// One open request, until it is dropped.
pub struct Session {
    sessions: Sessions,
    /// From which namespace to which cluster.
    pub(crate) key: ProfileKey,
    /// Cancelled when the grant ends.
    pub cut: CancellationToken,
    /// What the namespace's connections that have switched protocols share.
    pub(crate) budget: Budget,
}

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Inner { open: Mutex::default(), limit }))
    }

    /// Opens a request, before its grant is decided: a grant that ends meanwhile cuts it.
    pub(crate) fn open(&self, key: ProfileKey) -> Result<Session, Refusal> {
        let mut open = self.0.open.lock();
        let of_namespace = open.entry(key.namespace.clone()).or_default();
        if of_namespace.clusters.values().map(|pair| pair.count).sum::<usize>() >= self.0.limit {
            return Err(Refusal::TooManyRequests { namespace: key.namespace, limit: self.0.limit });
        }
        let budget = of_namespace.budget.clone();
        let pair = of_namespace.clusters.entry(key.cluster.clone()).or_default();
        pair.count += 1;
        let cut = pair.cut.clone();
        drop(open);
        Ok(Session { sessions: self.clone(), key, cut, budget })
    }

    /// Ends the open requests from each namespace to each cluster for which this returns true, but none that is opened
    /// later.
    pub(crate) fn cut(&self, is_cut: impl Fn(&Namespace, &ClusterName) -> bool) {
        let mut open = self.0.open.lock();
        for (namespace, of_namespace) in &mut *open {
            for (cluster, pair) in &mut of_namespace.clusters {
                if is_cut(namespace, cluster) {
                    std::mem::take(&mut pair.cut).cancel();
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut open = self.sessions.0.open.lock();
        let Some(OfNamespace { clusters, .. }) = open.get_mut(&self.key.namespace) else { return };
        if let Some(pair) = clusters.get_mut(&self.key.cluster) {
            pair.count -= 1;
            if pair.count == 0 {
                clusters.remove(&self.key.cluster);
            }
        }
        if clusters.is_empty() {
            open.remove(&self.key.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, cluster: &str) -> ProfileKey {
        ProfileKey { namespace: namespace.into(), cluster: cluster.into() }
    }

    #[test]
    fn a_cut_ends_what_is_open_of_that_pair_and_nothing_that_is_opened_later() {
        let sessions = Sessions::new(10);
        let open = |namespace, cluster| sessions.open(key(namespace, cluster)).unwrap_or_else(|_| panic!());
        let (first, second) = (open("team", "one"), open("team", "one"));
        let others = [open("team", "two"), open("other", "one")];
        sessions.cut(|namespace, cluster| namespace.as_str() == "team" && cluster.as_str() == "one");
        assert!(first.cut.is_cancelled() && second.cut.is_cancelled());
        assert!(others.iter().all(|other| !other.cut.is_cancelled()));
        let later = open("team", "one");
        drop((first, second));
        assert!(!later.cut.is_cancelled());
        drop((later, others));
        assert!(sessions.0.open.lock().is_empty(), "nothing is left");
    }

    #[test]
    fn one_namespace_takes_nothing_from_another() {
        let sessions = Sessions::new(2);
        let open = [sessions.open(key("team", "one")), sessions.open(key("team", "two"))];
        assert!(open.iter().all(Result::is_ok));
        assert!(matches!(sessions.open(key("team", "one")), Err(Refusal::TooManyRequests { limit: 2, .. })));
        assert!(sessions.open(key("other", "one")).is_ok());
        drop(open);
        assert!(sessions.open(key("team", "one")).is_ok());
    }
}
