//! The connections of the client, over HTTP/2 where the API server speaks it.
//!
//! hyper's client has one HTTP/2 connection, and lets requests wait while the streams of that one are in use. Watches use
//! them for minutes, so further clients serve further requests. A request without a response, such as one that has timed
//! out, casts doubt on its connection: later requests use another one, and the watches on it end by PINGs.

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
        Output = Result<Response<impl http_body::Body<Data = Bytes, Error = hyper::Error>>, BoxError>,
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

#[cfg(test)]
pub(crate) mod tests {
    use std::convert::Infallible;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::{join_all, pending};
    use http_body_util::{Either, Full};
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use kube::{Client as Kube, Config};
    use tokio::net::TcpListener;
    use tokio::sync::watch;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    use super::*;
    use crate::connect::client;

    /// A certificate of an API server, which is its own trust anchor.
    pub(crate) fn certificate() -> (TlsAcceptor, rcgen::Certificate) {
        let issued = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        let mut config = config.with_single_cert(vec![issued.cert.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        (TlsAcceptor::from(Arc::new(config)), issued.cert)
    }

    /// An API server that responds to `/watch` with a body without an end, and to `/hang` never.
    pub(crate) struct Server {
        pub(crate) address: SocketAddr,
        accepted: Arc<AtomicUsize>,
        /// Counts up to freeze the connections that are open.
        frozen: watch::Sender<u32>,
        task: JoinHandle<()>,
    }

    impl Server {
        pub(crate) async fn start(tls: TlsAcceptor) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (accepted, frozen) = (Arc::default(), watch::Sender::default());
            let task = tokio::spawn(serve(listener, tls, Arc::clone(&accepted), frozen.clone()));
            Self { address, accepted, frozen, task }
        }

        /// Closes every connection, and goes on with another certificate.
        pub(crate) async fn restart(&mut self, tls: TlsAcceptor) {
            self.task.abort();
            let _ = (&mut self.task).await;
            let listener = TcpListener::bind(self.address).await.unwrap();
            self.task = tokio::spawn(serve(listener, tls, Arc::clone(&self.accepted), self.frozen.clone()));
        }

        /// Freezes the connections that are open, as a stopped process does: its kernel acknowledges what they receive.
        fn freeze(&self) {
            self.frozen.send_modify(|count| *count += 1);
        }

        async fn client(&self, trusted: &rcgen::Certificate) -> Kube {
            let mut config = Config::new(format!("https://{}", self.address).parse().unwrap());
            config.root_cert = Some(vec![trusted.der().to_vec()]);
            config.default_retry = false;
            client(config, Some("/nonexistent".as_ref())).await.unwrap()
        }
    }

    async fn serve(
        listener: TcpListener,
        tls: TlsAcceptor,
        accepted: Arc<AtomicUsize>,
        frozen: watch::Sender<u32>,
    ) {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, accepted, mut frozen) = (tls.clone(), Arc::clone(&accepted), frozen.subscribe());
            connections.spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = service_fn(async |request: Request<hyper::body::Incoming>| {
                    Ok::<_, Infallible>(Response::new(match request.uri().path() {
                        "/hang" => pending().await,
                        "/watch" => {
                            Either::Left(http_body_util::StreamBody::new(futures::stream::pending::<
                                Result<hyper::body::Frame<Bytes>, Infallible>,
                            >()))
                        }
                        _ => Either::Right(Full::from("ok")),
                    }))
                });
                accepted.fetch_add(1, Ordering::Relaxed);
                let serving = http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(100)
                    .serve_connection(TokioIo::new(stream), service);
                let mut serving = std::pin::pin!(serving);
                tokio::select! {
                    _ = &mut serving => {}
                    _ = frozen.changed() => pending().await,
                }
            });
        }
    }

    fn get(path: &str) -> Request<Vec<u8>> {
        Request::get(path).body(Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn watches_of_more_streams_than_a_connection_has_keep_no_request_waiting() {
        let (tls, trusted) = certificate();
        let server = Server::start(tls).await;
        let client = server.client(&trusted).await;
        // The first requests race for a connection, before one is known to have streams.
        assert_eq!(client.request_text(get("/")).await.unwrap(), "ok");
        let watches =
            join_all((0..300).map(async |_| client.request_stream(get("/watch")).await.unwrap())).await;
        for _ in 0..100 {
            assert_eq!(client.request_text(get("/")).await.unwrap(), "ok");
        }
        let connections = server.accepted.load(Ordering::Relaxed);
        drop(watches);
        assert!(connections >= 4, "{connections}");
    }

    #[tokio::test]
    async fn a_watch_on_a_frozen_api_server_ends_within_the_time_of_client_go() {
        let (tls, trusted) = certificate();
        let server = Server::start(tls).await;
        let client = server.client(&trusted).await;
        let mut watch = Box::pin(client.request_stream(get("/watch")).await.unwrap());
        server.freeze();
        tokio::time::pause();
        let begin = Instant::now();
        futures::AsyncBufReadExt::fill_buf(&mut watch).await.unwrap_err();
        let passed = begin.elapsed().as_secs();
        assert!(passed < 40, "{passed}");
    }

    #[tokio::test]
    async fn a_request_that_times_out_is_followed_by_others_on_another_connection() {
        let (tls, trusted) = certificate();
        let server = Server::start(tls).await;
        let client = server.client(&trusted).await;
        assert_eq!(client.request_text(get("/")).await.unwrap(), "ok");
        server.freeze();
        let lost = timeout(Duration::from_millis(100), client.request_text(get("/")));
        assert!(lost.await.is_err());
        assert_eq!(client.request_text(get("/")).await.unwrap(), "ok");
        assert_eq!(server.accepted.load(Ordering::Relaxed), 2);
    }
}
