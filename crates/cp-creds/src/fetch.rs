//! The one request: name, connection, handshake, question, answer.
//!
//! Nothing here has a timeout of its own but the connection attempts, which share what is left so that one dead address
//! of several does not take it all; the whole is under the deadline of [`crate::deadline`].

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use rustls::{CertificateError, ClientConnection, StreamOwned};

use crate::api_server::ApiServer;
use crate::deadline::{Progress, Stage};
use crate::http::{self, HttpError};
use crate::tls::{self, TlsError};

/// Why the hub did not answer.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Our side of TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The host has no address.
    #[error("cannot resolve the host")]
    Resolve(#[source] io::Error),
    /// The host has no address, and the resolver thinks that is fine.
    #[error("the host has no address")]
    NoAddress,
    /// Nobody answers at the address, the last of the host's.
    #[error("cannot connect to {address}")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The two sides do not agree on TLS, or do not trust each other.
    #[error("TLS handshake failed")]
    Handshake(#[source] io::Error),
    /// The server's certificate is an authority's own. client-go takes one that is itself what is trusted; we do not,
    /// because webpki refuses it unseen, and its validity would be ours to read.
    #[error(
        "TLS handshake failed: the server shows a certificate authority's own certificate (CA:TRUE), which is refused \
         even where that authority is trusted: issue another for the server, or make this one CA:FALSE"
    )]
    AuthorityAsServer,
    /// The request did not get out.
    #[error("cannot send the request")]
    Send(#[source] io::Error),
    /// The answer is not one.
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// Gets what is at `path` of the hub.
pub fn get(
    server: &ApiServer,
    path: &str,
    deadline: Instant,
    progress: &Progress,
) -> Result<Vec<u8>, FetchError> {
    let tls = tls::connection(server)?;
    progress.enter(Stage::Resolving);
    let addresses = (server.url.host(), server.url.port()).to_socket_addrs().map_err(FetchError::Resolve)?;
    progress.enter(Stage::Connecting);
    let tcp = connect(&addresses.collect::<Vec<_>>(), deadline)?;
    progress.enter(Stage::Handshaking);
    let mut stream = handshake(tls, tcp).map_err(handshake_failed)?;
    progress.enter(Stage::Waiting);
    let request = http::request(&server.url, path, server.token.as_ref());
    stream.write_all(&request).and_then(|()| stream.flush()).map_err(FetchError::Send)?;
    Ok(http::read_answer(stream)?)
}

fn connect(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, FetchError> {
    let mut last = FetchError::NoAddress;
    for (address, still_to_try) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(still_to_try).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(stream) => {
                // The request is one packet and should not wait for a second.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(source) => last = FetchError::Connect { address: *address, source },
        }
    }
    Err(last)
}

fn handshake(
    mut tls: ClientConnection,
    mut tcp: TcpStream,
) -> Result<StreamOwned<ClientConnection, TcpStream>, io::Error> {
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp)?;
    }
    Ok(StreamOwned::new(tls, tcp))
}

fn handshake_failed(error: io::Error) -> FetchError {
    // webpki's errors come as text, and it only chooses between two ways to say no.
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(why)))
            if why.to_string() == "CaUsedAsEndEntity" =>
        {
            FetchError::AuthorityAsServer
        }
        _ => FetchError::Handshake(error),
    }
}
