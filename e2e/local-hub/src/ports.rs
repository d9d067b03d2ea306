//! A port for an API server, which cannot choose one for itself.

use std::net::{Ipv4Addr, TcpListener};

use crate::{HubError, random};

/// Where ports are taken from: below the range that systems give to outgoing connections (32768 and up on
/// Linux, 49152 and up elsewhere), and not by binding port 0, which answers from that very range.
///
/// A test that stops its API server expects to find the port free afterwards. In that range another
/// connection may have taken it; or, worse, a client that keeps trying to reconnect is given the port itself
/// and gets through, to nobody but itself (TCP simultaneous open).
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that nothing listens on now. Another process may be quicker: be ready to ask again.
pub(crate) fn pick() -> Result<u16, HubError> {
    loop {
        let port = FIRST + u16::from_ne_bytes(random::bytes()?) % COUNT;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(HubError::io(format!("listen on port {port}"), error)),
        }
    }
}
