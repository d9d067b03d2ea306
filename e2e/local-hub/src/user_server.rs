//! A stand-in for the user server of Open Cluster Management's cluster-proxy: a TLS reverse proxy for the API servers
//! of all managed clusters.
//!
//! `https://HOST:PORT/CLUSTER/PATH?QUERY` is that cluster's `/PATH?QUERY`. The client's own `Authorization` header
//! identifies it to the cluster; the proxy adds nothing and logs nothing. Responses are forwarded immediately, so that a
//! watch delivers each event, as are both directions of an upgraded connection, as for `kubectl exec`. HTTP/1.1 only.
//!
//! If a request cannot be forwarded, the response is a Kubernetes Status: 404 for an unknown cluster, 502 for one that
//! cannot be reached. The real one responds with 502 and a text in both cases (`docs/dev/upstream.md`).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, UPGRADE};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::{HubError, LocalHub, ServingCertificate, access, ports};

type Clusters = BTreeMap<String, Client>;

/// Timeout for a client's handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A managed cluster's API server as the target of a [`UserServer`], without credentials.
#[derive(Clone, Debug)]
pub struct Upstream(Box<Config>);

impl LocalHub {
    /// This hub's API server as a target of a [`UserServer`], for a hub that is a managed cluster.
    #[must_use]
    pub fn upstream(&self) -> Upstream {
        Upstream::to(self.access().config(AuthInfo::default()))
    }
}

impl Upstream {
    /// The server of a kubeconfig's current context.
    pub async fn from_kubeconfig(path: &Path) -> Result<Self, HubError> {
        Ok(Self::to(access::config_from(path).await?))
    }

    fn to(mut config: Config) -> Self {
        config.auth_info = AuthInfo::default();
        config.default_retry = false;
        // Watches are quiet for as long as they like.
        config.read_timeout = None;
        Self(Box::new(config))
    }
}

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
        let acceptor = TlsAcceptor::from(Arc::new(serving.server_config(b"http/1.1")?));
        let failed = |source| HubError::io(format!("listen on {address}"), source);
        let listener = match address.port() {
            0 => ports::listen(address.ip())?,
            _ => TcpListener::bind(address).map_err(failed)?,
        };
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;

        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let entered = runtime.enter();
        let connect = |(name, upstream): (N, Upstream)| {
            let client = Client::try_from(*upstream.0).map_err(HubError::api("make a client"))?;
            Ok((name.into(), client))
        };
        let clusters: Clusters =
            clusters.into_iter().map(connect).collect::<Result<_, HubError>>()?;
        drop(entered);
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

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, clusters: Arc<Clusters>) {
    // It fails only outside a runtime.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let talk = |(stream, _)| talk(stream, acceptor.clone(), Arc::clone(&clusters));
    ports::serve(|| listener.accept(), talk).await;
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
        async move { Ok::<_, Infallible>(answer(&clusters, request).await) }
    });
    let _ =
        http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

/// Forwards a request and returns the response.
async fn answer(clusters: &Clusters, mut request: Request<Incoming>) -> Response<Body> {
    // Missing only in `CONNECT` and `OPTIONS *`, which are not sent to API servers.
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let (cluster, path) = path[1..].split_at(path[1..].find(['/', '?']).unwrap_or(path.len() - 1));
    let cluster = cluster.to_owned();
    let Some(client) = clusters.get(&cluster) else {
        let unknown = format!("cluster {cluster:?} not found");
        return status(StatusCode::NOT_FOUND, "NotFound", &unknown);
    };
    // It is a part of a valid URI.
    let Ok(target) =
        (if path.starts_with('/') { path.parse() } else { format!("/{path}").parse() })
    else {
        return status(StatusCode::BAD_REQUEST, "BadRequest", "the path cannot be forwarded");
    };
    *request.uri_mut() = target;
    request.headers_mut().remove(HOST);
    let upgrades = request.headers().contains_key(UPGRADE);
    if !upgrades {
        request.headers_mut().remove(CONNECTION);
    }
    let switched = upgrades.then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let sent = async {
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        let request = Request::from_parts(parts, Body::from(body));
        client.send(request).await.map_err(|error| error.to_string())
    };
    match (sent.await, switched) {
        (Ok(mut response), Some(client))
            if response.status() == StatusCode::SWITCHING_PROTOCOLS =>
        {
            let server = hyper::upgrade::on(&mut response);
            tokio::spawn(async {
                if let Ok((client, server)) = tokio::try_join!(client, server) {
                    let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
            response.map(|_| Body::empty())
        }
        (Ok(response), _) => response,
        // Kubernetes defines no reason for this code.
        (Err(error), _) => {
            let unreachable = format!("cluster {cluster:?} cannot be reached: {error}");
            status(StatusCode::BAD_GATEWAY, "", &unreachable)
        }
    }
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
