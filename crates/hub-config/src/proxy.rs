//! The proxy on the way to the hub, chosen as Go's `net/http` chooses it.

use std::env;
use std::io;
use std::net::IpAddr;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
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
    let unsupported = || kube::Error::ProxyProtocolUnsupported { proxy_url: Box::new(url.clone()) };
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

/// The proxy that the environment sets for this hub.
pub fn of_environment(hub: &Uri) -> Option<String> {
    if hub.scheme() != Some(&Scheme::HTTPS) {
        return None;
    }
    let proxy = variable(["HTTPS_PROXY", "https_proxy"])?;
    let no_proxy = variable(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let host = hub.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
    let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    (!is_loopback && !is_excepted(&no_proxy, &host, hub.port_u16().unwrap_or(443))).then_some(proxy)
}

fn variable(names: [&str; 2]) -> Option<String> {
    names.into_iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
}

/// Whether `NO_PROXY` names the host. Libraries follow curl, which knows no ports, and for which `.example` includes
/// `example`.
fn is_excepted(no_proxy: &str, host: &str, port: u16) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
        if let (Some(address), Ok(network)) = (address, entry.parse::<IpNet>()) {
            return network.contains(&address);
        }
        let (name, only) = match entry.rsplit_once(':') {
            Some((name, only)) if entry.parse::<IpAddr>().is_err() => (name, only.parse().ok()),
            _ => (&*entry, None),
        };
        let name = name.trim_matches(['[', ']']);
        let is_named = match (address, name.strip_prefix("*.").or_else(|| name.strip_prefix('.'))) {
            _ if name == "*" => true,
            (Some(address), _) => name.parse() == Ok(address),
            (None, Some(domain)) => is_below(host, domain),
            (None, None) => host == name || is_below(host, name),
        };
        is_named && only.is_none_or(|only: u16| only == port)
    })
}

fn is_below(host: &str, domain: &str) -> bool {
    !domain.is_empty() && host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::is_excepted;

    #[test]
    fn no_proxy_is_read_as_go_reads_it() {
        for (no_proxy, host, expected) in [
            ("", "hub.example", false),
            (",", "hub.example", false),
            ("*", "hub.example", true),
            ("hub.example", "hub.example", true),
            ("example", "hub.example", true),
            (".example", "hub.example", true),
            ("*.example", "hub.example", true),
            (".hub.example", "hub.example", false),
            ("ample", "hub.example", false),
            ("a, HUB.example ,b", "hub.example", true),
            ("hub.example:6443", "hub.example", true),
            ("hub.example:443", "hub.example", false),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.1.2.3:6443", "10.1.2.3", true),
            ("fd00::/8,::2", "fd00::1", true),
            ("[fd00::1]:6443", "fd00::1", true),
            ("fd00::1", "fd00::1", true),
            (".svc", "kubernetes.default.svc", true),
        ] {
            assert_eq!(is_excepted(no_proxy, host, 6443), expected, "{no_proxy} {host}");
        }
    }
}
