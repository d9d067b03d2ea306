//! A stand-in for the user server of Open Cluster Management's cluster-proxy: a TLS reverse proxy for the API servers
//! of all managed clusters.
//!
//! `https://HOST:PORT/CLUSTER/PATH?QUERY` is that cluster's `/PATH?QUERY`. The client's own `Authorization` header
//! identifies it to the cluster; the proxy adds nothing and logs nothing. Bodies are forwarded immediately, so that a
//! watch delivers each event, as are both directions of an upgraded connection, as for `kubectl exec`. HTTP/1.1 only.
//!
//! If a request cannot be forwarded, the response is a Kubernetes Status: 404 for an unknown cluster, 502 for one that
//! cannot be reached. The real one responds with 502 and a text in both cases (`docs/dev/upstream.md`).

mod forward;
mod upstream;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

pub use self::upstream::Upstream;
use crate::{HubError, ServingCertificate, ports};

type Clusters = BTreeMap<String, Upstream>;

/// Timeout for a client's request head, and for a connection to an API server.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The proxy. Dropping it closes all connections and waits for its end.
///
/// It runs in its own thread: a test that blocks its runtime, for example by waiting for a client in another process,
/// does not block the proxy.
#[derive(Debug)]
pub struct UserServer {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl UserServer {
    /// Starts it at an address of this machine; port 0 selects a free one. It listens when this returns.
    ///
    /// After a drop, the same address can be used again, for example with another certificate.
    pub fn start<N: Into<String>>(
        serving: &ServingCertificate,
        address: SocketAddr,
        clusters: impl IntoIterator<Item = (N, Upstream)>,
    ) -> Result<Self, HubError> {
        let clusters: Clusters =
            clusters.into_iter().map(|(name, upstream)| (name.into(), upstream)).collect();
        if let Some(odd) = clusters.keys().find(|name| !is_segment(name)) {
            return Err(HubError::Failed(format!(
                "{odd:?} is not a valid cluster name: must be a path segment"
            )));
        }
        let acceptor = TlsAcceptor::from(Arc::new(serving.server_config()?));
        let failed = |source| HubError::io(format!("listen on {address}"), source);
        let listener = match address.port() {
            0 => ports::listen(address.ip())?,
            _ => TcpListener::bind(address).map_err(failed)?,
        };
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;

        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("user-server".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    // Stopped, or dropped.
                    _ = ended => {}
                    () = serve(listener, acceptor, Arc::new(clusters)) => {}
                }
            });
            // Without waiting for name resolutions, which cannot be cancelled.
            runtime.shutdown_background();
        });
        Ok(Self { address, end: Some(end), thread: Some(thread.map_err(failed)?) })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The URL of a cluster's API server through it.
    #[must_use]
    pub fn url_of(&self, cluster: &str) -> String {
        format!("{}/{cluster}", self.url())
    }
}

impl Drop for UserServer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // An error is a panic of that thread, which has been printed.
            let _ = thread.join();
        }
    }
}

/// Whether a name is a single, unescaped path segment.
fn is_segment(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, clusters: Arc<Clusters>) {
    // It fails only outside a runtime.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(talk(stream, acceptor.clone(), Arc::clone(&clusters)));
                }
                // This process has too many open files: some are connections that will end.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one client, which notices failures of its connection itself.
async fn talk(stream: TcpStream, acceptor: TlsAcceptor, clusters: Arc<Clusters>) {
    // Otherwise the last bytes of a message would wait for more.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let service = service_fn(move |request| {
        let clusters = Arc::clone(&clusters);
        async move { Ok::<_, Infallible>(forward::answer(&clusters, request).await) }
    });
    let _ =
        http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}
