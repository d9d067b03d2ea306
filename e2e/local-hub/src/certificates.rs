//! The certificates and keys of one hub. Each hub is its own authority: a client of one hub that finds
//! another behind its port does not mistake it for its own.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::HubError;

/// What a hub's programs are started with.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: Authority,
    /// The API server's certificate and key, PEM.
    pub(crate) serving_certificate: String,
    pub(crate) serving_key: String,
    /// Signs service account tokens, PEM.
    pub(crate) service_account_key: String,
    /// Verifies them, PEM. Kubernetes does not take it from the key above, which is PKCS #8.
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
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "local-hub");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        // Like the address, `localhost` is only good for clients on this machine: the API server
        // listens nowhere else.
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let serving_key = KeyPair::generate()?;
        let serving_certificate = params.signed_by(&serving_key, &authority)?;

        let service_account_key = KeyPair::generate()?;
        Ok(Self {
            authority: Authority { pem: authority.pem(), der: authority.der().to_vec() },
            serving_certificate: serving_certificate.pem(),
            serving_key: serving_key.serialize_pem(),
            service_account_key: service_account_key.serialize_pem(),
            service_account_public_key: service_account_key.public_key_pem(),
        })
    }
}
