//! The connection to the proxy server that new dials use.

use std::io;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use rustls::ClientConfig;

use crate::connection::Connection;
use crate::credentials::Credentials;
use crate::error::DialError;
use crate::tunnel::{Budget, Tunnel};

/// Dials through a proxy server. Clones share the connection.
#[derive(Clone)]
pub struct Dialer(Arc<Inner>);

struct Inner {
    host: String,
    port: u16,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    credentials: Option<Credentials>,
    /// The connection for new dials, which all wait for it at once while it is opened.
    current: Option<Opening>,
}

type Opening = Shared<BoxFuture<'static, Result<Arc<Connection>, Arc<io::Error>>>>;

impl Dialer {
    /// A dialer for the proxy server at this host and port. It connects when it dials.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self(Arc::new(Inner { host: host.into(), port, state: Mutex::default() }))
    }

    /// Sets the credentials for later connections. Existing tunnels keep their connection.
    pub fn set_credentials(&self, credentials: Credentials) {
        *self.0.state.lock() = State { credentials: Some(credentials), current: None };
    }

    /// Whether the proxy server accepts a connection with the credentials, and responds on it.
    pub async fn check(&self) -> Result<(), DialError> {
        self.connection().await.map(drop)
    }

    /// Connects to an address, from the agent that is registered for its host.
    pub async fn dial(&self, address: &str, budget: &Budget) -> Result<Tunnel, DialError> {
        let mut is_second = false;
        loop {
            let connection = self.connection().await?;
            match connection.dial(address, budget).await {
                // The proxy server had closed an idle connection, or does not respond on it any more: dial once more.
                Err(DialError::Ended(_)) if !is_second && connection.is_over() => is_second = true,
                result => return result,
            }
        }
    }

    async fn connection(&self) -> Result<Arc<Connection>, DialError> {
        let opening = {
            let mut state = self.0.state.lock();
            let Credentials(config) = state.credentials.as_ref().ok_or(DialError::NoCredentials)?;
            let config = Arc::clone(config);
            let is_over = |opening: &Opening| match opening.peek() {
                None => false,
                Some(Ok(connection)) => connection.is_over(),
                Some(Err(_)) => true,
            };
            match &state.current {
                Some(opening) if !is_over(opening) => opening.clone(),
                _ => state.current.insert(self.open(config)).clone(),
            }
        };
        opening.await.map_err(DialError::Unreachable)
    }

    /// Opens a connection in a task, which continues if no request waits for it any more.
    fn open(&self, config: Arc<ClientConfig>) -> Opening {
        let opening = tokio::spawn(Connection::open(self.0.host.clone(), self.0.port, config));
        let opened = opening.map(|opened| match opened {
            Ok(opened) => opened.map(Arc::new).map_err(Arc::new),
            Err(error) => Err(Arc::new(io::Error::other(error))),
        });
        opened.boxed().shared()
    }
}
