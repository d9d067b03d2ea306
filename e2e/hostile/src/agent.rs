//! An agent of the real proxy server: one stream of packets, as `cmd/agent` of apiserver-network-proxy has.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures::TryStreamExt as _;
use http::{Request, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use konnectivity::packet::{CloseResponse, Data, DialResponse, Packet, Payload};
use prost::Message as _;
use rustls::pki_types::ServerName;
use tokio::io::{
    AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::Cluster;
use crate::certificate::client_config;

/// How many bytes wait in a connection for its reader, and in one packet.
const BUFFER: usize = 64 << 10;
/// How many packets wait to be sent.
const PACKETS: usize = 16;

/// Sends packets as frames of a stream.
pub(crate) type Packets = mpsc::Sender<Result<Frame<Bytes>, Infallible>>;

/// The body of a stream of packets.
pub(crate) fn stream() -> (Packets, UnsyncBoxBody<Bytes, Infallible>) {
    let (packets, mut receiver) = mpsc::channel(PACKETS);
    let frames = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    (packets, StreamBody::new(frames).boxed_unsync())
}

impl Cluster {
    /// Registers at the proxy server whose certificate this authority verifies, and serves until the connection ends.
    pub async fn register(
        self: Arc<Self>,
        proxy: SocketAddr,
        authority: &[u8],
    ) -> io::Result<Infallible> {
        let config = client_config(authority, b"h2");
        let tcp = TcpStream::connect(proxy).await?;
        tcp.set_nodelay(true)?;
        let tls = TlsConnector::from(config).connect(ServerName::from(proxy.ip()), tcp).await?;
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await;
        let (mut sender, connection) = handshake.map_err(io::Error::other)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });

        let (packets, body) = stream();
        let request = Request::post("https://proxy/AgentService/Connect")
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header("agentid", &self.name)
            .header("agentidentifiers", format!("host={}", self.name))
            .body(body)
            .map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let (mut body, mut buffer) = (response.into_body().into_data_stream(), BytesMut::new());
        let mut agent =
            Agent { cluster: self, packets, connections: HashMap::new(), next: 0, tasks };
        while let Some(bytes) = body.try_next().await.map_err(io::Error::other)? {
            buffer.put(bytes);
            while let Some(packet) = next(&mut buffer)? {
                agent.receive(packet).await;
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

struct Agent {
    cluster: Arc<Cluster>,
    packets: Packets,
    /// What arrives for each connection.
    connections: HashMap<i64, mpsc::UnboundedSender<Bytes>>,
    next: i64,
    /// They end with the agent.
    tasks: JoinSet<()>,
}

impl Agent {
    async fn receive(&mut self, packet: Packet) {
        while self.tasks.try_join_next().is_some() {}
        match packet.payload {
            Some(Payload::DialRequest(dial)) => {
                self.next += 1;
                let connect_id = self.next;
                let dialed = DialResponse { error: String::new(), connect_id, random: dial.random };
                send(&self.packets, Payload::DialResponse(dialed)).await;
                self.connect(connect_id);
            }
            Some(Payload::Data(data)) => {
                if let Some(connection) = self.connections.get(&data.connect_id) {
                    // It may have ended.
                    let _ = connection.send(data.data);
                }
            }
            Some(Payload::CloseRequest(close)) => {
                self.connections.remove(&close.connect_id);
                let closed = CloseResponse { error: String::new(), connect_id: close.connect_id };
                send(&self.packets, Payload::CloseResponse(closed)).await;
            }
            _ => {}
        }
    }

    fn connect(&mut self, connect_id: i64) {
        let (outside, inside) = duplex(BUFFER);
        let (reader, writer) = split(outside);
        let (sender, receiver) = mpsc::unbounded_channel();
        self.connections.insert(connect_id, sender);
        self.tasks.spawn(deliver(receiver, writer));
        self.tasks.spawn(collect(reader, connect_id, self.packets.clone()));
        Arc::clone(&self.cluster).serve(inside);
    }
}

/// Writes to a connection what arrives for it, until either end.
async fn deliver(mut data: mpsc::UnboundedReceiver<Bytes>, mut writer: WriteHalf<DuplexStream>) {
    while let Some(data) = data.recv().await {
        if writer.write_all(&data).await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}

/// Sends what the API server writes, and its end. Ends with the stream.
pub(crate) async fn collect(mut reader: ReadHalf<DuplexStream>, connect_id: i64, packets: Packets) {
    let mut data = BytesMut::with_capacity(BUFFER);
    while !packets.is_closed()
        && let Ok(1..) = reader.read_buf(&mut data).await
    {
        let data = data.split().freeze();
        send(&packets, Payload::Data(Data { connect_id, error: String::new(), data })).await;
    }
    send(&packets, Payload::CloseResponse(CloseResponse { error: String::new(), connect_id }))
        .await;
}

pub(crate) async fn send(packets: &Packets, payload: Payload) {
    // A stream that has ended needs no packet.
    let _ = packets.send(Ok(Frame::data(message(payload)))).await;
}

/// A packet as a message of gRPC.
fn message(payload: Payload) -> Bytes {
    let packet = Packet::of(payload);
    let mut message = BytesMut::with_capacity(5 + packet.encoded_len());
    message.put_u8(0);
    message.put_u32(u32::try_from(packet.encoded_len()).unwrap());
    packet.encode(&mut message).unwrap();
    message.freeze()
}

/// The next packet, once it has arrived whole.
pub(crate) fn next(buffer: &mut BytesMut) -> io::Result<Option<Packet>> {
    let Some(head) = buffer.first_chunk::<5>() else { return Ok(None) };
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if buffer.len() < 5 + length {
        return Ok(None);
    }
    buffer.advance(5);
    Packet::decode(buffer.split_to(length)).map(Some).map_err(io::Error::other)
}
