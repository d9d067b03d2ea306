//! An address that leads to where a Pod serves now: a Pod that replaces another has a new address.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::HubError;

/// One address. It ends with its runtime.
pub(super) struct Relay {
    address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
}

impl Relay {
    /// Listens, and closes all connections until it leads to somewhere.
    pub(super) async fn listen() -> Result<Self, HubError> {
        let failed = |source| HubError::io("listen for connections to a Pod", source);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let target = Arc::new(Mutex::new(None));
        let current = Arc::clone(&target);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = *current.lock().unwrap_or_else(PoisonError::into_inner);
                // An error means that one side is gone, which the other notices.
                tokio::spawn(async move { pass_on(client, target?).await.ok() });
            }
        });
        Ok(Self { address, target })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where new connections lead.
    pub(super) fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }
}

async fn pass_on(mut client: TcpStream, target: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    for side in [&client, &server] {
        side.set_nodelay(true)?;
    }
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
