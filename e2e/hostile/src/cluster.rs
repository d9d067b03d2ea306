//! The API server of a cluster, which does what the path of a request says.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::Certificate;
use crate::act::Act;

const PART: usize = 16 << 10;
const WINDOW: u32 = 256 << 10;

pub struct Cluster {
    pub(crate) name: String,
    /// What it does that no API server may do.
    pub(crate) act: Option<Act>,
    pub certificate: Certificate,
    pub seen: Arc<Seen>,
}

/// What a cluster has seen.
#[derive(Default)]
pub struct Seen {
    uploaded: AtomicUsize,
    uploads_ended: AtomicUsize,
    responses_ended: AtomicUsize,
    floods_ended: AtomicUsize,
    stuck_ended: AtomicUsize,
}

impl Seen {
    /// The bytes of uploads to `/sink`.
    #[must_use]
    pub fn uploaded(&self) -> usize {
        self.uploaded.load(Ordering::SeqCst)
    }

    /// The requests to `/sink` of which both bodies have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.uploads_ended.load(Ordering::SeqCst).min(self.responses_ended.load(Ordering::SeqCst))
    }

    /// The requests to `/stuck` that have ended.
    #[must_use]
    pub fn stuck_ended(&self) -> usize {
        self.stuck_ended.load(Ordering::SeqCst)
    }

    /// The connections to `/flood` that have ended.
    #[must_use]
    pub fn floods_ended(&self) -> usize {
        self.floods_ended.load(Ordering::SeqCst)
    }
}

/// Counts one when it is dropped.
struct Ended(Arc<Seen>, fn(&Seen) -> &AtomicUsize);

impl Drop for Ended {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_add(1, Ordering::SeqCst);
    }
}

impl Cluster {
    pub(crate) fn new(name: String, act: Option<Act>) -> Self {
        Self { name, act, certificate: Self::certificate(), seen: Arc::default() }
    }

    /// An honest one, with such a [certificate](Self::certificate).
    #[must_use]
    pub fn honest(name: &str, certificate: Certificate) -> Self {
        Self { name: name.to_owned(), act: None, certificate, seen: Arc::default() }
    }

    /// A certificate for the API server of a cluster.
    #[must_use]
    pub fn certificate() -> Certificate {
        Certificate::new("kubernetes.default.svc")
    }

    pub(crate) fn serve(self: Arc<Self>, stream: DuplexStream) {
        if let Some(act) = self.act {
            tokio::spawn(async move { act.on(stream, self.certificate.server(&[b"h2"])).await });
            return;
        }
        let acceptor = TlsAcceptor::from(self.certificate.server(&[b"h2", b"http/1.1"]));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let end = CancellationToken::new();
            let ended = end.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                if request.uri().path() == "/end" {
                    end.cancel();
                }
                let cluster = Arc::clone(&self);
                async move { Ok::<_, Infallible>(cluster.respond(request).await) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            // As of an API server, whose connection has room for the windows of all streams.
            server.http2().max_concurrent_streams(250);
            server
                .http2()
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(250 * WINDOW);
            let serving = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
            // `/end` ends the connection, and everything on it.
            let _ = ended.run_until_cancelled(serving).await;
        });
    }

    async fn respond(
        &self,
        mut request: Request<Incoming>,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        assert!(request.headers().contains_key("impersonate-user"));
        let text = |text: String| Full::from(text).boxed_unsync();
        let seen = Arc::clone(&self.seen);
        match request.uri().path() {
            "/count" => match request.into_body().collect().await {
                Ok(body) => Response::new(text(body.to_bytes().len().to_string())),
                Err(_) => Response::new(text(String::new())),
            },
            "/watch" => {
                let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"{}\n")))]);
                Response::new(StreamBody::new(first.chain(stream::pending())).boxed_unsync())
            }
            // A head that takes as much memory as a head may, and no body.
            "/heads" => {
                let mut response = Response::new(text(String::new()));
                for _ in 0..400 {
                    response.headers_mut().append("x", HeaderValue::from_static(""));
                }
                response
            }
            "/hang" => std::future::pending().await,
            // Endless.
            "/large" => Response::new(endless(None)),
            // Endless, and all that is sent is read.
            "/sink" => {
                tokio::spawn(read(request.into_body(), Arc::clone(&seen)));
                Response::new(endless(Some(Ended(seen, |seen| &seen.responses_ended))))
            }
            // Nothing that is sent is read.
            "/stuck" => {
                let held = (request.into_body(), Ended(seen, |seen| &seen.stuck_ended));
                let held = stream::unfold(held, async |held| {
                    std::future::pending::<()>().await;
                    Some((Ok(Frame::data(Bytes::new())), held))
                });
                Response::new(StreamBody::new(held).boxed_unsync())
            }
            "/echo" | "/flood" => {
                let is_flood = request.uri().path() == "/flood";
                let upgraded = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let Ok(stream) = upgraded.await else { return };
                    let mut stream = TokioIo::new(stream);
                    let mut buffer = vec![0; PART];
                    if is_flood {
                        let _ended = Ended(seen, |seen| &seen.floods_ended);
                        while stream.write_all(&buffer).await.is_ok() {}
                        return;
                    }
                    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                        if stream.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
                let mut response = Response::new(text(String::new()));
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                response.headers_mut().insert(UPGRADE, HeaderValue::from_static("test"));
                response
            }
            path => Response::new(text(path.to_owned())),
        }
    }
}

async fn read(mut body: Incoming, seen: Arc<Seen>) {
    let _ended = Ended(Arc::clone(&seen), |seen| &seen.uploads_ended);
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        seen.uploaded.fetch_add(length, Ordering::SeqCst);
    }
}

fn endless(held: Option<Ended>) -> UnsyncBoxBody<Bytes, Infallible> {
    let parts = stream::unfold(held, async |held| {
        Some((Ok(Frame::data(Bytes::from_static(&[b'x'; PART]))), held))
    });
    StreamBody::new(parts).boxed_unsync()
}
