//! Trust anchors: the certificates by which clients verify a server.
//!
//! A serving Secret contains a chain that begins with the server's own certificate. That leaf is not published: it is
//! renewed every few weeks, which would be a write to every profile each time, while its issuer stays. The chain's CA
//! certificates are published, or a self-signed certificate, which is its own anchor. Input without any is an error and
//! never an empty bundle, because with an empty one clients use the system's roots.

mod ca_reference;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

use crate::effort;

pub use self::ca_reference::{CaKind, CaReference, InvalidCaReference};

/// Limit of the PEM text of a published bundle, in bytes. An exec plugin receives it in one environment variable, in
/// base64, and the kernel limits a variable to 131072 bytes (`MAX_ARG_STRLEN`,
/// <https://man7.org/linux/man-pages/man2/execve.2.html>).
pub const BUNDLE_SIZE_LIMIT: usize = 64 * 1024;

const CERTIFICATE: &str = "CERTIFICATE";
/// The object identifier of the curve P-521 (<https://www.rfc-editor.org/rfc/rfc5480#section-2.1.1.1>).
const P521: &str = "1.3.132.0.35";

/// One trusted certificate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustAnchor {
    /// The certificate, in DER.
    pub der: Arc<[u8]>,
    /// When it expires.
    pub not_after: Timestamp,
}

impl TrustAnchor {
    /// Whether its key is on the curve P-521. Clients in Go verify the certificates of such a CA, and the TLS library of
    /// this project does not (<https://github.com/rustls/rustls/issues/2536>).
    #[must_use]
    pub fn is_on_p521(&self) -> bool {
        X509Certificate::from_der(&self.der).is_ok_and(|(_, certificate)| {
            let curve = certificate.public_key().algorithm.parameters.as_ref();
            curve.and_then(|curve| curve.as_oid().ok()).is_some_and(|it| it.to_id_string() == P521)
        })
    }
}

/// A non-empty set of trust anchors. The same anchors give the same PEM text, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    anchors: BTreeSet<TrustAnchor>,
    pem: Arc<str>,
}

/// Why there is no valid trust anchor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    #[error("it contains no certificate")]
    NoCertificate,
    #[error("its PEM text is malformed: {0}")]
    MalformedPem(String),
    /// A certificate block does not contain a valid certificate.
    #[error("its certificate number {number} cannot be parsed: {error}")]
    MalformedCertificate {
        /// The number of the certificate, counted from 1.
        number: usize,
        /// The parser's message.
        error: String,
    },
    #[error(
        "it contains a server certificate without its issuer: neither a CA certificate nor a self-signed one"
    )]
    NoAuthority,
    /// The bundle is too large for exec plugins of clients.
    #[error(
        "its {certificates} CA certificates have {size} bytes of PEM, and the limit for clients is {BUNDLE_SIZE_LIMIT}"
    )]
    TooLarge { certificates: usize, size: usize },
}

impl TrustBundle {
    /// The trust anchors in the PEM text of a serving chain or a CA file: its CA certificates or, if there are none,
    /// the self-signed ones. A root of X.509 version 1 is one of the latter: that version has no field to mark a CA.
    pub fn from_pem(text: &[u8]) -> Result<Self, TrustError> {
        let certificates = parse(text)?;
        let those = |which: fn(&Parsed) -> bool| -> BTreeSet<_> {
            let matching = certificates.iter().filter(|certificate| which(certificate));
            matching.map(|certificate| certificate.anchor.clone()).collect()
        };
        let mut anchors = those(|certificate| certificate.is_ca);
        if anchors.is_empty() {
            anchors = those(|certificate| certificate.is_self_signed);
        }
        if anchors.is_empty() { Err(TrustError::NoAuthority) } else { Self::of(anchors) }
    }

    /// Every certificate in a PEM text that is already published as anchors.
    pub fn from_published(text: &[u8]) -> Result<Self, TrustError> {
        effort::count(|spent| spent.parses += 1);
        Self::of(parse(text)?.into_iter().map(|certificate| certificate.anchor).collect())
    }

    /// The union of this bundle and more anchors.
    pub fn with<'a>(
        &self,
        more: impl IntoIterator<Item = &'a TrustAnchor>,
    ) -> Result<Self, TrustError> {
        let mut anchors = self.anchors.clone();
        anchors.extend(more.into_iter().cloned());
        Self::of(anchors)
    }

    /// The anchors that are not in the other bundle.
    pub fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a TrustAnchor> {
        self.anchors.difference(&other.anchors)
    }

    pub fn anchors(&self) -> impl Iterator<Item = &TrustAnchor> {
        self.anchors.iter()
    }

    /// The earliest expiry of the anchors.
    #[must_use]
    pub fn first_expiry(&self) -> Option<Timestamp> {
        self.anchors.iter().map(|anchor| anchor.not_after).min()
    }

    /// The PEM text: a function of the set of anchors.
    #[must_use]
    pub fn pem(&self) -> &Arc<str> {
        &self.pem
    }

    /// The bundle of these anchors, if it is not too large.
    fn of(anchors: BTreeSet<TrustAnchor>) -> Result<Self, TrustError> {
        let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        let blocks = anchors.iter().map(|anchor| pem::Pem::new(CERTIFICATE, anchor.der.to_vec()));
        let pem: String = blocks.map(|block| pem::encode_config(&block, config)).collect();
        if pem.len() < BUNDLE_SIZE_LIMIT {
            Ok(Self { anchors, pem: pem.into() })
        } else {
            Err(TrustError::TooLarge { certificates: anchors.len(), size: pem.len() })
        }
    }
}

/// The DNS names in the serving certificate at the beginning of a PEM text; `None` if the text begins with a CA
/// certificate, as that of a file with CAs.
#[must_use]
pub fn serving_names(text: &[u8]) -> Option<Vec<String>> {
    let block = pem::parse_many(text).ok()?.into_iter().find(|block| block.tag() == CERTIFICATE)?;
    let (_, certificate) = X509Certificate::from_der(block.contents()).ok()?;
    let names = &certificate.subject_alternative_name().ok()??.value.general_names;
    let names = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    (!certificate.is_ca()).then(|| names.collect())
}

/// When a certificate in DER expires; `None` if it cannot be parsed.
#[must_use]
pub fn expiry(der: &[u8]) -> Option<Timestamp> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| not_after(&certificate))
}

/// jiff does not support years after 9999, and such an expiry is irrelevant.
fn not_after(certificate: &X509Certificate<'_>) -> Timestamp {
    Timestamp::from_second(certificate.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX)
}

/// A certificate and its role according to its fields.
struct Parsed {
    anchor: TrustAnchor,
    is_ca: bool,
    is_self_signed: bool,
}

/// The certificates of a PEM text. Blocks of other kinds, such as private keys, are skipped.
fn parse(text: &[u8]) -> Result<Vec<Parsed>, TrustError> {
    let blocks =
        pem::parse_many(text).map_err(|error| TrustError::MalformedPem(error.to_string()))?;
    let mut certificates = Vec::new();
    for block in blocks.into_iter().filter(|block| block.tag() == CERTIFICATE) {
        let der = block.contents();
        let malformed = |error: String| TrustError::MalformedCertificate {
            number: certificates.len() + 1,
            error,
        };
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|error| malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(malformed("there are trailing bytes".to_owned()));
        }
        certificates.push(Parsed {
            anchor: TrustAnchor { der: der.into(), not_after: not_after(&certificate) },
            is_ca: certificate.is_ca(),
            is_self_signed: is_self_signed(&certificate),
        });
    }
    // The parser skips a block without an end, like any text between blocks, so the number of blocks is compared.
    let begun = String::from_utf8_lossy(text).matches("-----BEGIN CERTIFICATE-----").count();
    if begun > certificates.len() {
        return Err(TrustError::MalformedPem(format!(
            "{begun} certificates begin and {} end",
            certificates.len()
        )));
    }
    if certificates.is_empty() { Err(TrustError::NoCertificate) } else { Ok(certificates) }
}

/// Whether a certificate names itself as its issuer, by name and, if it has key identifiers, by key.
fn is_self_signed(certificate: &X509Certificate<'_>) -> bool {
    let (mut key_of_issuer, mut own_key) = (None, None);
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(issuer) => {
                key_of_issuer = key_of_issuer.or(issuer.key_identifier.as_ref());
            }
            ParsedExtension::SubjectKeyIdentifier(own) => own_key = own_key.or(Some(own)),
            _ => {}
        }
    }
    certificate.issuer() == certificate.subject()
        && key_of_issuer.zip(own_key).is_none_or(|(issuer, own)| issuer == own)
}
