//! TLS to the hub, with the hub's roots only.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::api_server::{ApiServer, ClientCertificate, Trust};

/// rustls rejects the configuration.
const REFUSED: &str = "cannot set TLS up";

/// A connection with the given trust and credentials, before the handshake.
pub fn connection(server: &ApiServer) -> Result<ClientConnection> {
    let name = server.tls_server_name.as_deref().unwrap_or(&server.url.host);
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| anyhow!("the server's name is neither an IP address nor a DNS name"))?;
    ClientConnection::new(Arc::new(config(server)?), name).context(REFUSED)
}

/// The PEM parser's messages are omitted: they quote the offending line, which may be part of a private key.
fn config(server: &ApiServer) -> Result<ClientConfig> {
    let provider = ring::default_provider();
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .context(REFUSED)?;
    let builder = match &server.trust {
        Trust::Roots(pem) => builder.with_root_certificates(roots(pem)?),
        Trust::Anybody => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(algorithms)))
        }
    };
    let mut config = match &server.certificate {
        Some(ClientCertificate { chain, key }) => {
            let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().ok();
            let chain = chain
                .filter(|chain| !chain.is_empty())
                .context("the client certificate is not a certificate in PEM")?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| anyhow!("the client key is not a private key in PEM"))?;
            builder.with_client_auth_cert(chain, key).context(REFUSED)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn roots(pem: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // One malformed certificate in a bundle does not invalidate the others; a bundle without any valid one is rejected.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    ensure!(!roots.is_empty(), "the certificate authority contains no certificate in PEM");
    Ok(roots)
}

/// `insecure-skip-tls-verify`: accepts any certificate of any name if the server proves that it has the key.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
