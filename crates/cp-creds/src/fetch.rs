//! The request: name resolution, connection, TLS handshake, request, response.
//!
//! Only connection attempts have a timeout of their own: they share the remaining time, so that one dead address does
//! not use all of it. [`crate::deadline`] limits the whole.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow};
use rustls::{AlertDescription, CertificateError, StreamOwned};

use crate::api_server::ApiServer;
use crate::deadline::Progress;
use crate::{http, tls};

/// Gets the resource at `path` of the hub.
pub fn get(
    server: &ApiServer,
    path: &str,
    deadline: Instant,
    progress: &Progress,
) -> Result<Vec<u8>> {
    let mut tls = tls::connection(server)?;
    let (host, port) = (&*server.url.host, server.url.port);
    let to = server.proxy.as_ref().map_or((host, port), |proxy| (&*proxy.host, proxy.port));
    let [resolving, connecting] = if server.proxy.is_some() {
        [
            "resolving the name of the proxy (proxy-url or HTTPS_PROXY)",
            "connecting to the proxy (proxy-url or HTTPS_PROXY)",
        ]
    } else {
        ["resolving the API server's name", "connecting to the API server"]
    };
    progress.enter(resolving);
    let addresses = to.to_socket_addrs().with_context(|| format!("cannot resolve {}", to.0))?;
    progress.enter(connecting);
    let mut tcp = connect(&addresses.collect::<Vec<_>>(), deadline)?;
    if let Some(proxy) = &server.proxy {
        progress.enter("waiting for the proxy's response");
        proxy.connect(&mut tcp, host, port)?;
    }
    progress.enter("in the TLS handshake with the API server");
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp).map_err(handshake_failed)?;
    }
    progress.enter("waiting for the API server's response");
    let mut stream = StreamOwned::new(tls, tcp);
    let request = http::request(&server.url, path, server.token.as_ref());
    stream.write_all(&request).and_then(|()| stream.flush()).context("cannot send the request")?;
    http::read_answer(stream)
}

fn connect(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream> {
    let mut last = anyhow!("the host has no address");
    for (address, still_to_try) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(still_to_try).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(stream) => {
                // The request is one packet and must not wait for more data.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = Error::new(error).context(format!("cannot connect to {address}")),
        }
    }
    Err(last)
}

fn handshake_failed(error: io::Error) -> Error {
    // webpki's errors are converted to text; the error only selects between two messages.
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        // The server's certificate is that of a certificate authority. client-go accepts one that is itself trusted;
        // webpki rejects it before anything else is verified, and cp-creds would have to check its validity by itself.
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(why)))
            if why.to_string() == "CaUsedAsEndEntity" =>
        {
            anyhow!(
                "TLS handshake failed: the server presents the certificate of a certificate authority (CA:TRUE), which \
                 is rejected even if that authority is trusted: issue a server certificate with CA:FALSE"
            )
        }
        // The TLS library (ring) has no such algorithm, although curl and Go have.
        Some(
            rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)
            | rustls::Error::InvalidCertificate(
                CertificateError::UnsupportedSignatureAlgorithmContext { .. }
                | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
            ),
        ) => Error::new(error).context(
            "TLS handshake failed: certificates with a key on the curve P-521, and ECDSA signatures with SHA-512, are \
             not supported",
        ),
        _ => Error::new(error).context("TLS handshake failed"),
    }
}
