//! A stand-in for Services: names that resolve to a program's address. This machine does not resolve them, so clients
//! use this as an HTTP proxy, which passes TLS connections through.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::HubError;

/// One Service. It ends with its runtime.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
}

impl Service {
    /// Connects clients that request this `NAME:PORT` to an address, and rejects all others.
    pub async fn start(name: String, leads_to: SocketAddr) -> Result<Self, HubError> {
        let failed = |source| HubError::io(format!("listen for clients of {name}"), source);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let name = name.clone();
                // An error means that one side is gone, which the other notices.
                tokio::spawn(async move { connect(client, &name, leads_to).await.ok() });
            }
        });
        Ok(Self { address })
    }

    /// The URL of the HTTP proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The environment variables that make a program use it.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 2] {
        // Other proxy settings in this machine's environment must not take precedence.
        [("HTTPS_PROXY", self.url()), ("NO_PROXY", "127.0.0.1".to_owned())]
    }
}

async fn connect(mut client: TcpStream, name: &str, leads_to: SocketAddr) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    if !head.starts_with(format!("CONNECT {name} HTTP/1.1\r\n").as_bytes()) {
        return client.write_all(b"HTTP/1.1 502 no such Service\r\n\r\n").await;
    }
    let mut server = TcpStream::connect(leads_to).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
