//! How the user server handles bytes, between a client and an API server that the tests implement.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy takes only functions marked as tests for tests"
)]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use local_hub::{ServingAuthority, ServingCertificate, Upstream, UserServer, eventually};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const SOON: Duration = Duration::from_mins(2);

const HERE: &str = "127.0.0.1";

/// One end of a connection.
struct End {
    stream: Box<dyn ReadWrite>,
    read: Vec<u8>,
}

trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for S {}

impl End {
    fn new(stream: impl ReadWrite + 'static) -> Self {
        Self { stream: Box::new(stream), read: Vec::new() }
    }

    async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Reads up to and including a text, and not more, since more may be written only later.
    async fn read_to(&mut self, text: &str) -> String {
        let reading = async {
            loop {
                if let Some(at) = self.read.windows(text.len()).position(|part| part == text.as_bytes()) {
                    let part: Vec<u8> = self.read.drain(..at + text.len()).collect();
                    return String::from_utf8(part).unwrap();
                }
                assert_ne!(self.stream.read_buf(&mut self.read).await.unwrap(), 0, "{:?}", self.read);
            }
        };
        tokio::time::timeout(SOON, reading).await.unwrap_or_else(|_| panic!("no {text:?}"))
    }

    async fn read_head(&mut self) -> String {
        self.read_to("\r\n\r\n").await.to_ascii_lowercase()
    }

    /// Whether the other end closes the connection in any way.
    async fn is_left(&mut self) -> bool {
        let read = tokio::time::timeout(SOON, self.stream.read_buf(&mut self.read)).await;
        !matches!(read.unwrap(), Ok(1..))
    }

    /// The status code and the body of a response of known length.
    async fn read_status(&mut self) -> (u16, Value) {
        let head = self.read_head().await;
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        while self.read.len() < length {
            assert_ne!(self.stream.read_buf(&mut self.read).await.unwrap(), 0);
        }
        (code, serde_json::from_slice(&self.read).unwrap())
    }
}

/// An API server whose responses the test writes.
struct ApiServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    address: SocketAddr,
    ca: String,
}

impl ApiServer {
    async fn start() -> Self {
        let authority = ServingAuthority::new("cluster").unwrap();
        let serving = authority.issue([HERE]).unwrap();
        let chain = CertificateDer::pem_slice_iter(serving.tls_crt().as_bytes());
        let key = PrivateKeyDer::from_pem_slice(serving.tls_key().as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.collect::<Result<_, _>>().unwrap(), key)
            .unwrap();
        let listener = TcpListener::bind((HERE, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)), address, ca: authority.ca_pem() }
    }

    fn upstream(&self) -> Upstream {
        Upstream::new(&format!("https://{}", self.address), &self.ca).unwrap()
    }

    async fn accept(&self) -> End {
        let (stream, _) = tokio::time::timeout(SOON, self.listener.accept()).await.unwrap().unwrap();
        End::new(self.acceptor.accept(stream).await.unwrap())
    }
}

/// A user server, and what its clients need.
struct Proxy {
    server: UserServer,
    serving: ServingCertificate,
    ca: String,
}

impl Proxy {
    fn to(clusters: impl IntoIterator<Item = (&'static str, Upstream)>) -> Self {
        let authority = ServingAuthority::new("proxy").unwrap();
        let serving = authority.issue([HERE]).unwrap();
        let server = UserServer::start(&serving, "127.0.0.1:0".parse().unwrap(), clusters).unwrap();
        Self { server, serving, ca: authority.ca_pem() }
    }

    async fn client(&self) -> End {
        End::new(connect(self.server.address(), &self.ca, &["http/1.1"]).await.unwrap())
    }
}

async fn connect(
    address: SocketAddr,
    ca: &str,
    protocols: &[&str],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(HERE).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(address).await?).await
}

#[tokio::test]
async fn an_upgraded_connection_passes_both_ways_until_both_ends_are_done() {
    let cluster = ApiServer::start().await;
    let proxy = Proxy::to([("one", cluster.upstream())]);
    let mut client = proxy.client().await;
    client
        .write(
            "POST /one/exec?command=sh HTTP/1.1\r\nHost: proxy\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             Authorization: Bearer made-up\r\nContent-Length: 0\r\n\r\n",
        )
        .await;
    let mut server = cluster.accept().await;
    let head = server.read_head().await;
    assert!(head.starts_with("post /exec?command=sh http/1.1\r\n"), "{head}");
    for line in ["connection: upgrade", "upgrade: spdy/3.1", "authorization: bearer made-up"] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
    }
    server
        .write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nfirst")
        .await;
    let head = client.read_head().await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in ["connection: upgrade", "upgrade: spdy/3.1"] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
    }

    // In turns, so that no byte can have waited for an end.
    client.read_to("first").await;
    client.write("second").await;
    server.read_to("second").await;
    server.write("third").await;
    client.read_to("third").await;
    // Like `kubectl exec` after the end of its standard input: the other direction stays open.
    client.stream.shutdown().await.unwrap();
    assert!(server.is_left().await);
    server.write("last").await;
    client.read_to("last").await;
    server.stream.shutdown().await.unwrap();
    assert!(client.is_left().await);
}

#[tokio::test]
async fn bodies_pass_piece_by_piece() {
    let cluster = ApiServer::start().await;
    let proxy = Proxy::to([("one", cluster.upstream())]);
    let mut client = proxy.client().await;
    client.write("POST /one/upload HTTP/1.1\r\nHost: proxy\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.write("5\r\nfirst\r\n").await;
    let mut server = cluster.accept().await;
    let head = server.read_head().await;
    assert!(head.starts_with("post /upload http/1.1\r\n"), "{head}");
    server.read_to("first").await;
    client.write("6\r\nsecond\r\n0\r\n\r\n").await;
    server.read_to("second").await;
    server.read_to("0\r\n\r\n").await;

    server.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nthird\r\n").await;
    client.read_head().await;
    client.read_to("third").await;
    server.write("6\r\nfourth\r\n0\r\n\r\n").await;
    client.read_to("fourth").await;
    client.read_to("0\r\n\r\n").await;

    // The same connection is reused.
    client.write("GET /one/next HTTP/1.1\r\nHost: proxy\r\n\r\n").await;
    let mut server = cluster.accept().await;
    assert!(server.read_head().await.starts_with("get /next http/1.1\r\n"));
}

#[tokio::test]
async fn what_is_about_one_connection_ends_at_the_proxy() {
    let cluster = ApiServer::start().await;
    let proxy = Proxy::to([("one", cluster.upstream())]);
    let mut client = proxy.client().await;
    client
        .write(
            "GET /one/api%2Fv1/../pods?a=%20b&watch=1 HTTP/1.1\r\nHost: proxy\r\nConnection: keep-alive, x-mine\r\n\
             X-Mine: 1\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\nProxy-Authorization: Basic eDp5\r\n\
             Authorization: Bearer made-up\r\nImpersonate-User: somebody\r\n\r\n",
        )
        .await;
    let mut server = cluster.accept().await;
    let head = server.read_head().await;
    let mut lines: Vec<&str> = head.trim_end().split("\r\n").collect();
    lines.sort_unstable();
    // All end-to-end headers unchanged, and none of the proxy's.
    let host = format!("host: {}", cluster.address);
    let expected = [
        "authorization: bearer made-up",
        "get /api%2fv1/../pods?a=%20b&watch=1 http/1.1",
        host.as_str(),
        "impersonate-user: somebody",
    ];
    assert_eq!(lines, expected);

    server
        .write("HTTP/1.1 204 No Content\r\nConnection: close, x-yours\r\nX-Yours: 1\r\nX-Kept: 1\r\n\r\n")
        .await;
    let head = client.read_head().await;
    assert!(head.starts_with("http/1.1 204 "), "{head}");
    assert!(head.contains("\r\nx-kept: 1\r\n") && !head.contains("x-yours"), "{head}");
    assert!(!head.contains("close"), "{head}");
}

#[tokio::test]
async fn what_cannot_be_passed_on_is_answered_with_a_status() {
    let foreign = ApiServer::start().await;
    // No process listens on this port, and none can.
    let taken = TcpSocket::new_v4().unwrap();
    taken.bind((HERE.parse::<IpAddr>().unwrap(), 0).into()).unwrap();
    let down = Upstream::new(&format!("https://{}", taken.local_addr().unwrap()), &foreign.ca).unwrap();
    let other_ca = ServingAuthority::new("other").unwrap().ca_pem();
    let mistrusted = Upstream::new(&format!("https://{}", foreign.address), &other_ca).unwrap();
    let proxy = Proxy::to([("down", down), ("mistrusted", mistrusted)]);
    let mut client = proxy.client().await;
    client.write("GET /nobody/api HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer made-up\r\n\r\n").await;
    let (code, status) = client.read_status().await;
    assert_eq!(code, 404);
    assert_eq!(
        status,
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": "NotFound",
            "message": "cluster \"nobody\" not found",
            "code": 404,
        })
    );

    for cluster in ["down", "mistrusted"] {
        let mut client = proxy.client().await;
        let request =
            format!("GET /{cluster}/api HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer made-up\r\n\r\n");
        let asked = async {
            client.write(&request).await;
            client.read_status().await
        };
        // It fails at the certificate.
        let refused = async {
            if cluster == "mistrusted" {
                let (stream, _) = foreign.listener.accept().await.unwrap();
                assert!(foreign.acceptor.accept(stream).await.is_err());
            }
        };
        let ((code, status), ()) = tokio::join!(asked, refused);
        assert_eq!((code, &status["code"], &status["kind"]), (502, &json!(502), &json!("Status")));
        let message = status["message"].as_str().unwrap();
        let reason = if cluster == "down" { "Connection refused" } else { "UnknownIssuer" };
        assert!(message.contains(cluster) && message.contains(reason), "{message}");
        assert!(!message.contains("made-up"), "{message}");
    }
}

#[tokio::test]
async fn a_client_that_trusts_other_roots_does_not_connect() {
    let proxy = Proxy::to([]);
    let other = ServingAuthority::new("proxy").unwrap().ca_pem();
    let refused = connect(proxy.server.address(), &other, &["http/1.1"]).await.unwrap_err();
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
    proxy.client().await;
}

#[tokio::test]
async fn http_1_1_is_all_that_is_spoken() {
    let proxy = Proxy::to([]);
    let both = connect(proxy.server.address(), &proxy.ca, &["h2", "http/1.1"]).await.unwrap();
    assert_eq!(both.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
    let refused = connect(proxy.server.address(), &proxy.ca, &["h2"]).await.unwrap_err();
    assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
}

#[tokio::test]
async fn a_client_that_leaves_is_not_stood_in_for() {
    let cluster = ApiServer::start().await;
    let proxy = Proxy::to([("one", cluster.upstream())]);
    for answered in [false, true] {
        let mut client = proxy.client().await;
        client.write("GET /one/api?watch=1 HTTP/1.1\r\nHost: proxy\r\n\r\n").await;
        let mut server = cluster.accept().await;
        server.read_head().await;
        if answered {
            server.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n").await;
            client.read_to("x").await;
        }
        drop(client);
        assert!(server.is_left().await, "answered: {answered}");
    }
}

#[tokio::test]
async fn a_dropped_server_is_gone_with_all_that_was_open() {
    let cluster = ApiServer::start().await;
    let proxy = Proxy::to([("one", cluster.upstream())]);
    let mut client = proxy.client().await;
    client.write("GET /one/api?watch=1 HTTP/1.1\r\nHost: proxy\r\n\r\n").await;
    let mut server = cluster.accept().await;
    server.read_head().await;

    let Proxy { server: user_server, serving, ca } = proxy;
    let address = user_server.address();
    assert_eq!(user_server.url_of("one"), format!("https://{address}/one"));
    drop(user_server);
    assert!(TcpStream::connect(address).await.is_err());
    assert!(client.is_left().await);
    assert!(server.is_left().await);

    // And the address can be used again.
    let _again = eventually("the address is free", SOON, async || {
        UserServer::start(&serving, address, [("one", cluster.upstream())]).map(Some)
    })
    .await;
    connect(address, &ca, &["http/1.1"]).await.unwrap();
}
