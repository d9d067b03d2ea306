//! Certificate authorities of cluster-proxy's server.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// An authority with this name and a new key.
    pub fn new(name: &str) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(4000, 1, 1);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A new serving certificate followed by this authority's, as the addon writes them.
    pub fn chain(&self) -> Result<String, rcgen::Error> {
        let mut params = CertificateParams::new(["proxy.example".to_owned()])?;
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&KeyPair::generate()?, &self.0)?;
        Ok(format!("{}{}", leaf.pem(), self.pem()))
    }
}
