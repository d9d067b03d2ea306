//! The connections of applications: those without an open request are limited, so that clients that only hold
//! connections do not keep others out.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The connections without an open request, oldest first. Clones share them.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Mutex<Idle>>);

struct Idle {
    connections: BTreeMap<u64, AbortHandle>,
    next: u64,
    limit: usize,
}

/// One connection. It has ended when it is dropped, also if its task is aborted.
pub(crate) struct Connection {
    connections: Connections,
    state: Mutex<State>,
}

struct State {
    abort: AbortHandle,
    requests: usize,
    /// Its number among the idle connections, if it is idle.
    idle: Option<u64>,
}

/// An open request of a connection.
pub(crate) struct OpenRequest(Arc<Connection>);

impl Connections {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Idle { connections: BTreeMap::new(), next: 0, limit })))
    }

    /// A new connection, which is idle. Beyond the limit, the oldest idle one is closed.
    pub(crate) fn add(&self, abort: AbortHandle) -> Arc<Connection> {
        let idle = Some(self.idle(abort.clone()));
        Arc::new(Connection {
            connections: self.clone(),
            state: Mutex::new(State { abort, requests: 0, idle }),
        })
    }

    fn idle(&self, abort: AbortHandle) -> u64 {
        let mut idle = self.0.lock();
        let number = idle.next;
        idle.next += 1;
        idle.connections.insert(number, abort);
        if idle.connections.len() > idle.limit
            && let Some((_, oldest)) = idle.connections.pop_first()
        {
            oldest.abort();
        }
        number
    }

    fn remove(&self, number: u64) {
        self.0.lock().connections.remove(&number);
    }
}

impl Connection {
    /// Records that a request begins.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenRequest {
        let mut state = self.state.lock();
        state.requests += 1;
        if let Some(number) = state.idle.take() {
            self.connections.remove(number);
        }
        drop(state);
        OpenRequest(Arc::clone(self))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(number) = self.state.get_mut().idle {
            self.connections.remove(number);
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        if state.requests == 0 && !state.abort.is_finished() {
            state.idle = Some(self.0.connections.idle(state.abort.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_idle_connections_are_closed_and_none_with_a_request() {
        let connections = Connections::new(10);
        let connect = || {
            let task = tokio::spawn(std::future::pending::<()>());
            (connections.add(task.abort_handle()), task)
        };
        let (busy, busy_task) = connect();
        let request = busy.begin();
        let mut idle: Vec<_> = (0..30).map(|_| connect()).collect();
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
        assert_eq!(connections.0.lock().connections.len(), 9);
    }
}
