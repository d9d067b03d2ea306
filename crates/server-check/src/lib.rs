//! A TLS handshake with a published server, and nothing after it. It shows what clients see: whether the server answers,
//! which anchors verify its certificate, which hosts that names, and when it expires.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hub_core::access::{Presented, PublishedServer, ServerState, Sighting};
use hub_core::trust::{self, TrustAnchor};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Timeout of a check.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to the server.
pub async fn check(server: PublishedServer) -> Sighting {
    let result = timeout(TIMEOUT, connect(server)).await;
    result.unwrap_or_else(|_| Sighting::Unreachable(format!("no result within {TIMEOUT:?}")))
}

async fn connect(server: PublishedServer) -> Sighting {
    match TcpStream::connect((&*server.address.host, server.address.port)).await {
        Ok(stream) => match handshake(&server, stream, &[]).await {
            Ok((_, presented)) => Sighting::Presented(presented),
            Err(sighting) => sighting,
        },
        Err(error) => Sighting::Unreachable(explained(&error)),
    }
}

/// Until when the certificate of the server is valid, or why clients cannot use the server.
///
/// # Errors
///
/// The server is not in order.
pub fn verdict(server: &PublishedServer, sighting: &Sighting) -> Result<String, String> {
    let host = &server.address.host;
    match (server.judge(sighting), sighting) {
        ((ServerState::Ok, _), Sighting::Presented(Presented { expires, .. })) => {
            Ok(format!("{host} presents a valid certificate until {expires:.0}"))
        }
        ((state, detail), _) => Err(format!("{host} {state}: {detail}")),
    }
}

/// Makes the handshake on a connection to the server, to speak one of these protocols. An anchor has verified the
/// certificate that is returned; [`PublishedServer::judge`] compares its names.
///
/// # Errors
///
/// No anchor verifies the certificate, or there is none.
pub async fn handshake(
    server: &PublishedServer,
    stream: TcpStream,
    protocols: &[&[u8]],
) -> Result<(TlsStream<TcpStream>, Presented), Sighting> {
    let observer = Arc::new(Observer::new(server));
    let connecting = async {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&observer.provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::<Observer>::clone(&observer))
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let name = server_name(&server.address.host)?;
        Ok::<_, Box<dyn Error + Send + Sync>>(
            TlsConnector::from(Arc::new(config)).connect(name, stream).await?,
        )
    };
    match (connecting.await, observer.presented()) {
        (Ok(stream), Some(presented)) => Ok((stream, presented)),
        (Ok(_), None) => Err(Sighting::Unreachable("it presents no certificate".to_owned())),
        (Err(_), Some(presented)) if presented.refused.is_some() => {
            Err(Sighting::Presented(presented))
        }
        (Err(error), _) => Err(Sighting::Unreachable(explained(&*error))),
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, rustls::pki_types::InvalidDnsNameError> {
    match host.parse::<IpAddr>() {
        Ok(ip) => Ok(ServerName::from(ip)),
        Err(_) => ServerName::try_from(host.to_owned()),
    }
}

/// What the TLS library cannot verify, although other clients can.
const LIMIT: &str = "certificates with a key on the curve P-521, and ECDSA signatures with SHA-512, are not supported";

const AUTHORITY: &str =
    "the server presents a certificate of a CA as its own: make one with basicConstraints=CA:FALSE";

/// An error and its causes, each once (some errors quote their source, some do not). If it can be due to a signature
/// algorithm that the TLS library lacks, it says so.
#[must_use]
pub fn explained(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    match limit(error) {
        Some(limit) => format!("{text}; {limit}"),
        None => text,
    }
}

/// The limit of the TLS library that an error or one of its causes can be due to.
fn limit(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(cause) = next {
        // The source of an io::Error is that of the error in it.
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let tls = cause.downcast_ref().or_else(|| inner?.downcast_ref::<rustls::Error>());
        if let Some(limit) = tls.and_then(limit_of) {
            return Some(limit);
        }
        next = cause.source();
    }
    None
}

/// The limit that an error shows: the library says so itself, or the server finds no algorithm in common.
fn limit_of(error: &rustls::Error) -> Option<&'static str> {
    match error {
        rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)
        | rustls::Error::InvalidCertificate(
            CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        ) => Some(LIMIT),
        // An error of webpki, which rustls hides.
        rustls::Error::InvalidCertificate(CertificateError::Other(why))
            if why.to_string() == "CaUsedAsEndEntity" =>
        {
            Some(AUTHORITY)
        }
        _ => None,
    }
}

/// Verifies a certificate as clients do, and records it: by an anchor that issued it, or as one that is trusted itself.
#[derive(Debug)]
struct Observer {
    provider: Arc<CryptoProvider>,
    anchors: Vec<TrustAnchor>,
    hosts: Vec<String>,
    presented: Mutex<Option<Presented>>,
}

impl Observer {
    fn new(server: &PublishedServer) -> Self {
        Self {
            provider: Arc::new(ring::default_provider()),
            anchors: server.current.anchors().chain(&server.replaced).cloned().collect(),
            hosts: server.hosts.clone(),
            presented: Mutex::default(),
        }
    }

    fn presented(&self) -> Option<Presented> {
        self.presented.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn verify_by(
        &self,
        anchor: &TrustAnchor,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        // Unlike Go, webpki refuses a self-signed CA certificate as the certificate of a server.
        if *anchor.der == **certificate {
            let expires = u64::try_from(anchor.not_after.as_second()).unwrap_or_default();
            let is_expired = now.as_secs() > expires;
            return if is_expired { Err(CertificateError::Expired.into()) } else { Ok(()) };
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(anchor.der.to_vec()))?;
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, algorithms)
    }

    fn names(&self, certificate: &CertificateDer<'_>) -> Vec<String> {
        let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return Vec::new() };
        let is_named = |host: &&String| {
            server_name(host).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
        };
        self.hosts.iter().filter(is_named).cloned().collect()
    }
}

impl ServerCertVerifier for Observer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut verified_by = BTreeSet::new();
        let mut refused = None;
        for anchor in &self.anchors {
            match self.verify_by(anchor, end_entity, intermediates, now) {
                Ok(()) => _ = verified_by.insert(anchor.clone()),
                // Another reason than the issuer says more.
                Err(error) if refused.is_none() || !is_unknown_issuer(&error) => {
                    refused = Some(error);
                }
                Err(_) => {}
            }
        }
        let refused = refused.filter(|_| verified_by.is_empty());
        let presented = Presented {
            verified_by,
            names: self.names(end_entity),
            expires: trust::expiry(end_entity).unwrap_or_default(),
            refused: refused.as_ref().map(|error| explained(error)),
        };
        *self.presented.lock().unwrap_or_else(PoisonError::into_inner) = Some(presented);
        refused.map_or_else(|| Ok(ServerCertVerified::assertion()), Err)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn is_unknown_issuer(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use hub_core::endpoint::ServerAddress;
    use hub_core::trust::TrustBundle;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    fn server(current: &str, host: &str, port: u16) -> PublishedServer {
        let current = TrustBundle::from_published(current.as_bytes()).unwrap();
        let address = ServerAddress { host: host.to_owned(), port };
        PublishedServer {
            hosts: vec![address.host.clone()],
            address,
            current,
            replaced: BTreeSet::new(),
        }
    }

    /// What a certificate shows that a server presents with this one's issuers.
    fn presented(leaf: &str, server: &PublishedServer) -> Presented {
        let observer = Observer::new(server);
        let leaf = TrustBundle::from_published(leaf.as_bytes()).unwrap();
        let der = CertificateDer::from(leaf.anchors().next().unwrap().der.to_vec());
        let name = server_name(&server.address.host).unwrap();
        let result = observer.verify_server_cert(&der, &[], &name, &[], UnixTime::now());
        let presented = observer.presented().unwrap();
        assert_eq!(result.is_err(), presented.refused.is_some(), "{result:?}");
        presented
    }

    const ROOT: &str = include_str!("../../hub-core/tests/rules/certificates/rsa-root.crt");
    const LEAF: &str = include_str!("../../hub-core/tests/rules/certificates/rsa-leaf.crt");
    const OTHER_ROOT: &str = include_str!("../../hub-core/tests/rules/certificates/ecdsa-root.crt");
    const EXPIRED_ROOT: &str =
        include_str!("../../hub-core/tests/rules/certificates/expired-root.crt");
    const EXPIRED_LEAF: &str =
        include_str!("../../hub-core/tests/rules/certificates/leaf-of-expired.crt");
    const NAMESAKE: &str =
        include_str!("../../hub-core/tests/rules/certificates/namesake-root.crt");
    const P521_ROOT: &str = include_str!("../../hub-core/tests/rules/certificates/p521-root.crt");
    const P521_LEAF: &str =
        include_str!("../../hub-core/tests/rules/certificates/leaf-of-p521.crt");

    #[test]
    fn a_certificate_shows_which_anchors_verify_it_and_which_hosts_it_names() {
        let mut known = server(OTHER_ROOT, "proxy.example", 443);
        known.hosts.push("another.example".to_owned());
        known.replaced =
            TrustBundle::from_pem(ROOT.as_bytes()).unwrap().anchors().cloned().collect();
        let seen = presented(LEAF, &known);
        assert_eq!((seen.verified_by, seen.refused), (known.replaced, None));
        assert_eq!(seen.names, ["proxy.example"]);
        // Unlike webpki, Go accepts the certificate of a CA that is itself trusted.
        let seen = presented(NAMESAKE, &server(NAMESAKE, "proxy.example", 443));
        assert_eq!((seen.verified_by.len(), seen.refused), (1, None));
    }

    #[test]
    fn a_certificate_that_no_anchor_verifies_shows_why() {
        for (leaf, root, why) in [
            (LEAF, OTHER_ROOT, "UnknownIssuer"),
            (EXPIRED_LEAF, EXPIRED_ROOT, "expired"),
            (P521_LEAF, P521_ROOT, LIMIT),
            (ROOT, OTHER_ROOT, AUTHORITY),
        ] {
            let seen = presented(leaf, &server(root, "proxy.example", 443));
            assert!(seen.verified_by.is_empty(), "{why}");
            assert!(
                seen.refused.as_ref().is_some_and(|refused| refused.contains(why)),
                "{why}: {seen:?}"
            );
        }
    }

    #[test]
    fn an_error_names_its_causes_once_and_the_limit_that_one_of_them_shows() {
        #[derive(Debug)]
        struct Failed(&'static str, io::Error);
        impl fmt::Display for Failed {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Failed {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.1)
            }
        }
        let alert = rustls::Error::AlertReceived(AlertDescription::HandshakeFailure);
        let cause = alert.to_string();
        let error = Failed("cannot connect", io::Error::other(alert));
        assert_eq!(explained(&error), format!("cannot connect: {cause}; {LIMIT}"));
        let error = Failed("cannot connect: no route", io::Error::other("no route"));
        assert_eq!(explained(&error), "cannot connect: no route");
    }

    #[tokio::test]
    async fn a_server_without_a_common_algorithm_and_one_that_is_not_there_are_distinguished() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The fatal alert handshake_failure.
            stream.write_all(&[0x15, 3, 3, 0, 2, 2, 40]).await.unwrap();
            // Unread bytes would reset the connection.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        };
        let (sighting, ()) = tokio::join!(check(server(ROOT, "127.0.0.1", port)), serve);
        assert!(
            matches!(&sighting, Sighting::Unreachable(why) if why.contains(LIMIT)),
            "{sighting:?}"
        );
        drop(listener);
        let sighting = check(server(ROOT, "127.0.0.1", port)).await;
        assert!(
            matches!(&sighting, Sighting::Unreachable(why) if !why.contains(LIMIT)),
            "{sighting:?}"
        );
    }
}
