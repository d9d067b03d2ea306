//! The connections of the client, over HTTP/2 where the API server speaks it.
//!
//! hyper's client has one HTTP/2 connection, and lets requests wait while the streams of that one are in use. Watches use
//! them for minutes, so further clients serve further requests. A request without a response, such as one that has timed
//! out, casts doubt on its connection: later requests use another one, and the watches on it end by PINGs.

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::timeout;
use tower::BoxError;

/// Timeout of a response, up to its body: longer than the API server's own timeout.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(75);

/// HTTP/2 PINGs, which detect an API server that is frozen: after this time without data, a PING is sent, and has to be
/// acknowledged in time. Together with a new connection, this takes less than the 45 seconds of client-go.
const PING_AFTER: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// How many requests share a connection: fewer than the streams that an API server allows (100).
const STREAMS: usize = 80;

/// How much of a response may arrive before it is read, and of all responses on a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 2 << 20;

/// The clients, each with a value that every request on it holds.
type Clients<C> = Arc<Mutex<Vec<(Client<C, Body>, Arc<()>)>>>;

/// Sends requests. Clones share the connections.
#[derive(Clone)]
pub struct Connections<C> {
    connector: C,
    clients: Clients<C>,
}

impl<C: Connect + Clone + Send + Sync + 'static> Connections<C> {
    pub fn new(connector: C) -> Self {
        Self { connector, clients: Arc::default() }
    }

    /// Sends a request on a connection that has room for it.
    pub fn send(
        self,
        request: Request<Body>,
    ) -> impl Future<
        Output = Result<
            Response<impl http_body::Body<Data = Bytes, Error = hyper::Error>>,
            BoxError,
        >,
    > + Send
    + use<C> {
        let (client, open) = self.client();
        let mut doubt = Doubt { clients: Arc::clone(&self.clients), client: Some(open) };
        async move {
            let response = timeout(RESPONSE_TIMEOUT, client.request(request)).await??;
            let open = doubt.client.take();
            Ok(response.map(|body| {
                body.map_frame(move |frame| {
                    let _ = &open;
                    frame
                })
            }))
        }
    }

    fn client(&self) -> (Client<C, Body>, Arc<()>) {
        let mut clients = self.clients.lock();
        // One reference is the list's own.
        if let Some(client) = clients.iter().find(|(_, open)| Arc::strong_count(open) <= STREAMS) {
            return client.clone();
        }
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(PING_AFTER)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .build(self.connector.clone());
        clients.push((client, Arc::default()));
        clients[clients.len() - 1].clone()
    }
}

/// Takes a client out of use if it is dropped before a response.
struct Doubt<C> {
    clients: Clients<C>,
    client: Option<Arc<()>>,
}

impl<C> Drop for Doubt<C> {
    fn drop(&mut self) {
        if let Some(doubtful) = &self.client {
            self.clients.lock().retain(|(_, open)| !Arc::ptr_eq(open, doubtful));
        }
    }
}
