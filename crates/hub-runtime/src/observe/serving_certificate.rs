//! The serving certificate: from files that a Secret volume updates, self-signed, or issued by the process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::CertifiedKey;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The files are not a certificate and its key. The error does not quote them, since one is a key.
    #[error("tls.crt and tls.key in {} are not a certificate and its private key", .0.display())]
    Unusable(PathBuf),
    /// A certificate cannot be issued.
    #[error("cannot issue a certificate: {0}")]
    Issue(String),
}

impl CertificateError {
    /// The error of a library, none of which quotes a key.
    pub fn issue(error: &dyn std::error::Error) -> Self {
        Self::Issue(error.to_string())
    }
}

/// The current certificate and its source.
pub struct ServingCertificate {
    directory: Option<PathBuf>,
    protocols: &'static [&'static [u8]],
    current: Mutex<Current>,
}

struct Current {
    /// The contents of the files.
    files: (Vec<u8>, Vec<u8>),
    config: Arc<ServerConfig>,
}

impl ServingCertificate {
    /// Reads `tls.crt` and `tls.key` in a directory, or creates a certificate, for servers of these protocols (ALPN).
    pub fn new(
        directory: Option<PathBuf>,
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, CertificateError> {
        let current = match &directory {
            Some(directory) => {
                let files = read(directory)?;
                let config = parse(&files, protocols);
                let config = config.ok_or_else(|| CertificateError::Unusable(directory.clone()))?;
                Current { files, config }
            }
            None => Current { files: Default::default(), config: self_signed(protocols)? },
        };
        Ok(Self { directory, protocols, current: Mutex::new(current) })
    }

    /// A certificate that the process has issued, and [replaces](Self::replace).
    pub fn issued(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, CertificateError> {
        let config = config(chain, key, protocols)?;
        let current = Current { files: Default::default(), config };
        Ok(Self { directory: None, protocols, current: Mutex::new(current) })
    }

    /// Serves with another certificate from the next connection on.
    pub fn replace(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), CertificateError> {
        self.current.lock().config = config(chain, key, self.protocols)?;
        Ok(())
    }

    /// The TLS configuration for the next connection. Reads the files each time: this costs less than a handshake, and
    /// a file watch would depend on how volumes replace files. If the files are unusable or only partly replaced, the
    /// current certificate stays in use.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock();
        if let Some(directory) = &self.directory
            && let Ok(files) = read(directory)
            && files != current.files
        {
            if let Some(config) = parse(&files, self.protocols) {
                tracing::info!("reloaded the serving certificate");
                current.config = config;
            } else {
                let error = CertificateError::Unusable(directory.clone());
                tracing::warn!("{error}; the current certificate stays in use");
            }
            current.files = files;
        }
        Arc::clone(&current.config)
    }
}

fn read(directory: &Path) -> Result<(Vec<u8>, Vec<u8>), CertificateError> {
    let read = |name| {
        let path = directory.join(name);
        std::fs::read(&path).map_err(|source| CertificateError::Read { path, source })
    };
    Ok((read("tls.crt")?, read("tls.key")?))
}

fn parse((chain, key): &(Vec<u8>, Vec<u8>), protocols: &[&[u8]]) -> Option<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().ok()?;
    config(chain, PrivateKeyDer::from_pem_slice(key).ok()?, protocols).ok()
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, CertificateError> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|error| CertificateError::issue(&error))?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

fn self_signed(protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, CertificateError> {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok());
    let names = vec![host.unwrap_or_else(|| "localhost".to_owned())];
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names)
        .map_err(|error| CertificateError::issue(&error))?;
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    config(vec![cert.der().clone()], key.into(), protocols)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];

    fn write(directory: &Path, name: &str) {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        std::fs::write(directory.join("tls.crt"), cert.pem()).unwrap();
        std::fs::write(directory.join("tls.key"), signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_certificate_that_changes_is_served_and_an_unusable_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "a");
        let certificates =
            ServingCertificate::new(Some(directory.path().to_owned()), PROTOCOLS).unwrap();
        let first = certificates.config();
        assert!(Arc::ptr_eq(&first, &certificates.config()), "it has not changed");
        write(directory.path(), "b");
        let second = certificates.config();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::write(directory.path().join("tls.key"), "not a key").unwrap();
        assert!(Arc::ptr_eq(&second, &certificates.config()));
        std::fs::remove_file(directory.path().join("tls.crt")).unwrap();
        assert!(Arc::ptr_eq(&second, &certificates.config()));
        write(directory.path(), "c");
        assert!(!Arc::ptr_eq(&second, &certificates.config()));
    }

    #[test]
    fn it_does_not_begin_without_a_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let begin = || {
            ServingCertificate::new(Some(directory.path().to_owned()), PROTOCOLS)
                .map(drop)
                .unwrap_err()
                .to_string()
        };
        assert!(begin().contains("tls.crt"), "{}", begin());
        for name in ["tls.crt", "tls.key"] {
            std::fs::write(directory.path().join(name), "sEcReT").unwrap();
        }
        assert!(
            begin().contains("not a certificate") && !begin().contains("sEcReT"),
            "{}",
            begin()
        );
        assert!(ServingCertificate::new(None, PROTOCOLS).is_ok(), "without files it makes one");
    }
}
