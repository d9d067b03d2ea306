//! Accepts connections after their TLS handshake. A client that stalls delays no other.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::Certificates;

/// Concurrent handshakes; further connections wait in the listen backlog.
const HANDSHAKES: usize = 16;
/// Longest handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

type Connection = (TlsStream<TcpStream>, SocketAddr);

/// TLS on a TCP listener, as axum takes connections.
pub(super) struct TlsListener {
    address: Option<SocketAddr>,
    ready: mpsc::Receiver<Connection>,
}

impl TlsListener {
    /// Starts to accept connections.
    pub(super) fn start(mut tcp: TcpListener, certificates: Certificates) -> Self {
        let (sender, ready) = mpsc::channel(HANDSHAKES);
        let address = tcp.local_addr().ok();
        tokio::spawn(async move {
            let (certificates, free) = (Arc::new(certificates), Arc::new(Semaphore::new(HANDSHAKES)));
            // The semaphore is never closed.
            while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
                // axum's accept waits if the process has no file descriptors left.
                let (stream, peer) = Listener::accept(&mut tcp).await;
                let (certificates, sender) = (Arc::clone(&certificates), sender.clone());
                tokio::spawn(async move {
                    let Ok(config) = tokio::task::spawn_blocking(move || certificates.config()).await else {
                        return;
                    };
                    let handshake = TlsAcceptor::from(config).accept(stream);
                    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
                        Ok(Ok(stream)) => _ = sender.send((stream, peer)).await,
                        Ok(Err(error)) => {
                            tracing::debug!(%peer, %error, "TLS handshake with a metrics client failed");
                        }
                        Err(_) => tracing::debug!(%peer, "TLS handshake with a metrics client timed out"),
                    }
                    drop(permit);
                });
            }
        });
        Self { address, ready }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Connection {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The task above never ends by itself.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.address.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }
}
