//! The connections of applications. Those without an admitted request are limited, in all and for each peer, so that
//! clients that only hold connections do not keep others out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, yield_now};

use crate::body::ResponseBody;

/// The part of the idle connections that one peer may have: behind a Service, all clients of a node can have its address.
const PEER_SHARE: usize = 4;
/// How many texts of ours may wait to be read on one connection.
const TEXTS: usize = 8;

/// Who connects: an address, or the network of an IPv6 address, which has 2^64 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// The connections without an admitted request, oldest first. Clones share them.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Mutex<Idle>>);

struct Idle {
    connections: BTreeMap<u64, (Peer, AbortHandle)>,
    by_peer: HashMap<Peer, BTreeSet<u64>>,
    next: u64,
    limit: usize,
}

/// One connection. It has ended when it is dropped, also if its task is aborted.
pub(crate) struct Connection {
    connections: Connections,
    pub(crate) peer: Peer,
    state: Mutex<State>,
    /// Each text of ours that has not been sent has a clone.
    texts: Arc<()>,
    /// Held by the refusal whose turn it is.
    refusing: Semaphore,
}

struct State {
    abort: AbortHandle,
    requests: usize,
    /// Its number among the idle connections, if it is idle.
    idle: Option<u64>,
}

/// An admitted request of a connection.
pub(crate) struct OpenRequest(Arc<Connection>);

impl Connections {
    pub(crate) fn new(limit: usize) -> Self {
        let idle = Idle { connections: BTreeMap::new(), by_peer: HashMap::new(), next: 0, limit };
        Self(Arc::new(Mutex::new(idle)))
    }

    /// A new connection, which is idle. Beyond the limits, the oldest idle one is closed: of the peer, or of all.
    pub(crate) fn add(&self, peer: Peer, abort: AbortHandle) -> Arc<Connection> {
        let idle = Some(self.0.lock().insert(peer, abort.clone()));
        let state = Mutex::new(State { abort, requests: 0, idle });
        Arc::new(Connection {
            connections: self.clone(),
            peer,
            state,
            texts: Arc::default(),
            refusing: Semaphore::new(1),
        })
    }
}

impl Idle {
    fn insert(&mut self, peer: Peer, abort: AbortHandle) -> u64 {
        let number = self.next;
        self.next += 1;
        self.connections.insert(number, (peer, abort));
        let of_peer = self.by_peer.entry(peer).or_default();
        of_peer.insert(number);
        let oldest = if of_peer.len() > self.limit.div_ceil(PEER_SHARE) {
            of_peer.first().copied()
        } else if self.connections.len() > self.limit {
            self.connections.keys().next().copied()
        } else {
            None
        };
        if let Some((_, abort)) = oldest.and_then(|oldest| self.remove(oldest)) {
            abort.abort();
        }
        number
    }

    fn remove(&mut self, number: u64) -> Option<(Peer, AbortHandle)> {
        let (peer, abort) = self.connections.remove(&number)?;
        if let Some(of_peer) = self.by_peer.get_mut(&peer) {
            of_peer.remove(&number);
            if of_peer.is_empty() {
                self.by_peer.remove(&peer);
            }
        }
        Some((peer, abort))
    }
}

impl Connection {
    /// Records that a request is admitted.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenRequest {
        let mut state = self.state.lock();
        state.requests += 1;
        if let Some(number) = state.idle.take() {
            self.connections.0.lock().remove(number);
        }
        drop(state);
        OpenRequest(Arc::clone(self))
    }

    /// Makes it the newest, if it is idle: a request came, which may wait for the review of its token.
    pub(crate) fn used(&self) {
        let mut state = self.state.lock();
        let mut connections = self.connections.0.lock();
        if let Some((peer, abort)) = state.idle.and_then(|number| connections.remove(number)) {
            state.idle = Some(connections.insert(peer, abort));
        }
    }

    /// Waits until a refusal of this connection is due: one each time that all other tasks have had their turn. A peer may
    /// send thousands of requests at once, each of which costs time on the processor.
    pub(crate) async fn refusal_is_due(&self) {
        let _due = self.refusing.acquire().await;
        yield_now().await;
    }

    /// A text of ours, which is left out while too many are unread.
    pub(crate) fn text(&self, text: String) -> ResponseBody {
        let held = Arc::clone(&self.texts);
        // One is that of the connection itself.
        let is_kept = Arc::strong_count(&held) <= TEXTS + 1;
        ResponseBody::Text { text: if is_kept { text.into() } else { Bytes::new() }, _held: held }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(number) = self.state.get_mut().idle {
            self.connections.0.lock().remove(number);
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        if state.requests == 0 && !state.abort.is_finished() {
            state.idle = Some(self.0.connections.0.lock().insert(self.0.peer, state.abort.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinHandle;

    use super::*;

    fn connect(connections: &Connections, peer: &str) -> (Arc<Connection>, JoinHandle<()>) {
        let task = tokio::spawn(std::future::pending::<()>());
        (connections.add(peer.parse::<IpAddr>().unwrap().into(), task.abort_handle()), task)
    }

    #[tokio::test]
    async fn the_oldest_idle_connections_are_closed_and_none_with_a_request() {
        let connections = Connections::new(10);
        let (busy, busy_task) = connect(&connections, "10.0.0.99");
        let request = busy.begin();
        let mut idle: Vec<_> =
            (0..30).map(|number| connect(&connections, &format!("10.0.0.{number}"))).collect();
        for (_, task) in idle.drain(..20) {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        assert!(!busy_task.is_finished() && idle.iter().all(|(_, task)| !task.is_finished()));
        // When its request has ended, it is the newest of those that are idle.
        drop(request);
        let (_, first) = idle.remove(0);
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(!busy_task.is_finished());
        drop(busy);
        let idle = connections.0.lock();
        assert_eq!((idle.connections.len(), idle.by_peer.len()), (9, 9));
    }

    #[tokio::test]
    async fn a_connection_whose_request_waits_for_its_review_is_not_the_oldest() {
        let connections = Connections::new(8);
        let (waiting, task) = connect(&connections, "10.0.0.99");
        let connect_others = |range: std::ops::Range<u8>| {
            range
                .map(|number| connect(&connections, &format!("10.0.0.{number}")))
                .collect::<Vec<_>>()
        };
        let _others = connect_others(0..7);
        waiting.used();
        let _more = connect_others(7..14);
        yield_now().await;
        assert!(!task.is_finished());
        let _last = connect_others(14..15);
        assert!(task.await.unwrap_err().is_cancelled());
        waiting.used();
        assert_eq!(
            connections.0.lock().connections.len(),
            8,
            "one that was closed does not come back"
        );
    }

    #[tokio::test]
    async fn a_peer_has_a_quarter_of_the_idle_connections_and_a_network_of_ipv6_is_one_peer() {
        let connections = Connections::new(8);
        let (_honest, honest_task) = connect(&connections, "10.0.0.1");
        for peers in [["10.0.0.2", "::ffff:10.0.0.2"], ["2001:db8::1", "2001:db8::f:2"]] {
            let hostile: Vec<_> =
                (0..20).map(|number| connect(&connections, peers[number % 2])).collect();
            for (number, (_connection, task)) in hostile.into_iter().enumerate() {
                if number < 18 {
                    assert!(task.await.unwrap_err().is_cancelled());
                } else {
                    assert!(!task.is_finished());
                }
            }
        }
        assert!(!honest_task.is_finished());
        let (_other, other_task) = connect(&connections, "2001:db8:0:1::1");
        assert!(!other_task.is_finished());
    }

    #[tokio::test]
    async fn the_refusals_of_one_connection_leave_every_other_task_a_turn_after_each() {
        const REFUSALS: usize = 100;
        let (connection, _task) = connect(&Connections::new(1), "10.0.0.1");
        let refused = Arc::new(AtomicUsize::new(0));
        for _ in 0..REFUSALS {
            let (connection, refused) = (Arc::clone(&connection), Arc::clone(&refused));
            tokio::spawn(async move {
                connection.refusal_is_due().await;
                refused.fetch_add(1, Ordering::SeqCst);
            });
        }
        let mut turns = 0;
        while refused.load(Ordering::SeqCst) < REFUSALS {
            yield_now().await;
            turns += 1;
        }
        assert!(turns >= REFUSALS, "{turns}");
    }

    #[tokio::test]
    async fn texts_that_are_not_read_are_left_out() {
        let (connection, _task) = connect(&Connections::new(1), "10.0.0.1");
        let text = || connection.text("refused".to_owned());
        let is_empty = |body: &ResponseBody| matches!(body, ResponseBody::Text { text, .. } if text.is_empty());
        let mut unread: Vec<_> = (0..TEXTS).map(|_| text()).collect();
        assert!(!unread.iter().any(is_empty) && is_empty(&text()));
        unread.pop();
        assert!(!is_empty(&text()));
    }
}
