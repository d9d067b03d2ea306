//! The API server of a cluster and how to verify it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use http::Uri;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::HANDSHAKE;
use crate::{HubError, LocalHub, access};

/// A managed cluster's API server as the target of a [`UserServer`](super::UserServer).
#[derive(Clone)]
pub struct Upstream {
    url: Uri,
    /// The host to connect to, and the `Host` header.
    host: String,
    port: u16,
    /// The name to verify in the certificate.
    name: ServerName<'static>,
    connector: TlsConnector,
}

/// Why an API server was not reached. It contains nothing of the request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    #[error("{0}")]
    Connection(io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("it did not respond in time")]
    TimedOut,
}

impl LocalHub {
    /// This hub's API server as a target of a [`UserServer`](crate::UserServer), for a hub that is a managed cluster.
    pub fn upstream(&self) -> Result<Upstream, HubError> {
        Upstream::new(&self.url(), self.ca_pem())
    }
}

impl Upstream {
    /// The server of an `https` URL, verified only against these authorities.
    pub fn new(url: &str, ca_pem: &str) -> Result<Self, HubError> {
        let wrong =
            |reason: String| HubError::Failed(format!("cannot forward to {url:?}: {reason}"));
        let roots = CertificateDer::pem_slice_iter(ca_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(format!("its authority cannot be read: {error}")))?;
        Self::verified_by(url, roots, None)
    }

    /// The server of a kubeconfig's current context, without its credentials.
    pub async fn from_kubeconfig(path: &Path) -> Result<Self, HubError> {
        let config = access::config_from(path).await?;
        let roots =
            config.root_cert.unwrap_or_default().into_iter().map(CertificateDer::from).collect();
        Self::verified_by(&config.cluster_url.to_string(), roots, config.tls_server_name)
    }

    fn verified_by(
        url: &str,
        authorities: Vec<CertificateDer<'static>>,
        name: Option<String>,
    ) -> Result<Self, HubError> {
        let wrong = |reason: &str| HubError::Failed(format!("cannot forward to {url:?}: {reason}"));
        let uri: Uri = url.parse().map_err(|_| wrong("it is not a valid URL"))?;
        if uri.scheme_str() != Some("https") {
            return Err(wrong("its scheme is not https"));
        }
        let host = uri.host().ok_or_else(|| wrong("it has no host"))?;
        // An IPv6 address has brackets only in a URL.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name.unwrap_or_else(|| host.clone()))
            .map_err(|_| wrong("its host is not a valid name for a certificate"))?;

        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(authorities);
        if usable == 0 {
            // The system's roots are not used either.
            return Err(wrong("it has no certificate authority to verify it"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| HubError::Failed(format!("cannot forward to {url:?}: {source}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self { port: uri.port_u16().unwrap_or(443), host, name, connector, url: uri })
    }

    /// The value of the `Host` header.
    pub(super) fn authority(&self) -> &str {
        self.url.authority().map_or(&self.host, http::uri::Authority::as_str)
    }

    /// The prefix of every path: empty unless the server is behind another proxy.
    pub(super) fn prefix(&self) -> &str {
        self.url.path().trim_end_matches('/')
    }

    pub(super) async fn connect(&self) -> Result<TlsStream<TcpStream>, Unreachable> {
        let connecting = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
            let stream = stream.map_err(Unreachable::Connection)?;
            let _ = stream.set_nodelay(true);
            self.connector.connect(self.name.clone(), stream).await.map_err(Unreachable::Tls)
        };
        tokio::time::timeout(HANDSHAKE, connecting).await.unwrap_or(Err(Unreachable::TimedOut))
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("url", &self.url).finish_non_exhaustive()
    }
}
