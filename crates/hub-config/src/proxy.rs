//! Connections to the hub through its proxy.

use std::io;

use http::Uri;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use kube::Config;
use kube::client::ConfigExt as _;
use tokio::net::TcpStream;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

/// Connects to the hub, or through its proxy. The next layer adds TLS.
pub type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, io::Error>;

/// The connector for a configuration.
pub fn connector(config: &Config, tcp: HttpConnector) -> kube::Result<Connector> {
    let plain = tcp.clone().map_response(MaybeHttpsStream::Http);
    let Some(url) = &config.proxy_url else {
        return Ok(BoxCloneSyncService::new(plain.map_err(io::Error::other)));
    };
    // The error shows the URL, without its credentials.
    let unsupported = || {
        let (scheme, text) = (url.scheme_str().unwrap_or("http"), url.to_string());
        let address = text.rsplit_once('@').map_or("", |(_, address)| address);
        let shown = if address.is_empty() { text } else { format!("{scheme}://{address}") };
        let proxy_url = Box::new(shown.parse().unwrap_or_default());
        kube::Error::ProxyProtocolUnsupported { proxy_url }
    };
    // The matcher separates the credentials from the address, and adds the scheme.
    let proxy = Matcher::builder().https(url.to_string()).build();
    let proxy = proxy.intercept(&Uri::from_static("https://hub")).ok_or_else(unsupported)?;
    let to = proxy.uri().clone();
    let authorization = proxy.basic_auth().cloned();
    Ok(match to.scheme_str() {
        Some("http") => {
            let tunnel = Tunnel::new(to, plain);
            let tunnel = authorization.into_iter().fold(tunnel, Tunnel::with_auth);
            BoxCloneSyncService::new(tunnel.map_err(io::Error::other))
        }
        Some("https") => {
            let tunnel = Tunnel::new(to, config.rustls_https_connector_with_connector(tcp)?);
            let tunnel = authorization.into_iter().fold(tunnel, Tunnel::with_auth);
            BoxCloneSyncService::new(tunnel.map_err(io::Error::other))
        }
        Some("socks5" | "socks5h") => {
            let mut socks = SocksV5::new(to, plain);
            if let Some((user, password)) = proxy.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            BoxCloneSyncService::new(socks.map_err(io::Error::other))
        }
        _ => return Err(unsupported()),
    })
}
