//! Dials and tunnels, on a proxy server that a test controls. `crates/hub-addons/tests/field/own_identity` uses upstream's
//! own.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use konnectivity::packet::{CloseResponse, Data, DialResponse, Drain, Packet, Payload};
use konnectivity::{Budget, Credentials, DialError, Dialer, Tunnel};
use local_hub::Relay;
use prost::Message as _;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How many bytes may wait to be read in a tunnel.
const BUFFER_LIMIT: usize = 8 << 20;

/// Longer than anything takes: a test that waits for so long has failed.
const SOON: Duration = Duration::from_mins(1);

/// The number of packets with one byte each. They exceed the window of a stream, so all are sent only if they are read.
const CRUMBS: usize = 50_000;

/// A proxy server whose agents do what the host of a dial says.
struct Proxy {
    address: SocketAddr,
    credentials: Credentials,
    connections: Arc<AtomicUsize>,
    counts: Counts,
    /// The closing packets that it has received, and a `Drain` for each deaf stream that was reset.
    closed: mpsc::UnboundedReceiver<Payload>,
    task: JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Counts {
    /// How many packets it has sent.
    sent: Arc<AtomicUsize>,
    /// How many bytes of data it has received.
    received: Arc<AtomicUsize>,
}

impl Proxy {
    async fn start() -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let (pem, key) = (cert.pem(), signing_key.serialize_pem());
        let credentials =
            Credentials::from_pem(pem.as_bytes(), pem.as_bytes(), key.as_bytes()).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, closed) = mpsc::unbounded_channel();
        let connections = Arc::<AtomicUsize>::default();
        let counts = Counts::default();
        let (count, counted) = (Arc::clone(&connections), counts.clone());
        let task = tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (acceptor, sender, counted) =
                    (acceptor.clone(), sender.clone(), counted.clone());
                serving.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let response = respond(request, sender.clone(), &counted);
                        std::future::ready(Ok::<_, Infallible>(response))
                    });
                    let server = http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, credentials, connections, counts, closed, task }
    }

    fn dialer(&self) -> Dialer {
        let dialer = Dialer::new("127.0.0.1", self.address.port());
        dialer.set_credentials(self.credentials.clone());
        dialer
    }
}

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

fn respond(
    request: Request<Incoming>,
    closed: mpsc::UnboundedSender<Payload>,
    counts: &Counts,
) -> Response<Body> {
    if request.uri().path() != "/ProxyService/Proxy" {
        // As gRPC servers respond to a call of a service that they do not have.
        let response = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", 12);
        return response.body(http_body_util::Empty::new().boxed_unsync()).unwrap();
    }
    let (answers, receiver) = mpsc::unbounded_channel::<Packet>();
    let Counts { sent, received } = counts.clone();
    tokio::spawn(act(request.into_body(), answers, closed, received));
    let frames = packets(receiver).map(move |packet| {
        sent.fetch_add(1, Ordering::SeqCst);
        let mut message = BytesMut::new();
        message.put_u8(0);
        message.put_u32(packet.encoded_len().try_into().unwrap());
        packet.encode(&mut message).unwrap();
        Ok::<_, Infallible>(Frame::data(message.freeze()))
    });
    let body = StreamBody::new(frames).boxed_unsync();
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

fn packets(mut receiver: mpsc::UnboundedReceiver<Packet>) -> impl futures::Stream<Item = Packet> {
    futures::stream::poll_fn(move |context| receiver.poll_recv(context))
}

/// What the agent of a host does with a dial and with data.
async fn act(
    body: Incoming,
    answers: mpsc::UnboundedSender<Packet>,
    closed: mpsc::UnboundedSender<Payload>,
    received: Arc<AtomicUsize>,
) {
    const ID: i64 = 7;
    let send = |payload| drop(answers.send(Packet::of(payload)));
    let data = |data: Bytes| Payload::Data(Data { connect_id: ID, error: String::new(), data });
    let (mut frames, mut buffer) = (body.into_data_stream(), BytesMut::new());
    while let Ok(Some(frame)) = frames.try_next().await {
        buffer.put(frame);
        while buffer.len() >= 5 {
            let length =
                usize::try_from(u32::from_be_bytes(buffer[1..5].try_into().unwrap())).unwrap();
            if buffer.len() < 5 + length {
                break;
            }
            buffer.advance(5);
            match Packet::decode(buffer.split_to(length)).unwrap().payload.unwrap() {
                Payload::DialRequest(dial) => {
                    assert_eq!(dial.protocol, "tcp");
                    let host = dial.address.strip_suffix(":443").unwrap();
                    let error = match host {
                        "refused" => "No agent available".to_owned(),
                        "hostile" => {
                            format!("\u{1b}[2J\u{202e}{}", dial.random) + &"x".repeat(1000)
                        }
                        _ => String::new(),
                    };
                    send(Payload::DialResponse(DialResponse {
                        error,
                        connect_id: ID,
                        random: dial.random,
                    }));
                    match host {
                        "flood" => {
                            let part = Bytes::from(vec![1; 65_536]);
                            for _ in 0..=BUFFER_LIMIT / part.len() {
                                send(data(part.clone()));
                            }
                        }
                        // More than its tunnel holds, and then crumbs.
                        "crumbs" => {
                            send(data(Bytes::from(vec![1; 65_536])));
                            for _ in 0..CRUMBS {
                                send(data(Bytes::from_static(b"1")));
                            }
                        }
                        // Only its bytes are data, and only those would count.
                        "large" => {
                            let error = "x".repeat(1 << 20);
                            send(Payload::Data(Data {
                                connect_id: ID,
                                error,
                                data: Bytes::from_static(b"1"),
                            }));
                        }
                        // It takes nothing more, and keeps the stream.
                        "deaf" => {
                            answers.closed().await;
                            drop(closed.send(Payload::Drain(Drain {})));
                            return;
                        }
                        "ends" => {
                            send(data(Bytes::from_static(b"last words")));
                            send(Payload::CloseResponse(CloseResponse {
                                error: String::new(),
                                connect_id: ID,
                            }));
                        }
                        _ => {}
                    }
                }
                Payload::Data(of_client) => {
                    received.fetch_add(of_client.data.len(), Ordering::SeqCst);
                    send(data(of_client.data));
                }
                other => drop(closed.send(other)),
            }
        }
    }
}

#[tokio::test]
async fn tunnels_share_one_connection_and_their_bytes_do_not_mix() {
    let proxy = Proxy::start().await;
    let dialer = proxy.dialer();
    let echo = async |byte: u8| {
        let mut tunnel = dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
        let sent = vec![byte; 1 << 20];
        let mut received = vec![0; sent.len()];
        let (mut reader, mut writer) = tokio::io::split(&mut tunnel);
        tokio::try_join!(writer.write_all(&sent), reader.read_exact(&mut received)).unwrap();
        assert!(received == sent, "{byte}");
    };
    futures::future::join_all((0..8).map(echo)).await;
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 1);
}

/// Why a dial fails.
async fn refusal(dialer: &Dialer, host: &str) -> DialError {
    dialer.dial(host, &Budget::new(BUFFER_LIMIT)).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn a_dial_says_why_it_fails() {
    let proxy = Proxy::start().await;
    let refused = refusal(&proxy.dialer(), "refused:443").await;
    let is_known = matches!(&refused, DialError::Refused(text) if text == "No agent available");
    assert!(is_known, "{refused}");
    let dialer = Dialer::new("127.0.0.1", proxy.address.port());
    assert!(matches!(refusal(&dialer, "echo:443").await, DialError::NoCredentials));
    // A proxy server with a certificate of another authority.
    let other = Proxy::start().await;
    dialer.set_credentials(other.credentials.clone());
    assert!(matches!(refusal(&dialer, "echo:443").await, DialError::Unreachable(_)));
    assert!(dialer.check().await.is_err());
    dialer.set_credentials(proxy.credentials.clone());
    assert!(dialer.check().await.is_ok());
}

/// The texts of agents reach terminals, and an agent that guessed the number of a dial could respond to it.
#[tokio::test]
async fn a_text_of_an_agent_is_short_and_visible_and_nobody_can_guess_the_number_of_a_dial() {
    let proxy = Proxy::start().await;
    let dialer = proxy.dialer();
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let refused = refusal(&dialer, "hostile:443").await.to_string();
        let is_visible = !refused.contains(['\u{1b}', '\u{202e}']);
        assert!(refused.chars().count() <= 250 && is_visible, "{refused:?}");
        let digits = refused.split(|it: char| !it.is_ascii_digit());
        numbers.push(digits.max_by_key(|it| it.len()).unwrap().parse::<i64>().unwrap());
    }
    let steps = [numbers[1] - numbers[0], numbers[2] - numbers[1]].map(i64::unsigned_abs);
    assert!(steps[0] != steps[1] && steps.into_iter().all(|step| step > 1 << 20), "{numbers:?}");
}

#[tokio::test]
async fn a_tunnel_that_nobody_reads_ends_and_delays_no_other() {
    let proxy = Proxy::start().await;
    let (dialer, budget) = (proxy.dialer(), Budget::new(BUFFER_LIMIT));
    let mut unread = dialer.dial("flood:443", &budget).await.unwrap();
    let other = dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
    echoes(other).await.unwrap();
    budget.exceeded().await;
    let mut all = Vec::new();
    let error = unread.read_to_end(&mut all).await.unwrap_err();
    assert!(error.to_string().contains("slow reader"), "{error}");
    assert!(all.len() <= BUFFER_LIMIT, "{}", all.len());
}

#[tokio::test]
async fn what_arrives_for_a_tunnel_that_has_ended_ends_no_other() {
    let mut proxy = Proxy::start().await;
    let (dialer, little) = (proxy.dialer(), Budget::new(1000));
    let mut other = dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
    // Open, and never read.
    let mut unread = dialer.dial("crumbs:443", &little).await.unwrap();
    let all_are_sent = async {
        while proxy.counts.sent.load(Ordering::SeqCst) < CRUMBS {
            other.write_all(b"x").await.unwrap();
            assert_eq!(other.read_u8().await.unwrap(), b'x');
        }
    };
    timeout(SOON, all_are_sent).await.unwrap();
    let closed = timeout(SOON, proxy.closed.recv()).await.unwrap();
    assert!(matches!(closed, Some(Payload::CloseRequest(_))));
    assert!(unread.read_u8().await.is_err() && unread.write_u8(b'x').await.is_err());
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_packet_that_is_larger_than_those_of_agents_ends_its_tunnel() {
    let proxy = Proxy::start().await;
    let mut tunnel = proxy.dialer().dial("large:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
    assert!(tunnel.read_u8().await.is_err());
}

/// Sends as much as fits into no window on the way, and waits until it is back.
async fn echoes(mut tunnel: Tunnel) -> std::io::Result<Tunnel> {
    for _ in 0..64 {
        let mut part = vec![0; 1 << 16];
        tunnel.write_all(&part).await?;
        tunnel.read_exact(&mut part).await?;
    }
    Ok(tunnel)
}

#[tokio::test]
async fn tunnels_that_share_a_budget_have_no_more_than_that_to_read_and_give_it_back() {
    let proxy = Proxy::start().await;
    let (dialer, budget) = (proxy.dialer(), Budget::new(BUFFER_LIMIT));
    let echo = async |budget: &Budget| dialer.dial("echo:443", budget).await.unwrap();
    let unread = dialer.dial("flood:443", &budget).await.unwrap();
    echoes(echo(&Budget::new(BUFFER_LIMIT)).await).await.unwrap();
    budget.exceeded().await;
    let error = echoes(echo(&budget).await).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("slow reader"), "{error}");
    drop(unread);
    // More than the budget, one part after the other.
    let mut tunnel = echo(&budget).await;
    for _ in 0..5 {
        tunnel = echoes(tunnel).await.unwrap();
    }
}

#[tokio::test]
async fn the_end_of_a_tunnel_reaches_the_other_side() {
    let mut proxy = Proxy::start().await;
    let dialer = proxy.dialer();
    drop(dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.unwrap());
    assert!(
        matches!(proxy.closed.recv().await, Some(Payload::CloseRequest(close)) if close.connect_id == 7)
    );
    let mut shut = dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
    shut.shutdown().await.unwrap();
    assert!(matches!(proxy.closed.recv().await, Some(Payload::CloseRequest(_))));
    let mut ends = dialer.dial("ends:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
    let mut words = String::new();
    ends.read_to_string(&mut words).await.unwrap();
    assert_eq!(words, "last words");
}

#[tokio::test]
async fn what_arrived_before_the_end_is_read_by_one_who_still_writes() {
    let mut proxy = Proxy::start().await;
    let mut ends = proxy.dialer().dial("ends:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
    assert!(matches!(proxy.closed.recv().await, Some(Payload::CloseRequest(_))));
    ends.write_all(b"more").await.unwrap();
    let mut words = String::new();
    ends.read_to_string(&mut words).await.unwrap();
    assert_eq!(words, "last words");
    assert!(ends.write_all(b"more").await.is_err(), "it has read the end");
}

#[tokio::test]
async fn what_was_written_before_a_tunnel_is_dropped_arrives() {
    let mut proxy = Proxy::start().await;
    let dialer = proxy.dialer();
    for number in 1..=20 {
        let mut tunnel = dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
        for _ in 0..4 {
            tunnel.write_all(&[0; 10_000]).await.unwrap();
        }
        drop(tunnel);
        assert!(matches!(proxy.closed.recv().await, Some(Payload::CloseRequest(_))));
        assert_eq!(proxy.counts.received.load(Ordering::SeqCst), number * 40_000);
    }
}

#[tokio::test]
async fn a_stream_whose_agent_takes_nothing_is_reset_once_its_tunnel_is_gone_and_no_other() {
    let mut proxy = Proxy::start().await;
    let (dialer, budget) = (proxy.dialer(), Budget::new(BUFFER_LIMIT));
    let other = dialer.dial("echo:443", &budget).await.unwrap();
    let mut tunnel = dialer.dial("deaf:443", &budget).await.unwrap();
    while timeout(Duration::from_millis(100), tunnel.write_all(&[0; 10_000])).await.is_ok() {}
    drop(tunnel);
    tokio::time::pause();
    let reset = timeout(SOON, proxy.closed.recv()).await.unwrap();
    assert!(matches!(reset, Some(Payload::Drain(_))));
    tokio::time::resume();
    echoes(other).await.unwrap();
}

#[tokio::test]
async fn new_credentials_are_for_later_dials_and_a_lost_connection_is_replaced() {
    let proxy = Proxy::start().await;
    let dialer = proxy.dialer();
    let mut before = dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
    let other = Proxy::start().await;
    dialer.set_credentials(other.credentials.clone());
    assert!(dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.is_err());
    before.write_all(b"still here").await.unwrap();
    let mut text = [0; 10];
    before.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"still here");
    proxy.task.abort();
    assert!(before.read_u8().await.is_err(), "the proxy server is gone");
}

#[tokio::test]
async fn dials_leave_a_proxy_server_that_is_frozen_and_its_tunnels_end() {
    let proxy = Proxy::start().await;
    // When its node fails and another one takes over, open connections deliver nothing, and new ones do.
    let relay = Relay::before(proxy.address).await.unwrap();
    let dialer = Dialer::new("127.0.0.1", relay.address().port());
    dialer.set_credentials(proxy.credentials.clone());
    let mut open = dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
    let doubt = open.doubt();
    relay.freeze();
    // These have begun on the frozen connection, and none fails or waits for another.
    let dials = (0..20).map(async |_| {
        let tunnel = dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.unwrap();
        (tunnel.doubt().is_cancelled(), echoes(tunnel).await.is_ok())
    });
    assert_eq!(futures::future::join_all(dials).await, [(false, true); 20]);
    assert!(doubt.is_cancelled());
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 2);
    assert!(open.read_u8().await.is_err(), "it ends although nothing is closed");
}

#[tokio::test]
async fn dials_that_meet_no_proxy_server_fail_together() {
    // It accepts connections, and nothing else.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialer = Dialer::new("127.0.0.1", silent.local_addr().unwrap().port());
    dialer.set_credentials(Proxy::start().await.credentials);
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let dials =
        (0..20).map(async |_| dialer.dial("echo:443", &Budget::new(BUFFER_LIMIT)).await.map(drop));
    for dialed in futures::future::join_all(dials).await {
        assert!(matches!(dialed, Err(DialError::Unreachable(_))));
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(6), "{:?}", begun.elapsed());
}
