//! A TCP relay in front of the API server, which counts bytes and connections and changes nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// As much as a TLS record.
const BUFFER: usize = 16 << 10;

/// What has passed a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes to the API server, as they are on the wire, encrypted.
    pub sent: u64,
    /// Bytes from the API server.
    pub received: u64,
}

impl Traffic {
    /// What has passed since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self { sent: self.sent - earlier.sent, received: self.received - earlier.received }
    }
}

#[derive(Debug, Default)]
struct Passed {
    sent: AtomicU64,
    received: AtomicU64,
    open: AtomicUsize,
    most_open: AtomicUsize,
}

/// A running relay. Dropping it closes its port; open connections end with their peers.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    passed: Arc<Passed>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Listens on a free port, and connects every connection to `to`.
    pub async fn start(to: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let passed = Arc::new(Passed::default());
        let accepting = tokio::spawn(accept(listener, to, Arc::clone(&passed)));
        Ok(Self { address, passed, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has passed so far.
    pub fn traffic(&self) -> Traffic {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { sent: read(&self.passed.sent), received: read(&self.passed.received) }
    }

    /// The largest number of connections at the same time since the last call.
    pub fn take_most_connections(&self) -> usize {
        let open = self.passed.open.load(Ordering::Relaxed);
        self.passed.most_open.swap(open, Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, passed: Arc<Passed>) {
    while let Ok((client, _)) = listener.accept().await {
        let passed = Arc::clone(&passed);
        tokio::spawn(async move {
            let open = passed.open.fetch_add(1, Ordering::Relaxed) + 1;
            passed.most_open.fetch_max(open, Ordering::Relaxed);
            // An error is a broken connection, which both peers notice.
            let _ = relay(client, to, &passed).await;
            passed.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn relay(client: TcpStream, to: SocketAddr, passed: &Passed) -> std::io::Result<()> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        copy(from_client, to_server, &passed.sent),
        copy(from_server, to_client, &passed.received),
    )?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    counter: &AtomicU64,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        counter.fetch_add(length as u64, Ordering::Relaxed);
        to.write_all(&buffer[..length]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_arrive_and_are_counted_in_each_direction() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::start(server.local_addr().unwrap()).await.unwrap();
        let mut client = TcpStream::connect(relay.address()).await.unwrap();
        client.write_all(b"request").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();
        let mut received = String::new();
        accepted.read_to_string(&mut received).await.unwrap();
        accepted.write_all(b"a response").await.unwrap();
        drop(accepted);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!((received.as_str(), answer.as_str()), ("request", "a response"));
        assert_eq!(relay.traffic(), Traffic { sent: 7, received: 10 });
        assert_eq!(relay.take_most_connections(), 1);
    }
}
