//! What the API server of a hostile cluster does with a connection.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::{HeaderValue, LOCATION};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use strum::{IntoStaticStr, VariantArray};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

/// The greatest frame of HTTP/2 that a peer must accept.
const FRAME: usize = 16_384;
const PAUSE: Duration = Duration::from_millis(10);

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Act {
    /// Leaves dials without a response.
    NoDial,
    /// Neither reads nor writes.
    Silence,
    /// Sends noise into the tunnel, as fast as the proxy server takes it, whether or not it is read.
    TunnelFlood,
    /// Ends each connection at once.
    Reset,
    /// Ends each connection after the head of a response.
    ResetLater,
    /// Reads requests, and does not respond.
    NoResponse,
    /// Reads nothing after the handshakes.
    NoReading,
    /// The same, and asks for responses to PINGs without an end.
    Pings,
    /// Sends heads before the head of its response without an end, each of which is long in memory.
    Informational,
    /// Sends a head without an end.
    EndlessHead,
    /// Sends a body without an end, as fast as the client reads.
    EndlessBody,
    /// Sends a body without an end, whatever the client has asked it not to send.
    BodyFlood,
    /// Leads to another server.
    Redirect,
    /// Rejects the account.
    Unauthorized,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Act {
    /// The name of a cluster that acts like this.
    pub(crate) fn cluster(self) -> String {
        let name: &str = self.into();
        name.to_owned()
    }

    /// Acts on a connection, which ends with this.
    pub(crate) async fn on(self, mut connection: DuplexStream, server: Arc<ServerConfig>) {
        // An error is an end: the client has closed the connection.
        let _ = match self {
            Self::NoDial | Self::Reset => Ok(()),
            Self::Silence => pending().await,
            Self::TunnelFlood => flood(&mut connection, &[b'x'; FRAME]).await,
            _ => match TlsAcceptor::from(server).accept(connection).await {
                Ok(stream)
                    if matches!(
                        self,
                        Self::EndlessHead
                            | Self::Informational
                            | Self::BodyFlood
                            | Self::ResetLater
                    ) =>
                {
                    self.send_frames(stream).await
                }
                Ok(mut stream) if matches!(self, Self::NoReading | Self::Pings) => {
                    // Settings with the greatest window for each stream, and one for the connection.
                    let window = [b"\x00\x04".as_slice(), &(u32::MAX >> 1).to_be_bytes()].concat();
                    let update = frame(8, 0, 0, &(u32::MAX >> 2).to_be_bytes());
                    let _ = stream.write_all(&[frame(4, 0, 0, &window), update].concat()).await;
                    if self == Self::Pings {
                        let _ = flood(&mut stream, &frame(6, 0, 0, &[0; 8]).repeat(1000)).await;
                    }
                    pending().await
                }
                Ok(stream) => {
                    let service = service_fn(move |request| async move {
                        Ok::<_, Infallible>(self.respond(request).await)
                    });
                    let server = http2::Builder::new(TokioExecutor::new());
                    server
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                        .map_err(io::Error::other)
                }
                Err(error) => Err(error),
            },
        };
    }

    /// Reads until the first head, and then sends what no server may send.
    async fn send_frames(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        stream.write_all(&frame(4, 0, 0, b"")).await?;
        stream.read_exact(&mut [0; 24]).await?;
        let id = loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            stream.read_exact(&mut vec![0; length as usize]).await?;
            if head[3] == 1 {
                break u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            }
        };
        // The index of ":status: 200" in the static table of HPACK, with the flag of a complete head.
        let complete = frame(1, 4, id, b"\x88");
        match self {
            Self::ResetLater => stream.write_all(&complete).await,
            Self::BodyFlood => {
                stream.write_all(&complete).await?;
                flood(&mut stream, &frame(0, 0, id, &[b'x'; FRAME])).await
            }
            Self::Informational => {
                // ":status: 103", and a field that a byte names, as often as a list may have it.
                let head = [b"\x08\x03103".as_slice(), &[0x95; 400]].concat();
                let heads = frame(1, 4, id, &head).repeat(1 << 10);
                loop {
                    stream.write_all(&heads).await?;
                    // Each of them costs more time on the processor than other frames.
                    sleep(100 * PAUSE).await;
                }
            }
            _ => {
                stream.write_all(&frame(1, 0, id, b"\x88")).await?;
                // A field with the name "x" and 127 bytes.
                let field = [b"\x00\x01x\x7f\x00".as_slice(), &[b'x'; 127]].concat();
                flood(&mut stream, &frame(9, 0, id, &field.repeat(100))).await
            }
        }
    }

    async fn respond(self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let text = |text: String| Full::new(Bytes::from(text)).boxed_unsync();
        let mut response = Response::new(text(String::new()));
        match self {
            Self::NoResponse => pending().await,
            Self::EndlessBody => {
                let part = || Ok(Frame::data(Bytes::from_static(&[b'x'; FRAME])));
                let parts = stream::repeat_with(part).then(async |part| {
                    sleep(PAUSE).await;
                    part
                });
                *response.body_mut() = StreamBody::new(parts).boxed_unsync();
            }
            Self::Redirect => {
                *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
                let location = HeaderValue::from_static("https://elsewhere.example/");
                response.headers_mut().insert(LOCATION, location);
            }
            Self::Unauthorized => *response.status_mut() = StatusCode::UNAUTHORIZED,
            _ => {
                // A body that breaks off belongs to a request that is gone.
                let _ = body.collect().await;
                *response.body_mut() = text(parts.uri.path().to_owned());
            }
        }
        response
    }
}

/// Sends without an end, beyond every window within a second, at a rate that leaves time on the processors for others.
async fn flood(stream: &mut (impl AsyncWrite + Unpin), part: &[u8]) -> io::Result<()> {
    loop {
        stream.write_all(part).await?;
        sleep(PAUSE).await;
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
