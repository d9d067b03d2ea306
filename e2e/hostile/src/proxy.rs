//! cluster-proxy's proxy server, whose agents are in this process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::TryStreamExt as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use konnectivity::packet::{DialResponse, Payload};
use tokio::io::{AsyncWriteExt as _, DuplexStream, WriteHalf};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::act::Act;
use crate::agent::{Packets, collect, next, send, stream};
use crate::{Certificate, Cluster};

/// The identifier of every connection: there is one in each stream.
const ID: i64 = 7;
const BUFFER: usize = 64 << 10;

type Clusters = Arc<Vec<Arc<Cluster>>>;

pub(crate) async fn start(certificate: &Certificate, clusters: Vec<Arc<Cluster>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (acceptor, clusters) =
        (TlsAcceptor::from(certificate.server(&[b"h2"])), Arc::new(clusters));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, clusters) = (acceptor.clone(), Arc::clone(&clusters));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(move |request| {
                    std::future::ready(Ok::<_, Infallible>(respond(request, Arc::clone(&clusters))))
                });
                let mut server = http2::Builder::new(TokioExecutor::new());
                server.max_concurrent_streams(10_000).initial_stream_window_size(1 << 20);
                server.initial_connection_window_size(256 << 20);
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

fn respond(
    request: Request<Incoming>,
    clusters: Clusters,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let (packets, body) = stream();
    tokio::spawn(act(request.into_body(), packets, clusters));
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

/// One dial, and the connection that it opens.
async fn act(body: Incoming, packets: Packets, clusters: Clusters) {
    let (mut frames, mut buffer) = (body.into_data_stream(), BytesMut::new());
    let mut connection: Option<WriteHalf<DuplexStream>> = None;
    while let Ok(Some(frame)) = frames.try_next().await {
        buffer.put(frame);
        while let Some(packet) = next(&mut buffer).unwrap() {
            match packet.payload {
                Some(Payload::DialRequest(dial)) => {
                    let name = dial.address.split(':').next().unwrap_or_default();
                    let cluster = clusters.iter().find(|cluster| cluster.name == name);
                    if cluster.is_some_and(|cluster| cluster.act == Some(Act::NoDial)) {
                        continue;
                    }
                    let error =
                        if cluster.is_some() { "" } else { "No agent available" }.to_owned();
                    let response = DialResponse { error, connect_id: ID, random: dial.random };
                    send(&packets, Payload::DialResponse(response)).await;
                    if let Some(cluster) = cluster {
                        let (near, far) = tokio::io::duplex(BUFFER);
                        Arc::clone(cluster).serve(far);
                        let (reader, writer) = tokio::io::split(near);
                        connection = Some(writer);
                        tokio::spawn(collect(reader, ID, packets.clone()));
                    }
                }
                Some(Payload::Data(data)) => {
                    if let Some(writer) = &mut connection
                        && writer.write_all(&data.data).await.is_err()
                    {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}
