//! The open requests, by namespace: they end with the grant, and the bytes that they hold are limited.
//!
//! What one request holds is bounded by the windows and buffers of its two connections, and counted ([`Held`]): the bytes
//! of bodies that were read and not yet sent, and, while the next ones are not asked for, the window behind them. Beyond
//! the limit of a namespace or of the process ([`UNREAD`]), the request with the most of them ends, of that namespace or
//! of the one that has the most.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes};
use hub_api::names::{ClusterName, Namespace, ProfileKey};
use hub_core::entry::Refusal;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How many bytes may wait to be sent: those of 64 bodies of one namespace whose window is full.
const UNREAD: UnreadLimits = UnreadLimits { of_namespace: 6 << 20, all: 14 << 20 };

/// The open requests.
#[derive(Clone)]
pub(crate) struct Sessions(Arc<Inner>);

#[derive(Clone, Copy)]
struct UnreadLimits {
    of_namespace: usize,
    all: usize,
}

struct Inner {
    open: Mutex<HashMap<Namespace, OfNamespace>>,
    /// How many requests of one namespace may be open.
    limit: usize,
    next: AtomicUsize,
    /// The bytes of all requests that wait to be sent.
    unread: AtomicUsize,
    unread_limits: UnreadLimits,
}

/// What is open from one namespace.
#[derive(Default)]
struct OfNamespace {
    by_number: HashMap<usize, Open>,
    /// The bytes that wait to be sent.
    unread: Arc<AtomicUsize>,
}

/// What is known of an open request.
struct Open {
    cluster: ClusterName,
    cut: CancellationToken,
    /// How many requests it counts as.
    weight: usize,
    unread: Arc<Unread>,
}

/// The bytes of one request that wait to be sent.
struct Unread {
    /// Nothing once it has ended for having the most: what a cluster does not read may stay for as long as the connection
    /// to it.
    bytes: Mutex<Option<usize>>,
    of_namespace: Arc<AtomicUsize>,
    sessions: Sessions,
}

impl Unread {
    fn bytes(&self) -> usize {
        self.bytes.lock().unwrap_or_default()
    }

    fn add(&self, length: usize) {
        if let Some(bytes) = &mut *self.bytes.lock() {
            *bytes += length;
            self.of_namespace.fetch_add(length, Ordering::Relaxed);
            self.sessions.0.unread.fetch_add(length, Ordering::Relaxed);
        }
    }

    fn remove(&self, length: usize) {
        if let Some(bytes) = &mut *self.bytes.lock() {
            *bytes -= length;
            self.subtract(length);
        }
    }

    fn write_off(&self) {
        self.subtract(self.bytes.lock().take().unwrap_or_default());
    }

    fn subtract(&self, length: usize) {
        self.of_namespace.fetch_sub(length, Ordering::Relaxed);
        self.sessions.0.unread.fetch_sub(length, Ordering::Relaxed);
    }
}

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

/// Bytes that a request holds, which count until this is dropped.
pub(crate) struct Held {
    length: usize,
    unread: Arc<Unread>,
}

/// A part of a body. It counts until it has been sent, which is when it is dropped.
pub(crate) struct Part {
    bytes: Bytes,
    _held: Option<Held>,
}

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Self::with(limit, UNREAD)
    }

    fn with(limit: usize, unread_limits: UnreadLimits) -> Self {
        let (open, next, unread) = Default::default();
        Self(Arc::new(Inner { open, limit, next, unread, unread_limits }))
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
        let OfNamespace { by_number, unread } = open.entry(key.namespace.clone()).or_default();
        let (limit, of_cluster) = (self.0.limit, self.0.limit.div_ceil(2));
        if by_number.values().map(|open| open.weight).sum::<usize>() >= limit {
            return Err(Refusal::TooManyRequests { namespace: key.namespace, limit });
        }
        let to_cluster = by_number.values().filter(|open| open.cluster == key.cluster);
        if to_cluster.map(|open| open.weight).sum::<usize>() >= of_cluster {
            return Err(Refusal::TooManyToCluster { key, limit: of_cluster });
        }
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (bytes, of_namespace) = (Mutex::new(Some(0)), Arc::clone(unread));
        let unread = Arc::new(Unread { bytes, of_namespace, sessions: self.clone() });
        let (cluster, counted) = (key.cluster.clone(), Arc::clone(&unread));
        by_number.insert(number, Open { cluster, cut: cut.clone(), weight, unread: counted });
        drop(open);
        Ok(Session { sessions: self.clone(), number, key, cut, unread })
    }

    /// Ends the open requests from each namespace to each cluster for which this returns true, but none that is opened
    /// later.
    pub(crate) fn cut(&self, is_cut: impl Fn(&Namespace, &ClusterName) -> bool) {
        for (namespace, of_namespace) in &*self.0.open.lock() {
            let mut decided = HashMap::new();
            for Open { cluster, cut, .. } in of_namespace.by_number.values() {
                if *decided.entry(cluster).or_insert_with(|| is_cut(namespace, cluster)) {
                    cut.cancel();
                }
            }
        }
    }

    /// Ends the request with the most unread bytes, of a namespace or of the one that has the most.
    fn cut_largest(&self, namespace: Option<&Namespace>) {
        let open = self.0.open.lock();
        let of_namespace = match namespace {
            Some(namespace) => open.get(namespace),
            None => open.values().max_by_key(|open| open.unread.load(Ordering::Relaxed)),
        };
        let of_namespace = of_namespace.into_iter().flat_map(|open| open.by_number.values());
        if let Some(largest) = of_namespace.max_by_key(|open| open.unread.bytes()) {
            largest.unread.write_off();
            largest.cut.cancel();
        }
    }
}

impl Session {
    /// Counts a part of a body.
    pub(crate) fn count(&self, bytes: Bytes) -> Part {
        Part { _held: Some(self.hold(bytes.len())), bytes }
    }

    /// Counts bytes that it holds.
    pub(crate) fn hold(&self, length: usize) -> Held {
        let limits = self.sessions.0.unread_limits;
        self.unread.add(length);
        if self.unread.of_namespace.load(Ordering::Relaxed) > limits.of_namespace {
            self.sessions.cut_largest(Some(&self.key.namespace));
        } else if self.sessions.0.unread.load(Ordering::Relaxed) > limits.all {
            self.sessions.cut_largest(None);
        }
        Held { length, unread: Arc::clone(&self.unread) }
    }

    /// Whether it had to end for its unread bytes, and not with its grant.
    pub(crate) fn is_too_slow(&self) -> bool {
        self.unread.bytes.lock().is_none()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut open = self.sessions.0.open.lock();
        let Some(of_namespace) = open.get_mut(&self.key.namespace) else { return };
        of_namespace.by_number.remove(&self.number);
        if of_namespace.by_number.is_empty() {
            open.remove(&self.key.namespace);
        }
    }
}

impl From<Bytes> for Part {
    /// A part that does not count.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, _held: None }
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

impl Drop for Held {
    fn drop(&mut self) {
        self.unread.remove(self.length);
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
        let sessions = Sessions::with(10, UnreadLimits { of_namespace: 60, all: 100 });
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
        // Its own namespace is full, and another has more.
        let (other, larger) = (open("third"), open("third"));
        let _of_larger = larger.count(part(40));
        let _of_other = other.count(part(21));
        assert!(larger.cut.is_cancelled() && !other.cut.is_cancelled() && !honest.cut.is_cancelled());
    }
}
