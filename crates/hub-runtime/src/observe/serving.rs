//! HTTP for untrusted clients: anything that reaches the port of the probes or of the metrics.
//!
//! Each connection serves one request and ends after a fixed time, whatever its client does. Their number is limited:
//! when it is reached, the oldest connection is closed, so that clients that only hold connections do not keep the
//! kubelet or a scraper out.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::observe::metrics::Metrics;

/// Maximum of open connections of one server.
const CONNECTIONS: usize = 64;
/// From the established connection, or the end of its TLS handshake, to the last byte of the header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// From the connection to the end of the response, with a TLS handshake and two reviews by the hub.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of the header of a request, in bytes.
const HEADER_MAX: usize = 16 * 1024;

/// Serves a router on every connection, once `connect` has prepared it, for as long as the process runs.
pub(crate) async fn serve<C, F, I>(
    server: &'static str,
    mut listener: TcpListener,
    router: Router,
    metrics: Metrics,
    connect: C,
) where
    C: Fn(TcpStream) -> F,
    F: Future<Output = io::Result<I>> + Send + 'static,
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        // axum's accept waits if the process has no file descriptors left.
        let (stream, _) = Listener::accept(&mut listener).await;
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
            metrics.connection_refused(server, "limit");
        }
        let (connected, router, metrics) = (connect(stream), router.clone(), metrics.clone());
        let connection = tokio::spawn(async move {
            if let Err(reason) = respond(connected, router).await {
                metrics.connection_refused(server, reason);
            }
        });
        open.push_back(connection.abort_handle());
    }
}

/// Serves one request, or returns why there is none.
async fn respond<I>(
    connected: impl Future<Output = io::Result<I>>,
    router: Router,
) -> Result<(), &'static str>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let work = async {
        let stream = connected.await.map_err(|_| "handshake")?;
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(HEADER_MAX)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
            .await;
        match served {
            Err(error) if error.is_timeout() => Err("timeout"),
            Err(error) if error.is_parse() => Err("invalid"),
            // The client has gone.
            Ok(()) | Err(_) => Ok(()),
        }
    };
    timeout(CONNECTION_TIMEOUT, work).await.unwrap_or(Err("timeout"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    fn router() -> Router {
        Router::new().route("/livez", get(async || "ok"))
    }

    async fn started(metrics: &Metrics) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve("probes", listener, router(), metrics.clone(), async |stream| {
            Ok(stream)
        }));
        address
    }

    /// Everything that a server sends until it closes the connection.
    async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
        let mut bytes = Vec::new();
        // A reset is an end as well.
        let _ = stream.read_to_end(&mut bytes).await;
        String::from_utf8(bytes).unwrap()
    }

    async fn asks(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), more: &str) -> String {
        let request = format!("GET /livez HTTP/1.1\r\nhost: a\r\n{more}\r\n");
        let _ = stream.write_all(request.as_bytes()).await;
        rest(stream).await
    }

    #[tokio::test]
    async fn idle_connections_keep_nobody_out_and_the_oldest_are_closed() {
        let metrics = Metrics::new("0");
        let address = started(&metrics).await;
        let mut idle = Vec::new();
        for _ in 0..3 * CONNECTIONS {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        let response = asks(&mut probe, "").await;
        assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("ok"), "{response}");
        // The server has closed all but the newest.
        for oldest in &mut idle[..2 * CONNECTIONS] {
            assert_eq!(rest(oldest).await, "");
        }
        let closed = 2 * CONNECTIONS + 1;
        let line =
            format!("connections_refused_total{{server=\"probes\",reason=\"limit\"}} {closed}\n");
        assert!(metrics.text().contains(&line), "{}", metrics.text());
    }

    #[tokio::test]
    async fn a_connection_serves_one_request() {
        let mut stream = TcpStream::connect(started(&Metrics::new("0")).await).await.unwrap();
        assert!(asks(&mut stream, "").await.contains("connection: close"));
    }

    /// The end of a connection on which the client sends this and then nothing.
    async fn end(sent: &str) -> (Result<(), &'static str>, Duration, String) {
        let (mut client, server): (DuplexStream, DuplexStream) = tokio::io::duplex(64 * 1024);
        client.write_all(sent.as_bytes()).await.unwrap();
        let begun = tokio::time::Instant::now();
        let result = respond(async { Ok(server) }, router()).await;
        (result, begun.elapsed(), rest(&mut client).await)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stalls_is_disconnected() {
        for sent in ["", "GET /livez HTTP/1.1\r\n", "GET /livez HTTP/1.1\r\nhost: a\r\nx: "] {
            let (result, after, _) = end(sent).await;
            assert_eq!(result, Err("timeout"), "{sent:?}");
            assert!(after <= CONNECTION_TIMEOUT + Duration::from_secs(1), "{sent:?}: {after:?}");
        }
        let stalled = respond(std::future::pending::<io::Result<DuplexStream>>(), router()).await;
        assert_eq!(stalled, Err("timeout"), "the handshake counts as well");
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_that_is_too_large_is_refused() {
        let large =
            format!("GET /livez HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(2 * HEADER_MAX));
        let (result, _, response) = end(&large).await;
        assert_eq!(result, Err("invalid"));
        assert!(response.starts_with("HTTP/1.1 431"), "{response}");
    }
}
