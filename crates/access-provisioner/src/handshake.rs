//! Whether a server already serves with a certificate of the new trust anchors: a TLS handshake, and nothing after it.
//!
//! The result decides only when replaced anchors are withdrawn, never whom a client trusts: whoever can impersonate the
//! server can at most end an overlap early.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hub_core::endpoint::ServerAddress;
use hub_core::trust::TrustBundle;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Connects to a server, and verifies its certificate by these anchors alone.
pub type Handshake =
    Arc<dyn Fn(ServerAddress, TrustBundle) -> BoxFuture<'static, Result<(), HandshakeError>> + Send + Sync>;

/// Why a server was not seen to serve with a certificate of the new anchors: it cannot be reached, its host is not a
/// valid name for a certificate, or no anchor can be used or verifies its certificate. All of them are only logged.
pub type HandshakeError = Box<dyn Error + Send + Sync>;

/// Handshakes on the network.
#[must_use]
pub fn over_tcp() -> Handshake {
    Arc::new(|address, anchors| connect(address, anchors).boxed())
}

async fn connect(address: ServerAddress, anchors: TrustBundle) -> Result<(), HandshakeError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for anchor in anchors.anchors() {
        roots.add(CertificateDer::from(anchor.der.to_vec()))?;
    }
    let roots =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let verifier = Arc::new(ByAnchors { roots, anchors });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    let name = match address.host.parse::<IpAddr>() {
        Ok(ip) => ServerName::from(ip),
        Err(_) => ServerName::try_from(address.host.clone())?,
    };
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(())
}

/// Verifies a certificate as clients do: by its issuer, or as one that is trusted itself.
#[derive(Debug)]
struct ByAnchors {
    roots: Arc<WebPkiServerVerifier>,
    anchors: TrustBundle,
}

impl ServerCertVerifier for ByAnchors {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // Unlike Go, webpki refuses a self-signed CA certificate as the certificate of a server.
        if self.anchors.anchors().any(|anchor| *anchor.der == **end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        self.roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.roots.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.roots.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.roots.supported_verify_schemes()
    }
}
