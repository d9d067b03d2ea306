//! Certificates for servers, and the authorities that sign them.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::HubError;

/// A certificate authority with its own key.
#[derive(Debug)]
pub struct ServingAuthority(CertifiedIssuer<'static, KeyPair>);

impl ServingAuthority {
    /// An authority with this name. Two authorities of the same name are distinct.
    pub fn new(name: &str) -> Result<Self, HubError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its own certificate, which clients trust.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        unix_lines(&self.0.pem())
    }

    pub(crate) fn ca_der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }

    /// A new certificate and key for a server that is reached by any of these names or addresses.
    pub fn issue<N: Into<String>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<ServingCertificate, HubError> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let mut params = CertificateParams::new(names.clone())?;
        if let Some(name) = names.first() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &self.0)?;
        Ok(ServingCertificate {
            chain: format!("{}{}", unix_lines(&leaf.pem()), self.ca_pem()),
            key: unix_lines(&key.serialize_pem()),
        })
    }
}

/// The serving certificate and its key, as in a Secret of type `kubernetes.io/tls`.
#[derive(Clone)]
pub struct ServingCertificate {
    chain: String,
    key: String,
}

impl ServingCertificate {
    /// From the contents of `tls.crt` and `tls.key`, which are validated when a server starts with them.
    #[must_use]
    pub fn from_pem(tls_crt: impl Into<String>, tls_key: impl Into<String>) -> Self {
        Self { chain: tls_crt.into(), key: tls_key.into() }
    }

    /// The server's certificate, followed by the authority's.
    #[must_use]
    pub fn tls_crt(&self) -> &str {
        &self.chain
    }

    /// The server's private key.
    #[must_use]
    pub fn tls_key(&self) -> &str {
        &self.key
    }

    /// The TLS configuration: for any client that speaks this protocol of ALPN.
    pub fn server_config(&self, protocol: &[u8]) -> Result<ServerConfig, HubError> {
        let unreadable = |what: &'static str| {
            move |error| HubError::Failed(format!("{what} is not valid PEM: {error}"))
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(self.chain.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(unreadable("the serving certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(unreadable("the serving key"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|source| {
                HubError::Failed(format!("cannot use the serving certificate: {source}"))
            })?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}

/// rcgen ends lines with CR LF.
fn unix_lines(pem: &str) -> String {
    pem.replace('\r', "")
}
