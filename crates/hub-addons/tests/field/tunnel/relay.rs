//! An address that leads to where a Pod serves now: a Pod that replaces another has a new address.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// One address. It ends with its runtime.
pub struct Relay {
    address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
}

impl Relay {
    /// Listens, and closes all connections until it leads to somewhere.
    pub async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(None));
        let current = Arc::clone(&target);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = *current.lock().unwrap();
                // An error means that one side is gone, which the other notices.
                tokio::spawn(async move { pass_on(client, target?).await.ok() });
            }
        });
        Self { address, target }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where new connections lead.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap() = Some(target);
    }
}

async fn pass_on(mut client: TcpStream, target: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
