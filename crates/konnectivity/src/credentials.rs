//! What identifies a client to the proxy server, and the proxy server to it.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A client certificate with its key, and the authorities of the proxy server.
#[derive(Clone)]
pub struct Credentials(pub(crate) Arc<ClientConfig>);

/// Why there are no credentials. No variant quotes the input, a part of which is a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// There is no authority.
    #[error("the proxy server's CA has no certificate that can be used")]
    NoAuthority,
    /// The certificate and the key cannot be used.
    #[error("the client certificate and its private key cannot be used")]
    Unusable,
}

impl Credentials {
    /// Reads the authorities of the proxy server, and the chain and the key of the client, in PEM.
    pub fn from_pem(
        authorities: &[u8],
        chain: &[u8],
        key: &[u8],
    ) -> Result<Self, CredentialsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(authorities).flatten());
        if roots.is_empty() {
            return Err(CredentialsError::NoAuthority);
        }
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|_| CredentialsError::Unusable)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CredentialsError::Unusable)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_root_certificates(roots).with_client_auth_cert(chain, key)
            });
        let mut config = config.map_err(|_| CredentialsError::Unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}
