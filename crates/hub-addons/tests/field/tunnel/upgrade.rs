//! A watch over a WebSocket: the upgraded connection that an API server serves without a kubelet.

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::ByteString;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const TEXT: u8 = 1;
const PONG: u8 = 10;
/// A final ping frame with four masked bytes, whose mask is zero.
const PING: &[u8] = b"\x89\x84\0\0\0\0ping";

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An upgraded connection.
pub struct Upgraded(Box<dyn Stream>);

impl Upgraded {
    /// Connects to the server of a published entry, which listens at `address`, and watches what is at a path.
    pub async fn watch(stanza: &Value, address: SocketAddr, token: &str, path: &str) -> Self {
        let server: http::Uri = stanza["server"].as_str().unwrap().parse().unwrap();
        let data: ByteString =
            serde_json::from_value(stanza["certificate-authority-data"].clone()).unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&data.0) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let host = server.host().unwrap().to_owned();
        let name = ServerName::try_from(host.clone()).unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let request = format!(
            "GET {}{path} HTTP/1.1\r\nHost: {host}\r\nOrigin: https://{host}\r\nAuthorization: Bearer {token}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            server.path(),
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        Self(Box::new(stream))
    }

    /// Reads until there is an event for an object with this name.
    pub async fn sees(&mut self, name: &str) {
        loop {
            let (opcode, payload) = self.frame().await;
            assert_eq!(opcode, TEXT);
            let event: Value = serde_json::from_slice(&payload).unwrap();
            if event["object"]["metadata"]["name"] == name {
                return;
            }
        }
    }

    /// Sends a ping, and reads until its response.
    pub async fn responds(&mut self) {
        self.0.write_all(PING).await.unwrap();
        loop {
            let (opcode, payload) = self.frame().await;
            if opcode == PONG {
                assert_eq!(payload, b"ping");
                return;
            }
        }
    }

    /// Reads until the connection ends.
    pub async fn ends(&mut self) {
        let mut rest = Vec::new();
        // Without a closing message of TLS, since it is cut.
        let _ = self.0.read_to_end(&mut rest).await;
    }

    /// The next frame, which is final and not masked: its opcode and payload.
    async fn frame(&mut self) -> (u8, Vec<u8>) {
        let first = self.0.read_u8().await.unwrap();
        let length = match self.0.read_u8().await.unwrap() {
            126 => self.0.read_u16().await.unwrap().into(),
            127 => self.0.read_u64().await.unwrap(),
            length => length.into(),
        };
        let mut payload = vec![0; length.try_into().unwrap()];
        self.0.read_exact(&mut payload).await.unwrap();
        (first & 0xf, payload)
    }
}
