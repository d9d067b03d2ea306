//! The network of a node: a network namespace of its own, without a way out.
//!
//! Sockets lead in and out of it. A relay listens inside and connects outside, where the hub's API server and other
//! services of the test are; an HTTP proxy listens on the hub's socket and connects inside, for the API server's
//! connections to kubelets, Pods and Services. So no interface, route or rule of the machine is changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::ports::serve;

/// Timeout for connections to what is inside.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest request for a connection, in bytes.
const LONGEST_REQUEST: usize = 8192;

/// An address and a port inside, and what they lead to outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relay {
    pub(crate) inside: (Ipv4Addr, u16),
    pub(crate) outside: SocketAddr,
}

/// A network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Network(PathBuf);

/// The networks of nodes, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networks(pub(crate) BTreeMap<u8, Network>);

impl Networks {
    /// Connects from inside the node that has an address, or whose Pod has it; to a Service from any node.
    pub(crate) async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let network = match number_of(to.ip()) {
            Some(number) => self.0.get(&number),
            None => self.0.values().next(),
        };
        network.ok_or_else(|| io::Error::other(format!("no node leads to {to}")))?.connect(to).await
    }
}

impl Network {
    /// The network namespace of a process.
    pub(crate) fn of(pid: u32) -> Self {
        Self(PathBuf::from(format!("/proc/{pid}/ns/net")))
    }

    pub(crate) async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let stream =
            self.inside(move || std::net::TcpStream::connect_timeout(&to, CONNECT)).await?;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }

    /// Listens inside, without blocking, for a runtime of the caller's choice.
    pub(crate) async fn listen(&self, on: (Ipv4Addr, u16)) -> io::Result<std::net::TcpListener> {
        let listener = self.inside(move || std::net::TcpListener::bind(on)).await?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Runs a function in the namespace. A socket belongs to the namespace in which it was created, whoever uses it
    /// later, so a thread enters the namespace and ends there.
    async fn inside<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let path = self.0.clone();
        let (sender, result) = tokio::sync::oneshot::channel();
        std::thread::Builder::new().name("node-network".to_owned()).spawn(move || {
            let done = File::open(&path)
                .and_then(|namespace| {
                    let network = Some(LinkNameSpaceType::Network);
                    Ok(move_into_link_name_space(namespace.as_fd(), network)?)
                })
                .and_then(|()| act());
            // The caller may have stopped waiting.
            let _ = sender.send(done);
        })?;
        result.await.map_err(io::Error::other)?
    }
}

/// Forwards each connection to what `connect` returns.
pub(crate) async fn pass_on<F>(listener: TcpListener, connect: impl Fn() -> F)
where
    F: Future<Output = io::Result<TcpStream>> + Send + 'static,
{
    let pass_on = |(mut near, _): (TcpStream, SocketAddr)| {
        let connecting = connect();
        async move {
            // An error on one side closes the other.
            if let Ok(mut far) = connecting.await {
                let _ = far.set_nodelay(true);
                let _ = near.set_nodelay(true);
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            }
        }
    };
    serve(|| listener.accept(), pass_on).await;
}

/// Serves HTTP's CONNECT on a socket, as the API server's egress selector asks for it, with connections from inside.
pub(crate) async fn serve_egress(listener: UnixListener, networks: Networks) {
    let answer = |(near, _)| {
        let networks = networks.clone();
        async move {
            // An error closes the connection, which is what the API server reports.
            let _ = tunnel(near, &networks).await;
        }
    };
    serve(|| listener.accept(), answer).await;
}

async fn tunnel(mut near: UnixStream, networks: &Networks) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if request.len() == LONGEST_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        request.push(near.read_u8().await?);
    }
    let connected = match destination(&request) {
        Some(to) => networks.connect(to).await,
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    match connected {
        Ok(mut far) => {
            near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            tokio::io::copy_bidirectional(&mut near, &mut far).await.map(drop)
        }
        Err(error) => near.write_all(format!("HTTP/1.1 502 {error}\r\n\r\n").as_bytes()).await,
    }
}

/// Where a request for a connection leads: the API server has resolved names.
fn destination(request: &[u8]) -> Option<SocketAddr> {
    let line = std::str::from_utf8(request).ok()?.lines().next()?;
    line.strip_prefix("CONNECT ")?.split(' ').next()?.parse().ok()
}

/// The number of the node that has this address, or the Pod that has it.
fn number_of(address: IpAddr) -> Option<u8> {
    match address {
        IpAddr::V4(address) => match address.octets() {
            [192, 0, 2, number] => number.checked_sub(100),
            [10, 244, number, _] => Some(number),
            _ => None,
        },
        IpAddr::V6(_) => None,
    }
}
