//! The listener: TLS, HTTP/1.1 and HTTP/2, and an orderly end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use hub_core::entry::Refusal;
use hub_runtime::observe::serving_certificate::ServingCertificate;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clusters::TLS_BUFFER;
use crate::connections::{Connection, Connections};
use crate::forward::Entry;
use crate::metrics::Counted;
use crate::sessions::Open;
use crate::streams::{self, STREAM_WINDOW, Streams};

/// How many connections may wait to be accepted: as many as the system allows. Without room, a client tries again after a
/// second.
const BACKLOG: i32 = 1 << 16;
/// Timeout of a client's TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// From the first bytes, or the last response, on a connection of HTTP/1.1 to the end of the next header.
const HEADER_TIMEOUT: Duration = Duration::from_mins(2);
/// TCP keepalive and HTTP/2 PINGs, which detect clients that are gone.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_PROBES: u32 = 2;
/// Limits of one connection.
const STREAMS: u32 = 100;
/// The headers of a request, with its target.
const HEADERS: u32 = 16 << 10;
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
const SEND_BUFFER: usize = 32 << 10;
/// What the kernel may hold of a connection for us and for its client, of which it takes twice as much memory.
const RECEIVED: usize = 32 << 10;
const SENT: usize = 64 << 10;
/// How much of it may not yet be on its way before nothing more is written.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 32 << 10;
/// How long connections are still accepted after `stop`: until every node knows that the Pod is terminating. Then each
/// connection ends with the requests that are open on it.
const ACCEPT_FOR: Duration = Duration::from_secs(4);
/// How long open requests may go on after that. Watches do not end by themselves.
const FINISH_FOR: Duration = Duration::from_secs(4);
/// How long it may take to end the requests that are still open then.
const END_FOR: Duration = Duration::from_secs(1);
/// The time before the next attempt if the process has no file descriptor for a connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Serves until `stop`, and then until open requests have finished.
pub(crate) async fn serve(
    listener: TcpListener,
    certificate: Arc<ServingCertificate>,
    entry: Arc<Entry>,
    idle_connections: usize,
    stop: CancellationToken,
) {
    let (tasks, connections) = (TaskTracker::new(), Connections::new(idle_connections));
    let closing = CancellationToken::new();
    let socket = SockRef::from(&listener);
    // Those that it accepts have the same.
    let _ = socket.set_recv_buffer_size(RECEIVED);
    let _ = socket.listen(BACKLOG);
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let (entry, closing) = (Arc::clone(&entry), closing.clone());
                    let (sender, connection) = oneshot::channel();
                    let connected = connect(stream, Arc::clone(&certificate));
                    let task = tasks.spawn(async move {
                        let Ok(connection) = connection.await else { return };
                        let _counted = Counted::new(&entry.metrics.connections);
                        let conversation = converse(connected, entry, connection, closing);
                        streams::run(CancellationToken::new(), conversation).await;
                    });
                    let _ = sender.send(connections.add(peer.ip().into(), task.abort_handle()));
                }
                Err(_) => sleep(ACCEPT_AGAIN).await,
            }
        }
    };
    tokio::select! {
        () = async { stop.cancelled().await; sleep(ACCEPT_FOR).await } => {}
        () = accept => {}
    }
    drop(listener);
    closing.cancel();
    tasks.close();
    entry.upgraded.close();
    let finished = || async { tokio::join!(tasks.wait(), entry.upgraded.wait()) };
    if timeout(FINISH_FOR, finished()).await.is_err() {
        entry.admission.sessions.cut(Open::All, |_, _| Some(Refusal::ShuttingDown));
        entry.end.cancel();
        let _ = timeout(END_FOR, finished()).await;
    }
}

type Accepted = tokio_rustls::server::TlsStream<TcpStream>;

/// Ends the connection of a client that is gone, such as one that has lost power: if it acknowledges no keepalive, or no
/// data for as long as that takes. The kernel sends no keepalive while data is not acknowledged, and does not tell such a
/// client from one that reads nothing.
fn end_if_dead(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    let _ = socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(KEEPALIVE * (KEEPALIVE_PROBES + 1)));
}

/// Limits what the kernel holds for a client that does not read, which is memory of this Pod: 4 MiB by default.
fn limit_unsent(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let _ = socket.set_send_buffer_size(SENT);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
}

async fn connect(stream: TcpStream, certificate: Arc<ServingCertificate>) -> Option<Accepted> {
    let _ = stream.set_nodelay(true);
    end_if_dead(&stream);
    limit_unsent(&stream);
    let config = certificate.config();
    let mut stream =
        timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await.ok()?.ok()?;
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    Some(stream)
}

async fn converse(
    connected: impl Future<Output = Option<Accepted>>,
    entry: Arc<Entry>,
    connection: Arc<Connection>,
    closing: CancellationToken,
) {
    let Some(stream) = connected.await else { return };
    let service = service_fn(move |request| {
        let (entry, connection) = (Arc::clone(&entry), Arc::clone(&connection));
        // Boxed, so that its memory is freed with the response: a stream keeps room for this future as long as it is
        // open.
        async move { Ok::<_, Infallible>(entry.respond(request, &connection).await) }.boxed()
    });
    let mut builder = auto::Builder::new(Streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADERS as usize)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(KEEPALIVE);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = closing.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    #[tokio::test]
    async fn the_kernel_holds_little_for_a_client_that_reads_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let client = socket.connect(listener.local_addr().unwrap());
        let (_client, accepted) = tokio::join!(client, listener.accept());
        let (stream, _) = accepted.unwrap();
        limit_unsent(&stream);
        stream.writable().await.unwrap();
        let mut held = 0;
        while let Ok(written) = stream.try_write(&[0; 16 << 10]) {
            held += written;
        }
        assert!((1..4 * SENT).contains(&held), "{held}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_client_that_acknowledges_nothing_keeps_its_connection_for_a_minute_and_a_half() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (_client, accepted) = tokio::join!(client, listener.accept());
        let (stream, _) = accepted.unwrap();
        end_if_dead(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(90)));
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
    }
}
