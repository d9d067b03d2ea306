//! The certificates and keys of one hub. Each hub has its own authority: a client of one hub that finds another at its
//! port rejects it.

use rcgen::KeyPair;

use crate::{HubError, ServingAuthority, ServingCertificate};

/// The certificates and keys that a hub's programs use.
pub(crate) struct Certificates {
    pub(crate) authority: Authority,
    /// The API server's certificate.
    pub(crate) serving: ServingCertificate,
    /// Signs service account tokens, PEM.
    pub(crate) service_account_key: String,
    /// Verifies them, PEM. Kubernetes cannot derive it from the key above, which is PKCS #8.
    pub(crate) service_account_public_key: String,
}

/// The public half of the hub's authority.
#[derive(Clone, Debug)]
pub(crate) struct Authority {
    pub(crate) pem: String,
    pub(crate) der: Vec<u8>,
}

impl Certificates {
    pub(crate) fn generate() -> Result<Self, HubError> {
        let authority = ServingAuthority::new("local-hub")?;
        let service_account_key = KeyPair::generate()?;
        Ok(Self {
            // The last two are its names in Pods.
            serving: authority.issue([
                "127.0.0.1",
                "localhost",
                "10.0.0.1",
                "kubernetes.default.svc",
            ])?,
            authority: Authority { pem: authority.ca_pem(), der: authority.ca_der() },
            service_account_key: service_account_key.serialize_pem(),
            service_account_public_key: service_account_key.public_key_pem(),
        })
    }
}
