//! The open requests, by namespace: they end with the grant, and the bytes that they hold are limited.
//!
//! What one request holds is bounded by the windows and buffers of its two connections, so the number of requests limits
//! the bytes of a namespace. For the process, the bytes that were read and not yet sent are counted ([`Part`]). Beyond
//! [`UNREAD_LIMIT`], the request with the most of them ends, of the namespace that has the most.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes};
use hub_api::names::{ClusterName, Namespace, ProfileKey};
use hub_core::entry::Refusal;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How many bytes may wait to be sent. A request that has 48 KiB of them can have three times as much behind them, in the
/// windows of HTTP/2.
const UNREAD_LIMIT: usize = 64 << 20;

/// The open requests.
#[derive(Clone)]
pub(crate) struct Sessions(Arc<Inner>);

struct Inner {
    open: Mutex<HashMap<Namespace, HashMap<usize, Open>>>,
    /// How many requests of one namespace may be open.
    limit: usize,
    next: AtomicUsize,
    /// The bytes of all requests that wait to be sent.
    unread: AtomicUsize,
    unread_limit: usize,
}

/// What is known of an open request.
struct Open {
    cluster: ClusterName,
    cut: CancellationToken,
    /// How many requests it counts as.
    weight: usize,
    unread: Arc<Unread>,
}

/// The bytes of one request that wait to be sent; none any more once it has ended for having the most.
struct Unread(Mutex<Option<usize>>);

/// One open request, until it is dropped.
pub struct Session {
    sessions: Sessions,
    number: usize,
    /// From which namespace to which cluster.
    pub(crate) key: ProfileKey,
    /// Cancelled when the grant ends, or the request has to end for what it holds.
    pub cut: CancellationToken,
    unread: Arc<Unread>,
}

/// A part of a body. It counts until it has been sent, which is when it is dropped.
pub(crate) struct Part {
    bytes: Bytes,
    counted: Option<(usize, Arc<Unread>, Sessions)>,
}

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Self::with(limit, UNREAD_LIMIT)
    }

    fn with(limit: usize, unread_limit: usize) -> Self {
        let (open, next, unread) = Default::default();
        Self(Arc::new(Inner { open, limit, next, unread, unread_limit }))
    }

    /// Opens a request that counts as `weight` requests, before its grant is decided: a grant that ends meanwhile cuts
    /// it. One cluster leaves half of the namespace's requests to the others, since it can keep its own open.
    pub(crate) fn open(
        &self,
        key: ProfileKey,
        weight: usize,
        cut: CancellationToken,
    ) -> Result<Session, Refusal> {
        let mut open = self.0.open.lock();
        let of_namespace = open.entry(key.namespace.clone()).or_default();
        let (limit, of_cluster) = (self.0.limit, self.0.limit.div_ceil(2));
        if of_namespace.values().map(|open| open.weight).sum::<usize>() >= limit {
            return Err(Refusal::TooManyRequests { namespace: key.namespace, limit });
        }
        let to_cluster = of_namespace.values().filter(|open| open.cluster == key.cluster);
        if to_cluster.map(|open| open.weight).sum::<usize>() >= of_cluster {
            return Err(Refusal::TooManyToCluster { key, limit: of_cluster });
        }
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let unread = Arc::new(Unread(Mutex::new(Some(0))));
        let (cluster, unread_of) = (key.cluster.clone(), Arc::clone(&unread));
        of_namespace.insert(number, Open { cluster, cut: cut.clone(), weight, unread: unread_of });
        drop(open);
        Ok(Session { sessions: self.clone(), number, key, cut, unread })
    }

    /// Ends the open requests from each namespace to each cluster for which this returns true, but none that is opened
    /// later.
    pub(crate) fn cut(&self, is_cut: impl Fn(&Namespace, &ClusterName) -> bool) {
        for (namespace, of_namespace) in &*self.0.open.lock() {
            let mut decided = HashMap::new();
            for Open { cluster, cut, .. } in of_namespace.values() {
                if *decided.entry(cluster).or_insert_with(|| is_cut(namespace, cluster)) {
                    cut.cancel();
                }
            }
        }
    }

    /// Ends the request with the most unread bytes, of the namespace that has the most.
    fn cut_largest(&self) {
        let open = self.0.open.lock();
        let bytes = |open: &Open| open.unread.0.lock().unwrap_or_default();
        let namespace = open.values().max_by_key(|open| open.values().map(bytes).sum::<usize>());
        if let Some(largest) = namespace.and_then(|open| open.values().max_by_key(|open| bytes(open))) {
            // Not counted any more: what a cluster does not read may stay for as long as the connection to it.
            let written_off = largest.unread.0.lock().take().unwrap_or_default();
            self.0.unread.fetch_sub(written_off, Ordering::Relaxed);
            largest.cut.cancel();
        }
    }
}

impl Session {
    /// Counts a part of a body.
    pub(crate) fn count(&self, bytes: Bytes) -> Part {
        let length = bytes.len();
        let unread = &self.sessions.0.unread;
        if let Some(of_session) = &mut *self.unread.0.lock() {
            *of_session += length;
            unread.fetch_add(length, Ordering::Relaxed);
        }
        if unread.load(Ordering::Relaxed) > self.sessions.0.unread_limit {
            self.sessions.cut_largest();
        }
        Part { bytes, counted: Some((length, Arc::clone(&self.unread), self.sessions.clone())) }
    }

    /// Whether it had to end for its unread bytes, and not with its grant.
    pub(crate) fn is_too_slow(&self) -> bool {
        self.unread.0.lock().is_none()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut open = self.sessions.0.open.lock();
        let Some(of_namespace) = open.get_mut(&self.key.namespace) else { return };
        of_namespace.remove(&self.number);
        if of_namespace.is_empty() {
            open.remove(&self.key.namespace);
        }
    }
}

impl From<Bytes> for Part {
    /// A part that does not count.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, counted: None }
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Some((length, unread, sessions)) = &self.counted else { return };
        if let Some(of_session) = &mut *unread.0.lock() {
            *of_session -= length;
            sessions.0.unread.fetch_sub(*length, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, cluster: &str) -> ProfileKey {
        ProfileKey { namespace: namespace.into(), cluster: cluster.into() }
    }

    fn open(sessions: &Sessions, namespace: &str, cluster: &str, weight: usize) -> Result<Session, Refusal> {
        sessions.open(key(namespace, cluster), weight, CancellationToken::new())
    }

    #[test]
    fn a_cut_ends_what_is_open_of_that_pair_and_nothing_that_is_opened_later() {
        let sessions = Sessions::new(10);
        let open = |namespace, cluster| open(&sessions, namespace, cluster, 1).unwrap_or_else(|_| panic!());
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
    fn one_namespace_takes_nothing_from_another_and_one_cluster_half_at_most() {
        let sessions = Sessions::new(4);
        let all = ["one", "one", "two"].map(|cluster| open(&sessions, "team", cluster, 1));
        assert!(all.iter().all(Result::is_ok));
        let refused = open(&sessions, "team", "one", 1);
        assert!(matches!(refused, Err(Refusal::TooManyToCluster { limit: 2, .. })));
        let last = open(&sessions, "team", "two", 1);
        assert!(last.is_ok());
        let refused = open(&sessions, "team", "three", 1);
        assert!(matches!(refused, Err(Refusal::TooManyRequests { limit: 4, .. })));
        assert!(open(&sessions, "other", "one", 1).is_ok());
        drop((all, last));
        // What holds more counts more.
        let upgraded = open(&sessions, "team", "one", 4);
        assert!(upgraded.is_ok() && open(&sessions, "team", "two", 1).is_err());
    }

    #[test]
    fn too_many_unread_bytes_end_the_request_with_the_most_of_the_namespace_with_the_most() {
        let sessions = Sessions::with(10, 100);
        let open = |namespace| open(&sessions, namespace, "one", 1).unwrap_or_else(|_| panic!());
        let part = |length| Bytes::from(vec![0; length]);
        let (honest, slow, slower) = (open("team"), open("other"), open("other"));
        let of_honest = honest.count(part(45));
        let (_of_slow, of_slower) = (slow.count(part(20)), slower.count(part(30)));
        assert!(!slow.cut.is_cancelled() && !slower.cut.is_cancelled());
        let _more = honest.count(part(4));
        let _last = slow.count(part(2));
        assert!(slower.cut.is_cancelled() && slower.is_too_slow());
        assert!(![&honest, &slow].iter().any(|session| session.cut.is_cancelled() || session.is_too_slow()));
        // Its bytes are not counted twice when they are dropped at last.
        drop(of_slower);
        assert_eq!(sessions.0.unread.load(Ordering::Relaxed), 71);
        drop(of_honest);
        assert_eq!(sessions.0.unread.load(Ordering::Relaxed), 26);
    }
}
