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
        self.task =
            tokio::spawn(serve(listener, tls, Arc::clone(&self.accepted), self.frozen.clone()));
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
