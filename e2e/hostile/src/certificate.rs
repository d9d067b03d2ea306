//! Self-signed certificates.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate that is its own authority.
#[derive(Clone)]
pub struct Certificate {
    pub pem: String,
    pub key: String,
}

impl Certificate {
    #[must_use]
    pub fn new(name: &str) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        Self { pem: cert.pem(), key: signing_key.serialize_pem() }
    }

    /// A server with this certificate.
    #[must_use]
    pub fn server(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let certificate = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }

    /// A client of such a server.
    #[must_use]
    pub fn client(&self, protocol: &[u8]) -> Arc<ClientConfig> {
        client_config(self.pem.as_bytes(), protocol)
    }
}

/// A client of servers whose certificates these authorities verify.
pub(crate) fn client_config(authorities: &[u8], protocol: &[u8]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(authorities).flatten());
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}
