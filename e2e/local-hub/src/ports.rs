//! Ports to listen on, and what is accepted there.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::{HubError, random};

/// The first port to try: below the range of outgoing connections (32768 and up on Linux, 49152 and up elsewhere), from
/// which the system chooses for port 0.
///
/// A test that stops its API server expects the port to be free afterwards. In that range another connection may have
/// taken it; or a client that tries to reconnect may get the port itself and connect to itself (TCP simultaneous open).
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port for an API server, which cannot choose one itself: one that is not in use now. Another process may be faster:
/// be prepared to call again.
pub(crate) fn pick() -> Result<u16, HubError> {
    let listener = listen(Ipv4Addr::LOCALHOST.into())?;
    listener
        .local_addr()
        .map(|address| address.port())
        .map_err(|source| HubError::io("pick a port", source))
}

/// Listens on some port of an address.
pub(crate) fn listen(address: IpAddr) -> Result<TcpListener, HubError> {
    loop {
        let port = FIRST + u16::from_ne_bytes(random::bytes()?) % COUNT;
        match TcpListener::bind((address, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => {
                return Err(HubError::io(format!("listen on {address}, port {port}"), error));
            }
        }
    }
}

/// Serves each connection that is accepted, until this is dropped.
pub(crate) async fn serve<S, A, F>(accept: impl Fn() -> A, serve: impl Fn(S) -> F)
where
    A: Future<Output = std::io::Result<S>>,
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = accept() => match accepted {
                Ok(connection) => drop(connections.spawn(serve(connection))),
                // This process has too many open files: some are connections that will end.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
