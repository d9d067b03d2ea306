//! One connection to the proxy server: the dials on it, and whether the proxy server still responds.
//!
//! A proxy server whose node has failed closes nothing. So every few seconds the connection has a call of gRPC's health
//! service on it, and any response will do, also that there is no such service. Without one, the connection is in
//! *doubt*: nothing new begins on it, and what is open stays until a PING fails as well. PINGs alone would not do: gRPC
//! servers in Go end a connection that has several in five minutes
//! (<https://pkg.go.dev/google.golang.org/grpc/keepalive#EnforcementPolicy>), unless they have sent something in between.

use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::{StreamExt as _, TryFutureExt as _, stream};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{Request, Uri};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;
use tower::{ServiceExt as _, service_fn};

use crate::body::{ReadToEnd, SendingTask, Tasks};
use crate::error::DialError;
use crate::packet::{CloseDial, CloseRequest, DialRequest, METHOD, Packet, Payload};
use crate::tunnel::{Budget, Carrier, OUTGOING, PACKET, Tunnel};

/// Timeout of a connection to the proxy server, with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a dial: less than that of the proxy server, 30 seconds.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of the calls, and how long the proxy server may take for a response until the connection is in doubt.
const CALL_INTERVAL: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// After this time without data, for which calls do not respond, a PING is sent. Streams end with its timeout.
const PING_INTERVAL: Duration = Duration::from_secs(7);
const PING_TIMEOUT: Duration = Duration::from_secs(8);
/// Flow-control windows for what the proxy server sends. That of a stream limits what waits in it, and its bandwidth; tunnels
/// are always read. That of the connection is far larger than what can wait: h2 ends a connection if what its waiting
/// frames are shorter than 256 bytes exceeds half of this window in total.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// What may wait in one tunnel for a proxy server that does not take it.
const SEND_BUFFER: usize = 64 << 10;
/// How much of the proxy server's error text is kept.
const ERROR_LENGTH: usize = 200;
/// Maximum of bytes in one message, which stays in memory until it is complete: twice as many as agents send.
const MESSAGE: usize = 2 * PACKET;

/// A connection to the proxy server.
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    carrier: Arc<Carrier>,
    config: Arc<ClientConfig>,
}

impl Connection {
    pub(crate) async fn open(
        host: String,
        port: u16,
        config: Arc<ClientConfig>,
    ) -> io::Result<Self> {
        let connecting = timeout(CONNECT_TIMEOUT, connect(&host, port, Arc::clone(&config)));
        let sender = connecting.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        let carrier = Arc::<Carrier>::default();
        tokio::spawn(call(sender.clone(), Arc::downgrade(&carrier)));
        Ok(Self { sender, carrier, config })
    }

    /// Whether nothing new should begin on it.
    pub(crate) fn is_over(&self) -> bool {
        self.sender.is_closed() || self.carrier.doubt.is_cancelled()
    }

    pub(crate) async fn dial(&self, address: &str, budget: &Budget) -> Result<Tunnel, DialError> {
        let random = self.random()?;
        let request =
            DialRequest { protocol: "tcp".to_owned(), address: address.to_owned(), random };
        let (packets, mut receiver) = mpsc::channel(OUTGOING);
        let (connected, over) = (Arc::new(OnceLock::new()), CancellationToken::new());
        let (known_id, sending) = (Arc::clone(&connected), SendingTask::default());
        let task = sending.clone();
        let data = stream::poll_fn(move |context| {
            task.record();
            receiver.poll_recv(context)
        });
        let outgoing = stream::once(std::future::ready(Packet::of(Payload::DialRequest(request))))
            .chain(data.take_until(over.clone().cancelled_owned()))
            .chain(stream::once(async move { closing(random, known_id.get().copied()) }));
        let mut sender = self.sender.clone();
        let response = async {
            sender.ready().await.map_err(|error| DialError::Ended(error.to_string()))?;
            let channel = service_fn(|request| {
                let (response, sending) = (sender.send_request(request), sending.clone());
                response.map_ok(|response| response.map(|body| ReadToEnd::new(body, sending)))
            });
            let mut client = Grpc::with_origin(channel, Uri::from_static("https://proxy"));
            let request = tonic::Request::new(outgoing);
            let path = PathAndQuery::from_static(METHOD);
            client = client.max_decoding_message_size(MESSAGE);
            let packets =
                client.streaming(request, path, ProstCodec::<Packet, Packet>::default()).await;
            let mut packets = packets.map_err(|status| ended(&status))?.into_inner();
            let connect_id = accepted(&mut packets, random).await?;
            Ok((packets, connect_id))
        };
        let response =
            self.carrier.doubt.run_until_cancelled(timeout(DIAL_TIMEOUT, response)).await;
        let response =
            response.ok_or_else(|| DialError::Ended("it does not respond".to_owned()))?;
        let (incoming, connect_id) = response.map_err(|_| DialError::TimedOut)??;
        let _ = connected.set(connect_id);
        let carrier = Arc::clone(&self.carrier);
        Ok(Tunnel::new(connect_id, packets, incoming, over, budget.clone(), carrier))
    }

    /// What identifies a dial. The proxy server matches the responses of all agents by it, so no agent may guess that of
    /// another one's dial.
    fn random(&self) -> Result<i64, DialError> {
        let mut bytes = [0; 8];
        let filled = self.config.crypto_provider().secure_random.fill(&mut bytes);
        filled.map_err(|_| DialError::NoRandom)?;
        Ok(i64::from_ne_bytes(bytes) & i64::MAX)
    }
}

async fn connect(
    host: &str,
    port: u16,
    config: Arc<ClientConfig>,
) -> io::Result<SendRequest<Body>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(PING_INTERVAL + PING_TIMEOUT));
    let uri: Uri = format!("http://{host}:{port}").parse().map_err(io::Error::other)?;
    let tcp = connector.oneshot(uri).await.map_err(io::Error::other)?.into_inner();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let tls = TlsConnector::from(config).connect(name, tcp).await?;
    let handshake = Builder::new(Tasks)
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        // h2 counts resets for late frames as long as the connection lives; the proxy server is trusted.
        .max_local_error_reset_streams(None)
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

/// Calls the health service again and again, as a task of its own, while the connection is used.
async fn call(mut sender: SendRequest<Body>, carrier: Weak<Carrier>) {
    while let Some(carrier) = carrier.upgrade()
        && !sender.is_closed()
    {
        let mut request = Request::post("https://proxy/grpc.health.v1.Health/Check");
        request = request.header(CONTENT_TYPE, "application/grpc").header("te", "trailers");
        let Ok(request) = request.body(Body::empty()) else { return };
        let response = async {
            // An error ends the connection, or is a response to this call.
            if sender.ready().await.is_ok() {
                let _ = sender.send_request(request).await;
            }
        };
        if timeout(CALL_TIMEOUT, response).await.is_err() && !carrier.doubt.is_cancelled() {
            tracing::warn!(
                "the proxy server does not respond: new requests use another connection to it"
            );
            carrier.doubt.cancel();
        }
        drop(carrier);
        sleep(CALL_INTERVAL).await;
    }
}

/// The last packet of a stream: it closes the connection, or the dial if there is none yet.
fn closing(random: i64, connect_id: Option<i64>) -> Packet {
    Packet::of(match connect_id {
        None => Payload::CloseDial(CloseDial { random }),
        Some(connect_id) => Payload::CloseRequest(CloseRequest { connect_id }),
    })
}

/// Waits for the response to a dial, and returns its `connect_id`.
pub(crate) async fn accepted(
    packets: &mut Streaming<Packet>,
    random: i64,
) -> Result<i64, DialError> {
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
                return Err(DialError::Refused(
                    "the agent of the cluster closed the dial".to_owned(),
                ));
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
