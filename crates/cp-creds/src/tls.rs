//! TLS to the hub, with the hub's roots only.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::api_server::{ApiServer, ClientCertificate, Trust};

/// Why TLS cannot be set up. The PEM parser's messages are omitted: they quote the offending line, which may be part of
/// a private key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate authority contains no certificate in PEM")]
    NoRoots,
    #[error("the client certificate is not a certificate in PEM")]
    ClientCertificate,
    #[error("the client key is not a private key in PEM")]
    ClientKey,
    #[error("the server's name is neither an IP address nor a DNS name")]
    ServerName,
    /// rustls rejects the configuration.
    #[error("cannot set TLS up")]
    Refused(#[from] rustls::Error),
}

/// A connection with the given trust and credentials, before the handshake.
pub fn connection(server: &ApiServer) -> Result<ClientConnection, TlsError> {
    let name = server.tls_server_name.as_deref().unwrap_or(&server.url.host);
    let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsError::ServerName)?;
    Ok(ClientConnection::new(Arc::new(config(server)?), name)?)
}

fn config(server: &ApiServer) -> Result<ClientConfig, TlsError> {
    let provider = ring::default_provider();
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?;
    let builder = match &server.trust {
        Trust::Roots(pem) => builder.with_root_certificates(roots(pem)?),
        Trust::Anybody => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(algorithms)))
        }
    };
    let mut config = match &server.certificate {
        Some(ClientCertificate { chain, key }) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
            let chain =
                chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::ClientCertificate)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::ClientKey)?;
            builder.with_client_auth_cert(chain, key)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // One malformed certificate in a bundle does not invalidate the others; a bundle without any valid one is rejected.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
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
