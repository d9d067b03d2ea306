//! The proxy on the way to the hub: HTTP `CONNECT`, or SOCKS 5.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

use crate::http;
use crate::server_url::host_and_port;

const BROKEN: &str = "the connection to the proxy broke";
const AUTHENTICATION: &str = "the proxy requires another authentication";
const NOT_SOCKS: &str = "it is not a SOCKS 5 proxy";

/// A proxy. It has no `Debug`, which would print the password.
pub struct Proxy {
    kind: Kind,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// User and password.
    credentials: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Copy)]
enum Kind {
    Http,
    Socks5,
}

impl Proxy {
    /// Parses the `proxy-url` of a kubeconfig. No error repeats it, since it may contain a password.
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (kind, default_port) = match &*scheme.to_ascii_lowercase() {
            "http" => (Kind::Http, 80),
            "socks5" | "socks5h" => (Kind::Socks5, 1080),
            _ => bail!(
                "it must begin with http:// or socks5://, the only kinds that cp-creds supports"
            ),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        let (credentials, address) = match authority.rsplit_once('@') {
            Some((credentials, address)) => {
                let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
                let decoded = |text| percent_decode_str(text).collect();
                (Some((decoded(user), decoded(password))), address)
            }
            None => (None, authority),
        };
        let (host, port) = host_and_port(address, default_port)?;
        Ok(Self { kind, host, port, credentials })
    }

    /// Parses the value of a variable, whose scheme is optional.
    pub fn of_variable(value: &str) -> Result<Self> {
        if value.contains("://") {
            Self::parse(value)
        } else {
            Self::parse(&format!("http://{value}"))
        }
    }

    /// Has the proxy connect a connection to it to this host, which only the proxy resolves.
    pub fn connect(&self, stream: &mut TcpStream, host: &str, port: u16) -> Result<()> {
        match self.kind {
            Kind::Http => self.connect_by_http(stream, host, port),
            Kind::Socks5 => self.connect_by_socks(stream, host, port),
        }
    }

    fn connect_by_http(&self, stream: &mut TcpStream, host: &str, port: u16) -> Result<()> {
        let target = authority(host, port);
        let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some((user, password)) = &self.credentials {
            let credentials = STANDARD.encode([user, &b":"[..], password].concat());
            head.extend(["Proxy-Authorization: Basic ", &credentials, "\r\n"]);
        }
        head.push_str("\r\n");
        send(stream, &[head.as_bytes()])?;
        let status = http::read_status(stream).context("the proxy's response")?;
        ensure!(status == 200, "the proxy refuses the connection: HTTP {status}");
        Ok(())
    }

    /// RFC 1928, and RFC 1929 for the credentials.
    fn connect_by_socks(&self, stream: &mut TcpStream, host: &str, port: u16) -> Result<()> {
        const VERSION: u8 = 5;
        const NONE: u8 = 0;
        const PASSWORD: u8 = 2;
        let methods = if self.credentials.is_some() { &[NONE, PASSWORD][..] } else { &[NONE] };
        send(stream, &[&[VERSION], &prefixed(methods)?])?;
        match (read(stream)?, &self.credentials) {
            ([VERSION, NONE], _) => {}
            ([VERSION, PASSWORD], Some((user, password))) => {
                send(stream, &[&[1], &prefixed(user)?, &prefixed(password)?])?;
                let [_, status] = read(stream)?;
                ensure!(status == 0, AUTHENTICATION);
            }
            ([VERSION, _], _) => bail!(AUTHENTICATION),
            _ => bail!(NOT_SOCKS),
        }
        let address = match host.parse() {
            Ok(IpAddr::V4(ip)) => [&[1], &ip.octets()[..]].concat(),
            Ok(IpAddr::V6(ip)) => [&[4], &ip.octets()[..]].concat(),
            Err(_) => [&[3], &*prefixed(host.as_bytes())?].concat(),
        };
        // CONNECT, and a reserved byte.
        send(stream, &[&[VERSION, 1, 0], &address, &port.to_be_bytes()])?;
        let bound = match read(stream)? {
            [VERSION, 0, _, 1] => 4,
            [VERSION, 0, _, 4] => 16,
            [VERSION, 0, _, 3] => read::<1>(stream)?[0].into(),
            [VERSION, reply, ..] if reply != 0 => {
                bail!("the proxy refuses the connection: SOCKS reply {reply}")
            }
            _ => bail!(NOT_SOCKS),
        };
        // The proxy's own address and port.
        stream.read_exact(&mut vec![0; bound + 2]).context(BROKEN)
    }
}

/// Without credentials.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            Kind::Http => "http",
            Kind::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}", authority(&self.host, self.port))
    }
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn read<const N: usize>(stream: &mut TcpStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).context(BROKEN)?;
    Ok(bytes)
}

/// Sends these parts in one piece.
fn send(stream: &mut TcpStream, parts: &[&[u8]]) -> Result<()> {
    stream.write_all(&parts.concat()).context(BROKEN)
}

/// Bytes after their number.
fn prefixed(bytes: &[u8]) -> Result<Vec<u8>> {
    let length = u8::try_from(bytes.len()).ok();
    let length = length.context("the host, the user or the password is too long for SOCKS")?;
    Ok([&[length], bytes].concat())
}
