//! An address in front of a server, whose connections can be led elsewhere, ended and frozen.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::HubError;
use crate::ports::serve;

/// What happens to connections that are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    End,
    Freeze,
}

/// One address. Dropping it ends its connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
    /// What happens to the connections that are open at each change.
    open: watch::Sender<Open>,
    _accepting: JoinSet<()>,
}

impl Relay {
    /// Listens, and closes all connections until it leads to somewhere.
    pub async fn listen() -> Result<Self, HubError> {
        let failed = |source| HubError::io("listen for a relay", source);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (target, open) = (Arc::<Mutex<_>>::default(), watch::Sender::new(Open::End));
        let (current, changes) = (Arc::clone(&target), open.clone());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let pass_on = |(client, _)| {
                let target = *current.lock().unwrap_or_else(PoisonError::into_inner);
                let mut changes = changes.subscribe();
                async move {
                    let mut passing = Box::pin(pass_on(client, target));
                    tokio::select! {
                        // An error means that one side is gone, which the other notices.
                        _ = &mut passing => {}
                        Ok(()) = changes.changed() => {
                            let open = *changes.borrow();
                            if open == Open::Freeze {
                                std::future::pending::<()>().await;
                            }
                        }
                    }
                }
            };
            serve(|| listener.accept(), pass_on).await;
        });
        Ok(Self { address, target, open, _accepting: accepting })
    }

    /// Listens, and leads to a server.
    pub async fn before(target: SocketAddr) -> Result<Self, HubError> {
        let relay = Self::listen().await?;
        relay.lead_to(target);
        Ok(relay)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where new connections lead.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }

    /// Freezes what is open, as connections to a stopped process are: the kernel acknowledges what they carry, and no
    /// process reads it. New connections work.
    pub fn freeze(&self) {
        self.open.send_replace(Open::Freeze);
    }

    /// Ends what is open. New connections work.
    pub fn end(&self) {
        self.open.send_replace(Open::End);
    }
}

async fn pass_on(mut client: TcpStream, target: Option<SocketAddr>) -> std::io::Result<()> {
    let Some(target) = target else { return Ok(()) };
    let mut server = TcpStream::connect(target).await?;
    for side in [&client, &server] {
        side.set_nodelay(true)?;
    }
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
