//! Clients of a user server.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::Request;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::io::{ReaderStream, StreamReader};
use tokio_util::sync::CancellationToken;

use crate::Certificate;

pub type Body = UnsyncBoxBody<Bytes, Infallible>;
pub type H2 = http2::SendRequest<Body>;

/// A body without an end.
#[must_use]
pub fn endless() -> Body {
    let parts = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b'x'; 1000]))));
    StreamBody::new(parts).boxed_unsync()
}

#[derive(Clone)]
pub struct Client {
    server: SocketAddr,
    from: IpAddr,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    /// The size of the buffer for what is received, if it is not that of the system.
    buffer: Option<u32>,
}

impl Client {
    pub(crate) fn new(server: SocketAddr, from: IpAddr, certificate: &Certificate) -> Self {
        let (http1, http2) = (certificate.client(b"http/1.1"), certificate.client(b"h2"));
        Self { server, from, http1, http2, buffer: None }
    }

    /// The same from another address.
    #[must_use]
    pub fn from(&self, from: [u8; 4]) -> Self {
        Self { from: from.into(), ..self.clone() }
    }

    /// The same with a buffer that a few responses fill, so that a server notices that nothing is read.
    #[must_use]
    pub fn with_small_buffer(&self) -> Self {
        Self { buffer: Some(4096), ..self.clone() }
    }

    /// A connection without TLS.
    pub async fn tcp(&self) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.from, 0).into())?;
        if let Some(size) = self.buffer {
            socket.set_recv_buffer_size(size)?;
        }
        let stream = socket.connect(self.server).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn connect(&self, config: &Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = self.tcp().await?;
        TlsConnector::from(Arc::clone(config))
            .connect(ServerName::from(self.server.ip()), stream)
            .await
    }

    /// A connection for bytes of HTTP/1.1.
    pub async fn raw(&self) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect(&self.http1).await
    }

    /// A connection with HTTP/1.1.
    pub async fn http1(&self) -> std::io::Result<http1::SendRequest<Body>> {
        let stream = TokioIo::new(self.raw().await?);
        let (sender, connection) = http1::handshake(stream).await.map_err(std::io::Error::other)?;
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    /// A connection with HTTP/2 and these windows, and the task that ends with it.
    pub async fn http2(&self, window: u32) -> std::io::Result<(H2, JoinHandle<()>)> {
        self.http2_until(window, CancellationToken::new()).await
    }

    /// The same, which reads nothing more of its socket when the token is cancelled.
    pub async fn http2_until(
        &self,
        window: u32,
        stop: CancellationToken,
    ) -> std::io::Result<(H2, JoinHandle<()>)> {
        let (reader, writer) = tokio::io::split(self.connect(&self.http2).await?);
        let parts = (ReaderStream::new(reader), stop);
        let parts = stream::unfold(parts, async |(mut parts, stop)| {
            match stop.run_until_cancelled(parts.next()).await {
                Some(part) => Some((part?, (parts, stop))),
                None => std::future::pending().await,
            }
        });
        let stream = TokioIo::new(tokio::io::join(StreamReader::new(Box::pin(parts)), writer));
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .initial_stream_window_size(window)
            .initial_connection_window_size(window.max(65_535));
        let (sender, connection) =
            builder.handshake(stream).await.map_err(std::io::Error::other)?;
        Ok((sender, tokio::spawn(async move { drop(connection.await) })))
    }

    /// A request with a token, if it is not empty. HTTP/2 requires a whole URL, and HTTP/1.1 its path.
    #[must_use]
    pub fn request(url: &str, token: &str, body: Option<Body>) -> Request<Body> {
        let method = if body.is_some() { "POST" } else { "GET" };
        let mut request = Request::builder().method(method).uri(url).header("host", "hub");
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.body(body.unwrap_or_else(|| Full::default().boxed_unsync())).unwrap()
    }
}
