//! TLS to the hub: its roots and nobody else's.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::api_server::{ApiServer, ClientCertificate, Trust};

/// Why no TLS connection can be begun. What the PEM parser says is left out: it repeats the line it stumbled over,
/// which may be one of a private key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate authority has no certificate in it.
    #[error("the certificate authority holds no certificate in PEM")]
    NoRoots,
    /// The client certificate is none.
    #[error("the client certificate is no certificate in PEM")]
    ClientCertificate,
    /// Its key is none.
    #[error("the client key is no private key in PEM")]
    ClientKey,
    /// There is no such server name.
    #[error("the server's name is neither an IP address nor a DNS name")]
    ServerName,
    /// rustls does not take it.
    #[error("cannot set TLS up")]
    Refused(#[from] rustls::Error),
}

/// A connection to be, with whom we trust and who we are.
pub fn connection(server: &ApiServer) -> Result<ClientConnection, TlsError> {
    let name = server.tls_server_name.as_deref().unwrap_or(server.url.host());
    let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsError::ServerName)?;
    Ok(ClientConnection::new(Arc::new(config(server)?), name)?)
}

fn config(server: &ApiServer) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &server.trust {
        Trust::Roots(pem) => builder.with_root_certificates(roots(pem)?),
        Trust::Anybody => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
    };
    let mut config = match &server.certificate {
        Some(certificate) => {
            let (chain, key) = identity(certificate)?;
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
    // One odd certificate in a bundle does not make the others unusable; a bundle without any good one is no bundle.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

fn identity(
    pem: &ClientCertificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem.chain)
        .collect::<Result<_, _>>()
        .map_err(|_| TlsError::ClientCertificate)?;
    if chain.is_empty() {
        return Err(TlsError::ClientCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|_| TlsError::ClientKey)?;
    Ok((chain, key))
}

/// `insecure-skip-tls-verify`: any certificate of any name will do, as long as its owner is at the other end.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

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
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
