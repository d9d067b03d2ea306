//! Requests as no client library sends them.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A connection with TLS.
pub struct Raw(TlsStream<TcpStream>);

impl Raw {
    /// Connects to a server with a certificate of this authority.
    pub async fn connect(address: SocketAddr, authority: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::from(address.ip());
        Self(TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap())
    }

    /// The stream, for a client library.
    pub fn into_stream(self) -> TlsStream<TcpStream> {
        self.0
    }

    /// The response to a request for a path, with a token and further lines of its head.
    pub async fn asks(self, path: &str, token: &str, lines: &str) -> String {
        let head = format!("GET /{path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n{lines}");
        self.sends(&head).await
    }

    /// Sends a request for a path, and reads nothing.
    pub async fn starts(mut self, path: &str, token: &str) -> Self {
        let request =
            format!("GET /{path} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n\r\n");
        self.0.write_all(request.as_bytes()).await.unwrap();
        self
    }

    /// The response to a request with this head, which gets a host and its end.
    pub async fn sends(mut self, head: &str) -> String {
        let request = format!("{head}Host: hub\r\nConnection: close\r\n\r\n");
        self.0.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        // A reset is an end as well.
        let _ = self.0.read_to_end(&mut response).await;
        String::from_utf8_lossy(&response).into_owned()
    }
}
