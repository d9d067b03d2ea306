//! The open requests, by namespace: they end with the grant, and the bytes that they hold are limited.
//!
//! What one request holds is bounded by the windows and buffers of its two connections, and counted ([`Held`]): the bytes
//! of bodies that were read and not yet sent, and, while the next ones are not asked for, the window behind them. Beyond
//! the limit of a namespace or of the process ([`UNREAD`]), the request with the most of them ends, of that namespace or
//! of the one that has the most. What it has left, its connection holds until the client reads: beyond a limit of its own,
//! the connection with the most ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use hub_api::names::{ClusterName, Namespace, ProfileKey};
use hub_core::entry::Refusal;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::streams::Ends;

/// How many bytes may wait to be sent: those of 64 bodies of one namespace whose window is full; and what may be left of
/// requests that had to end for them.
const UNREAD: UnreadLimits = UnreadLimits { of_namespace: 6 << 20, all: 14 << 20, left: 8 << 20 };

/// Within this time, the tasks of a request that had to end are dropped, and its stream is reset if its client reads. Four
/// times as much may be left meanwhile.
const DROPPED_WITHIN: Duration = Duration::from_secs(1);

/// What a part takes beside its bytes: a cluster can send each byte in a frame of its own.
const PART: usize = 256;

/// The open requests.
#[derive(Clone)]
pub(crate) struct Sessions(Arc<Inner>);

#[derive(Clone, Copy)]
struct UnreadLimits {
    of_namespace: usize,
    all: usize,
    left: usize,
}

struct Inner {
    open: Mutex<HashMap<Namespace, OfNamespace>>,
    /// How many requests of one namespace may be open.
    limit: usize,
    next: AtomicUsize,
    /// The bytes of all requests that wait to be sent.
    unread: AtomicUsize,
    /// The bytes that are left of requests that had to end for them.
    left: AtomicUsize,
    unread_limits: UnreadLimits,
}

/// What is open from one namespace.
#[derive(Default)]
struct OfNamespace {
    to: HashMap<ClusterName, ToCluster>,
    /// As how many requests the open ones count.
    weight: usize,
    /// The bytes that wait to be sent.
    unread: Arc<AtomicUsize>,
}

/// What is open from one namespace to one cluster.
#[derive(Default)]
struct ToCluster {
    /// By number; also those that have ended, until nothing is left of them.
    requests: HashMap<usize, Arc<Request>>,
    /// As how many requests the open ones count.
    weight: usize,
}

impl OfNamespace {
    fn requests(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.to.values().flat_map(|to| to.requests.values())
    }
}

/// Some of the open requests.
#[derive(Clone, Copy)]
pub(crate) enum Open<'a> {
    All,
    From(&'a Namespace),
    To(&'a ClusterName),
}

/// What is known of a request, until nothing is left of it.
struct Request {
    sessions: Sessions,
    number: usize,
    /// From which namespace to which cluster.
    key: ProfileKey,
    /// As how many requests it counts while it is open.
    weight: usize,
    ends: Ends,
    /// Why it ends, if that is not its own end.
    why: OnceLock<Refusal>,
    /// The bytes of its namespace that wait to be sent.
    of_namespace: Arc<AtomicUsize>,
    unread: Mutex<Unread>,
}

/// The bytes of one request that wait to be sent.
#[derive(Default)]
struct Unread {
    bytes: usize,
    counted_in: CountedIn,
    /// Since when they count there.
    since: Option<Instant>,
    has_ended: bool,
    /// Ends the connection to the cluster that sends what is received from the client.
    uploads_in: Option<CancellationToken>,
}

/// Where the bytes of a request count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CountedIn {
    /// In those of its namespace and of all.
    #[default]
    Unread,
    /// In those that are left of requests that had to end for them.
    Left,
    /// Nowhere: its connection ends.
    Nowhere,
}

impl Request {
    fn counters(&self, counted_in: CountedIn) -> impl Iterator<Item = &AtomicUsize> {
        let of_all = &self.sessions.0;
        let counters = match counted_in {
            CountedIn::Unread => [Some(&*self.of_namespace), Some(&of_all.unread)],
            CountedIn::Left => [Some(&of_all.left), None],
            CountedIn::Nowhere => [None, None],
        };
        counters.into_iter().flatten()
    }

    /// How many bytes count there.
    fn bytes(&self, counted_in: CountedIn) -> usize {
        let unread = self.unread.lock();
        if unread.counted_in == counted_in { unread.bytes } else { 0 }
    }

    fn add(&self, length: usize) {
        let mut unread = self.unread.lock();
        unread.bytes += length;
        self.counters(unread.counted_in)
            .for_each(|counter| _ = counter.fetch_add(length, Ordering::Relaxed));
    }

    /// Returns whether nothing is left of a request that has ended.
    fn remove(&self, length: usize) -> bool {
        let mut unread = self.unread.lock();
        unread.bytes -= length;
        self.counters(unread.counted_in)
            .for_each(|counter| _ = counter.fetch_sub(length, Ordering::Relaxed));
        unread.has_ended && unread.bytes == 0
    }

    /// Counts the bytes elsewhere.
    fn count(&self, counted_in: CountedIn) {
        let mut unread = self.unread.lock();
        unread.since = Some(Instant::now());
        let (before, bytes) = (std::mem::replace(&mut unread.counted_in, counted_in), unread.bytes);
        self.counters(before).for_each(|counter| _ = counter.fetch_sub(bytes, Ordering::Relaxed));
        self.counters(counted_in)
            .for_each(|counter| _ = counter.fetch_add(bytes, Ordering::Relaxed));
    }

    /// Whether they have counted there for longer than it takes to drop what no client has to read.
    fn stays(&self) -> bool {
        self.unread.lock().since.is_some_and(|since| since.elapsed() > DROPPED_WITHIN)
    }

    /// The request has ended. Returns whether nothing is left of it.
    fn end(&self) -> bool {
        let mut unread = self.unread.lock();
        unread.has_ended = true;
        unread.bytes == 0
    }

    fn end_stream(&self) {
        let _ = self.why.set(Refusal::TooSlow(self.key.clone()));
        self.count(CountedIn::Left);
        self.ends.stream.cancel();
    }

    /// Ends the connection to the cluster, if that may hold what is left, and otherwise that of the client.
    fn end_connection(&self) {
        let uploads_in = self.unread.lock().uploads_in.take();
        if let Some(uploads_in) = uploads_in {
            self.count(CountedIn::Left);
            uploads_in.cancel();
        } else {
            self.count(CountedIn::Nowhere);
            self.ends.connection.cancel();
        }
    }
}

/// One open request, until it is dropped.
pub struct Session {
    /// Cancelled when the grant ends, or the request has to end for what it holds.
    pub cut: CancellationToken,
    request: Arc<Request>,
}

/// Bytes that a request holds, which count until this is dropped.
pub(crate) struct Held {
    length: usize,
    request: Arc<Request>,
}

/// A part of a body, and the head before it. They count until they have been sent, which is when this is dropped.
pub(crate) struct Part {
    bytes: Bytes,
    _held: Option<Held>,
    _head: Option<Held>,
}

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Self::with(limit, UNREAD)
    }

    fn with(limit: usize, unread_limits: UnreadLimits) -> Self {
        let (open, next, unread, left) = Default::default();
        Self(Arc::new(Inner { open, limit, next, unread, left, unread_limits }))
    }

    /// Opens a request that counts as `weight` requests, before its grant is decided: a grant that ends meanwhile cuts
    /// it. One cluster leaves half of the namespace's requests to the others, since it can keep its own open.
    pub(crate) fn open(
        &self,
        key: ProfileKey,
        weight: usize,
        ends: Ends,
    ) -> Result<Session, Refusal> {
        let mut open = self.0.open.lock();
        let from = open.entry(key.namespace.clone()).or_default();
        let (limit, of_cluster) = (self.0.limit, self.0.limit.div_ceil(2));
        if from.weight >= limit {
            return Err(Refusal::TooManyRequests { namespace: key.namespace, limit });
        }
        let to = from.to.entry(key.cluster.clone()).or_default();
        if to.weight >= of_cluster {
            return Err(Refusal::TooManyToCluster { key, limit: of_cluster });
        }
        to.weight += weight;
        from.weight += weight;
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let request = Arc::new(Request {
            sessions: self.clone(),
            number,
            key,
            weight,
            ends,
            why: OnceLock::new(),
            of_namespace: Arc::clone(&from.unread),
            unread: Mutex::default(),
        });
        to.requests.insert(number, Arc::clone(&request));
        Ok(Session { cut: request.ends.stream.clone(), request })
    }

    /// Of these open requests, ends those from a namespace to a cluster for which this returns a reason, but none that is
    /// opened later.
    pub(crate) fn cut(
        &self,
        of: Open<'_>,
        why: impl Fn(&Namespace, &ClusterName) -> Option<Refusal>,
    ) {
        let open = self.0.open.lock();
        let end = |namespace: &Namespace, cluster: &ClusterName, to: &ToCluster| {
            let Some(why) = why(namespace, cluster) else { return };
            for request in to.requests.values() {
                let _ = request.why.set(why.clone());
                request.ends.stream.cancel();
            }
        };
        let end_from = |namespace, from: &OfNamespace| {
            from.to.iter().for_each(|(cluster, to)| end(namespace, cluster, to));
        };
        match of {
            Open::All => open.iter().for_each(|(namespace, from)| end_from(namespace, from)),
            Open::From(namespace) => {
                open.get(namespace).into_iter().for_each(|from| end_from(namespace, from));
            }
            Open::To(cluster) => {
                let to = open.iter().filter_map(|(from, it)| Some((from, it.to.get(cluster)?)));
                to.for_each(|(namespace, to)| end(namespace, cluster, to));
            }
        }
    }

    /// Ends the request with the most unread bytes, of a namespace or of the one that has the most; or the connection of
    /// one that has ended by itself. If too much is left of such requests, the connection with the most ends.
    fn cut_largest(&self, namespace: Option<&Namespace>) {
        let open = self.0.open.lock();
        let of_namespace = match namespace {
            Some(namespace) => open.get(namespace),
            None => open.values().max_by_key(|open| open.unread.load(Ordering::Relaxed)),
        };
        match of_namespace.and_then(|it| largest(it.requests(), CountedIn::Unread)) {
            Some(largest) if largest.unread.lock().has_ended => largest.end_connection(),
            Some(largest) => largest.end_stream(),
            None => {}
        }
        let (left, limit) = (self.0.left.load(Ordering::Relaxed), self.0.unread_limits.left);
        if left > limit {
            let all = open.values().flat_map(OfNamespace::requests);
            let eligible = all.filter(|request| left > 4 * limit || request.stays());
            largest(eligible, CountedIn::Left).into_iter().for_each(Request::end_connection);
        }
    }

    /// Forgets a request of which nothing is left.
    fn forget(open: &mut HashMap<Namespace, OfNamespace>, request: &Request) {
        let ProfileKey { namespace, cluster } = &request.key;
        let Some(from) = open.get_mut(namespace) else { return };
        let Some(to) = from.to.get_mut(cluster) else { return };
        to.requests.remove(&request.number);
        if to.requests.is_empty() {
            from.to.remove(cluster);
        }
        if from.to.is_empty() {
            open.remove(namespace);
        }
    }
}

/// The request with the most bytes that count there.
fn largest<'a>(
    requests: impl Iterator<Item = &'a Arc<Request>>,
    counted_in: CountedIn,
) -> Option<&'a Request> {
    let with_bytes = requests.map(|request| (request.bytes(counted_in), &**request));
    let largest = with_bytes.max_by_key(|(bytes, _)| *bytes).filter(|(bytes, _)| *bytes > 0);
    largest.map(|(_, request)| request)
}

impl Session {
    /// From which namespace to which cluster.
    pub(crate) fn key(&self) -> &ProfileKey {
        &self.request.key
    }

    /// Counts a part of a body.
    pub(crate) fn count(&self, bytes: Bytes) -> Part {
        let held = Some(self.hold(bytes.len() + PART));
        Part { _held: held, ..bytes.into() }
    }

    /// Counts bytes that it holds.
    pub(crate) fn hold(&self, length: usize) -> Held {
        let Request { sessions, key, of_namespace, .. } = &*self.request;
        let limits = sessions.0.unread_limits;
        self.request.add(length);
        if of_namespace.load(Ordering::Relaxed) > limits.of_namespace {
            sessions.cut_largest(Some(&key.namespace));
        } else if sessions.0.unread.load(Ordering::Relaxed) > limits.all {
            sessions.cut_largest(None);
        }
        Held { length, request: Arc::clone(&self.request) }
    }

    /// The client's bytes are sent to the cluster in the connection that this ends.
    pub(crate) fn uploads_in(&self, connection: CancellationToken) {
        self.request.unread.lock().uploads_in = Some(connection);
    }

    /// Why it was cut: by default, since another request of its connection has left too much unread.
    pub(crate) fn why(&self) -> Refusal {
        self.request.why.get().cloned().unwrap_or_else(|| Refusal::TooSlow(self.key().clone()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Request { sessions, key, weight, .. } = &*self.request;
        let mut open = sessions.0.open.lock();
        if let Some(from) = open.get_mut(&key.namespace)
            && let Some(to) = from.to.get_mut(&key.cluster)
        {
            to.weight -= weight;
            from.weight -= weight;
        }
        if self.request.end() {
            Sessions::forget(&mut open, &self.request);
        }
    }
}

impl From<Bytes> for Part {
    /// A part that does not count.
    fn from(bytes: Bytes) -> Self {
        Self { bytes, _held: None, _head: None }
    }
}

impl Part {
    /// The part after a head.
    pub(crate) fn after(self, head: Held) -> Self {
        Self { _head: Some(head), ..self }
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
        if self.request.remove(self.length) {
            Sessions::forget(&mut self.request.sessions.0.open.lock(), &self.request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, cluster: &str) -> ProfileKey {
        ProfileKey { namespace: namespace.into(), cluster: cluster.into() }
    }

    fn open(
        sessions: &Sessions,
        namespace: &str,
        cluster: &str,
        weight: usize,
    ) -> Result<Session, Refusal> {
        sessions.open(key(namespace, cluster), weight, Ends::default())
    }

    #[test]
    fn a_cut_ends_what_is_open_of_that_pair_and_nothing_that_is_opened_later() {
        let sessions = Sessions::new(10);
        let open = |namespace, cluster| {
            open(&sessions, namespace, cluster, 1).unwrap_or_else(|_| panic!())
        };
        let (first, second) = (open("team", "one"), open("team", "one"));
        let others = [open("team", "two"), open("other", "one")];
        let ended = |namespace: &Namespace, cluster: &ClusterName| {
            Refusal::GrantEnded(cluster.in_namespace(namespace))
        };
        sessions.cut(Open::All, |namespace, cluster| {
            (namespace.as_str() == "team" && cluster.as_str() == "one")
                .then(|| ended(namespace, cluster))
        });
        assert_eq!(first.why(), Refusal::GrantEnded(key("team", "one")));
        assert!(first.cut.is_cancelled() && second.cut.is_cancelled());
        assert!(others.iter().all(|other| !other.cut.is_cancelled()));
        let later = open("team", "one");
        drop((first, second));
        assert!(!later.cut.is_cancelled());
        drop((later, others));
        assert!(sessions.0.open.lock().is_empty(), "nothing is left");
    }

    #[test]
    fn a_cut_of_a_cluster_or_a_namespace_concerns_its_requests_alone() {
        let sessions = Sessions::new(10);
        let pairs = [("team", "one"), ("team", "two"), ("other", "one")];
        let open =
            pairs.map(|(from, to)| open(&sessions, from, to, 1).unwrap_or_else(|_| panic!()));
        let is_cut = || [0, 1, 2].map(|number| open[number].cut.is_cancelled());
        let why = |_: &Namespace, _: &ClusterName| Some(Refusal::ShuttingDown);
        sessions.cut(Open::From(&"other".into()), why);
        assert_eq!(is_cut(), [false, false, true]);
        sessions.cut(Open::To(&"one".into()), why);
        assert_eq!(is_cut(), [true, false, true]);
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

    fn unread(sessions: &Sessions) -> usize {
        sessions.0.unread.load(Ordering::Relaxed)
    }

    #[test]
    fn too_many_unread_bytes_end_the_request_with_the_most_of_the_namespace_with_the_most() {
        let sessions = Sessions::with(10, UnreadLimits { of_namespace: 60, all: 100, left: 1000 });
        let open = |namespace| open(&sessions, namespace, "one", 1).unwrap_or_else(|_| panic!());
        let (honest, slow, slower) = (open("team"), open("other"), open("other"));
        let of_honest = honest.hold(45);
        let (_of_slow, of_slower) = (slow.hold(20), slower.hold(30));
        assert!(!slow.cut.is_cancelled() && !slower.cut.is_cancelled());
        let _more = honest.hold(4);
        let _last = slow.hold(2);
        assert!(
            slower.cut.is_cancelled() && slower.why() == Refusal::TooSlow(slower.key().clone())
        );
        assert!(![&honest, &slow].iter().any(|session| session.cut.is_cancelled()));
        // Its bytes are not counted twice when they are dropped at last.
        drop(of_slower);
        assert_eq!(unread(&sessions), 71);
        drop(of_honest);
        assert_eq!(unread(&sessions), 26);
        // Its own namespace is full, and another has more.
        let (other, larger) = (open("third"), open("third"));
        let _of_larger = larger.hold(40);
        let _of_other = other.hold(21);
        assert!(
            larger.cut.is_cancelled() && !other.cut.is_cancelled() && !honest.cut.is_cancelled()
        );
    }

    #[test]
    fn what_is_left_of_requests_counts_until_it_is_sent_and_too_much_of_it_ends_its_connection() {
        let sessions = Sessions::with(10, UnreadLimits { of_namespace: 60, all: 100, left: 50 });
        let open = || {
            let ends = Ends::default();
            (sessions.open(key("team", "one"), 1, ends.clone()).unwrap_or_else(|_| panic!()), ends)
        };
        // It has ended by itself, and its client does not read its end.
        let ((ended, of_ended), (next, _)) = (open(), open());
        let left_of_ended = ended.hold(40);
        drop(ended);
        assert_eq!(unread(&sessions), 40);
        let of_next = next.hold(30);
        assert!(of_ended.connection.is_cancelled() && !next.cut.is_cancelled());
        drop((left_of_ended, of_next, next));
        assert!(unread(&sessions) == 0 && sessions.0.open.lock().is_empty(), "nothing is left");

        // They are cut, and what is left of them adds up.
        let cut: Vec<_> = (0..2).map(|_| open()).collect();
        let held: Vec<_> = cut.iter().map(|(session, _)| session.hold(150)).collect();
        let ends = |is: fn(&Ends) -> &CancellationToken| {
            cut.iter().filter(|(_, it)| is(it).is_cancelled()).count()
        };
        assert_eq!((ends(|it| &it.stream), ends(|it| &it.connection)), (2, 1));
        drop(cut);
        drop(held);
        assert!(sessions.0.left.load(Ordering::Relaxed) == 0 && sessions.0.open.lock().is_empty());
    }
}
