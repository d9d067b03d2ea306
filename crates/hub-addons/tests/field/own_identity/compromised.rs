//! A cluster whose API server keeps what it is sent, behind cluster-proxy's own proxy server and agent.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use local_hub::{ServingAuthority, eventually};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{ACCOUNT, Application, HOUR, Raw, Scene, lists};
use crate::support::SOON;
use crate::support::chain::CLUSTERS;

const PATH: &str = "two/api/v1/namespaces";
/// The API server.
struct Compromised {
    address: SocketAddr,
    authority: ServingAuthority,
    inner: Arc<Inner>,
    accepting: JoinHandle<()>,
}

struct Inner {
    /// The heads of all requests.
    heads: Mutex<Vec<HeaderMap>>,
    connections: Mutex<JoinSet<()>>,
}

impl Compromised {
    async fn start() -> Self {
        let authority = ServingAuthority::new("compromised").unwrap();
        let serving = authority.issue(["kubernetes.default.svc"]).unwrap();
        let chain = CertificateDer::pem_slice_iter(serving.tls_crt().as_bytes())
            .map(Result::unwrap)
            .collect();
        let key = PrivateKeyDer::from_pem_slice(serving.tls_key().as_bytes()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner { heads: Mutex::default(), connections: Mutex::default() });
        let shared = Arc::clone(&inner);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = Arc::clone(&shared).connection(stream, acceptor.clone());
                shared.connections.lock().spawn(connection);
            }
        });
        Self { address, authority, inner, accepting }
    }
}

impl Drop for Compromised {
    fn drop(&mut self) {
        self.accepting.abort();
        self.inner.connections.lock().abort_all();
    }
}

impl Inner {
    async fn connection(self: Arc<Self>, stream: TcpStream, acceptor: TlsAcceptor) {
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let service = service_fn(move |request: Request<Incoming>| {
            self.heads.lock().push(request.headers().clone());
            let response = Response::builder().status(StatusCode::UNAUTHORIZED);
            std::future::ready(response.body(Full::<Bytes>::default()))
        });
        let server = http2::Builder::new(TokioExecutor::new());
        // An error means that the client has ended the connection.
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    }
}

/// A connection to an API server through this records what passes, as an agent can.
struct Tap {
    address: SocketAddr,
    passed: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Tap {
    async fn before(api_server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, passed) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let record = Arc::clone(&passed);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(api_server).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                connections.spawn(record_all(from_client, to_server, Arc::clone(&record)));
                connections.spawn(record_all(from_server, to_client, Arc::clone(&record)));
            }
        });
        Self { address, passed, task }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn record_all(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    record: Arc<Mutex<Vec<u8>>>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        record.lock().extend_from_slice(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

fn address_of(url: &str) -> SocketAddr {
    url.parse::<http::Uri>().unwrap().authority().unwrap().as_str().parse().unwrap()
}

/// The cluster two is compromised: its API server, which rejects the account of the user server and keeps what it is sent,
/// and what its agent reports. What else it may do is in `hostile`.
pub async fn deceives_nobody(scene: &Scene, application: &Application<'_>) {
    let (stage, token) = (&scene.tunnel.stage, application.token.as_str());
    let kubectl = application.kubectl("one");
    // Before the first connection.
    let agent = Tap::before(address_of(&stage.cluster("one").url())).await;
    scene.tunnel.proxy.lead_to_api_server("one", agent.address).unwrap();
    lists(&kubectl, "one").await;
    let compromised = Compromised::start().await;
    scene.tunnel.proxy.lead_to_api_server("two", compromised.address).unwrap();
    let secrets: Api<Secret> = Api::namespaced(stage.ocm.clone(), "two");
    let ca = json!({ "stringData": { "ca.crt": compromised.authority.ca_pem() } });
    secrets.patch(ACCOUNT, &PatchParams::default(), &Patch::Merge(ca)).await.unwrap();

    let response = eventually("the cluster has received a request", SOON, async || {
        let response = application.raw().await.asks(PATH, token, "").await;
        if compromised.inner.heads.lock().is_empty() { Err(response) } else { Ok(Some(response)) }
    })
    .await;
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    assert!(
        response.contains("hub-addons user server: ") && !response.contains(token),
        "{response}"
    );
    lists(&kubectl, "one").await;

    // Neither the cluster nor an agent has seen the caller's token, and what the cluster has seen is of use nowhere else.
    let heads = std::mem::take(&mut *compromised.inner.heads.lock());
    let mut stolen = None;
    for head in &heads {
        assert!(!format!("{head:?}").contains(token), "{head:?}");
        let user =
            format!("cluster:hub:system:serviceaccount:{}:application", application.namespace());
        assert_eq!(head["impersonate-user"], user);
        stolen = head["authorization"].to_str().unwrap().strip_prefix("Bearer ");
    }
    let stolen = stolen.unwrap();
    assert!(!agent.passed.lock().is_empty());
    for secret in [token, stolen, "authorization", "Bearer"] {
        let bytes = secret.as_bytes();
        assert!(
            !agent.passed.lock().windows(bytes.len()).any(|part| part == bytes),
            "{secret} passed an agent"
        );
    }
    for (what, hub) in [("the hub", &*stage.chain.hub), ("another cluster", stage.cluster("one"))] {
        let raw = Raw::connect(address_of(&hub.url()), hub.ca_pem()).await;
        let response = raw.asks("api/v1/namespaces", stolen, "").await;
        assert!(response.starts_with("HTTP/1.1 401 "), "{what}: {response}");
    }
    let response = application.raw().await.asks("one/api/v1/namespaces", stolen, "").await;
    assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
}

/// The cluster two is what it was.
pub async fn returns(scene: &Scene) {
    for cluster in CLUSTERS {
        let address = address_of(&scene.tunnel.stage.cluster(cluster).url());
        scene.tunnel.proxy.lead_to_api_server(cluster, address).unwrap();
    }
    scene.tunnel.stage.agent("two").await.report(ACCOUNT, HOUR).await.unwrap();
}
