//! The connection to the proxy server, and the dials over it.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::Uri;
use http::uri::PathAndQuery;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::Streaming;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;
use tower::{ServiceExt as _, service_fn};

use crate::credentials::Credentials;
use crate::packet::{CloseDial, CloseRequest, DialRequest, METHOD, Packet, Payload};
use crate::tunnel::{Budget, OUTGOING, Tunnel};

/// Timeout of a connection to the proxy server, with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a dial: less than that of the proxy server, 30 seconds.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of PINGs. gRPC servers in Go end a connection that has more than one in five minutes, or any without a
/// stream (<https://pkg.go.dev/google.golang.org/grpc/keepalive#EnforcementPolicy>).
const PING_INTERVAL: Duration = Duration::from_mins(6);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// TCP keepalive, which detects a proxy server that is gone without closing the connection.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 2;
/// Flow-control windows for what the proxy server sends. Tunnels are always read, so these limit only the bandwidth.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// How much of the proxy server's error text is kept.
const ERROR_LENGTH: usize = 200;

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No credentials have been set.
    #[error("there is no client certificate for the proxy server yet")]
    NoCredentials,
    /// The proxy server does not respond in time, or refuses the connection.
    #[error("the proxy server cannot be reached: {0}")]
    Unreachable(#[source] io::Error),
    /// The connection to the proxy server ended during the dial.
    #[error("the proxy server ended the dial: {0}")]
    Ended(String),
    /// The proxy server has no agent of the cluster, or the agent cannot connect.
    #[error("{0}")]
    Refused(String),
    /// There was no response.
    #[error("the agent of the cluster did not respond in time")]
    TimedOut,
}

/// Dials through a proxy server. Clones share the connection.
#[derive(Clone)]
pub struct Dialer(Arc<Inner>);

struct Inner {
    host: String,
    port: u16,
    credentials: watch::Sender<Option<Credentials>>,
    connection: Mutex<Option<Connection>>,
}

/// A connection, and the credentials that it was made with.
struct Connection {
    config: Arc<ClientConfig>,
    sender: SendRequest<Body>,
}

impl Dialer {
    /// A dialer for the proxy server at this host and port. It connects when it dials.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        let (host, credentials, connection) = (host.into(), watch::Sender::new(None), Mutex::new(None));
        Self(Arc::new(Inner { host, port, credentials, connection }))
    }

    /// Sets the credentials for later connections. Existing tunnels keep their connection.
    pub fn set_credentials(&self, credentials: Credentials) {
        self.0.credentials.send_replace(Some(credentials));
    }

    /// Whether the proxy server accepts a connection with the credentials.
    pub async fn check(&self) -> Result<(), DialError> {
        self.connection().await.map(drop)
    }

    /// Connects to an address, from the agent that is registered for its host.
    pub async fn dial(&self, address: &str, budget: &Budget) -> Result<Tunnel, DialError> {
        let first = self.connection().await?;
        match dial(first.clone(), address, budget).await {
            // The proxy server had closed an idle connection, and nothing was sent to the cluster: dial once more.
            Err(DialError::Ended(_)) if first.is_closed() => {
                dial(self.connection().await?, address, budget).await
            }
            result => result,
        }
    }

    async fn connection(&self) -> Result<SendRequest<Body>, DialError> {
        let credentials = self.0.credentials.borrow().clone();
        let Credentials(config) = credentials.ok_or(DialError::NoCredentials)?;
        let mut connection = self.0.connection.lock().await;
        if let Some(connection) = &*connection
            && !connection.sender.is_closed()
            && Arc::ptr_eq(&connection.config, &config)
        {
            return Ok(connection.sender.clone());
        }
        let connecting = timeout(CONNECT_TIMEOUT, connect(&self.0.host, self.0.port, Arc::clone(&config)));
        let sender = connecting.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let sender = sender.map_err(DialError::Unreachable)?;
        *connection = Some(Connection { config, sender: sender.clone() });
        Ok(sender)
    }
}

async fn connect(host: &str, port: u16, config: Arc<ClientConfig>) -> io::Result<SendRequest<Body>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE_AFTER));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    let uri: Uri = format!("http://{host}:{port}").parse().map_err(io::Error::other)?;
    let tcp = connector.oneshot(uri).await.map_err(io::Error::other)?.into_inner();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let tls = TlsConnector::from(config).connect(name, tcp).await?;
    let handshake = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .handshake(TokioIo::new(tls));
    let (sender, connection) = handshake.await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("the connection to the proxy server has ended: {error}");
        }
    });
    Ok(sender)
}

async fn dial(mut sender: SendRequest<Body>, address: &str, budget: &Budget) -> Result<Tunnel, DialError> {
    let random = fastrand::i64(1..);
    let request = DialRequest { protocol: "tcp".to_owned(), address: address.to_owned(), random };
    let (packets, mut receiver) = mpsc::channel(OUTGOING);
    let connected = Arc::new(OnceLock::new());
    let known_id = Arc::clone(&connected);
    let outgoing = stream::once(std::future::ready(Packet::of(Payload::DialRequest(request))))
        .chain(stream::poll_fn(move |context| receiver.poll_recv(context)))
        .chain(stream::once(async move { closing(random, known_id.get().copied()) }));
    let response = async {
        sender.ready().await.map_err(|error| DialError::Ended(error.to_string()))?;
        let channel = service_fn(|request| sender.send_request(request));
        let mut client = Grpc::with_origin(channel, Uri::from_static("https://proxy"));
        let request = tonic::Request::new(outgoing);
        let path = PathAndQuery::from_static(METHOD);
        let packets = client.streaming(request, path, ProstCodec::<Packet, Packet>::default()).await;
        let mut packets = packets.map_err(|status| ended(&status))?.into_inner();
        let connect_id = accepted(&mut packets, random).await?;
        Ok((packets, connect_id))
    };
    let (incoming, connect_id) = timeout(DIAL_TIMEOUT, response).await.map_err(|_| DialError::TimedOut)??;
    let _ = connected.set(connect_id);
    Ok(Tunnel::new(connect_id, packets, incoming, budget.clone()))
}

/// The last packet of a stream: it closes the connection, or the dial if there is none yet.
fn closing(random: i64, connect_id: Option<i64>) -> Packet {
    Packet::of(match connect_id {
        None => Payload::CloseDial(CloseDial { random }),
        Some(connect_id) => Payload::CloseRequest(CloseRequest { connect_id }),
    })
}

/// Waits for the response to a dial, and returns its `connect_id`.
pub(crate) async fn accepted(packets: &mut Streaming<Packet>, random: i64) -> Result<i64, DialError> {
    loop {
        let packet = packets.message().await.map_err(|status| ended(&status))?;
        let packet = packet.ok_or_else(|| DialError::Ended("it closed the stream".to_owned()))?;
        match packet.payload {
            Some(Payload::DialResponse(response)) if response.random == random => {
                return if response.error.is_empty() {
                    Ok(response.connect_id)
                } else {
                    Err(DialError::Refused(shortened(&response.error)))
                };
            }
            Some(Payload::CloseDial(_) | Payload::CloseResponse(_)) => {
                return Err(DialError::Refused("the agent of the cluster closed the dial".to_owned()));
            }
            _ => {}
        }
    }
}

fn ended(status: &tonic::Status) -> DialError {
    DialError::Ended(shortened(status.message()))
}

/// The beginning of a text of the proxy server or of an agent, which reaches terminals in messages of this project.
fn shortened(text: &str) -> String {
    object_names::visible(&text.chars().take(ERROR_LENGTH).collect::<String>())
}
