//! The URL of an API server, parsed.

use std::fmt;
use std::net::Ipv6Addr;

use anyhow::{Context as _, Result, bail, ensure};

const INVALID_HOST: &str = "its host is neither an IP address nor a DNS name";

/// The default port of `https`.
const HTTPS_PORT: u16 = 443;

/// An `https` URL: a host, a port, and the path prefix of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    base_path: String,
}

impl ServerUrl {
    /// Parses a URL, which no error repeats, since it may contain a password.
    pub fn parse(text: &str) -> Result<Self> {
        let rest = match text.split_at_checked("https://".len()) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https://") => rest,
            _ => bail!("it must begin with https://, since it carries tokens"),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        ensure!(
            !rest.contains(['?', '#']) && !authority.contains('@'),
            "it must be https://HOST[:PORT][/PATH], without user, query and fragment"
        );
        ensure!(
            path.bytes().all(|byte| byte.is_ascii_graphic()),
            "its path contains a space, a control character or a letter outside ASCII"
        );
        let (host, port) = host_and_port(authority, HTTPS_PORT)?;
        let path = path.trim_matches('/');
        let base_path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { host, port, base_path })
    }

    /// The API server in a pod's environment variables, which contain an IPv6 address without brackets.
    pub fn in_cluster(host: &str, port: &str) -> Result<Self> {
        Ok(Self { host: checked_host(host)?, port: parsed_port(port)?, base_path: String::new() })
    }

    /// Whether another URL names the same server, as RFC 3986 (section 6.2) compares them. A path with dot segments is
    /// the same as no other, since not every client removes them.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let path = |url: &Self| url.base_path.split('/').map(unescaped).collect::<Vec<_>>();
        let (mine, theirs) = (path(self), path(other));
        let is_dotted =
            |path: &[String]| path.iter().any(|segment| segment == "." || segment == "..");
        same_host(&self.host, &other.host)
            && self.port == other.port
            && mine == theirs
            && !is_dotted(&mine)
    }

    /// The full path of a resource on this server; `path` begins with a slash.
    #[must_use]
    pub fn path_of(&self, path: &str) -> String {
        format!("{}{path}", self.base_path)
    }

    /// Host and port as in the `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = &self.host;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if self.port == HTTPS_PORT { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}{}", self.authority(), self.base_path)
    }
}

fn same_host(one: &str, other: &str) -> bool {
    match (one.parse::<Ipv6Addr>(), other.parse::<Ipv6Addr>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one.eq_ignore_ascii_case(other),
    }
}

/// A segment of a path without needless escapes: those of unreserved characters. The others get capital letters.
fn unescaped(segment: &str) -> String {
    let mut pieces = segment.split('%');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).unwrap_or((piece, ""));
        match u8::from_str_radix(digits, 16).map(char::from) {
            Ok(byte) if byte.is_ascii_alphanumeric() || "-._~".contains(byte) => plain.push(byte),
            _ => plain.extend(["%", &digits.to_ascii_uppercase()]),
        }
        plain += rest;
    }
    plain
}

/// Host and port of a URL. No port and an empty one are that of the scheme (RFC 3986, section 6.2.3).
pub(crate) fn host_and_port(authority: &str, of_scheme: u16) -> Result<(String, u16)> {
    let parsed_port = |text: &str| if text.is_empty() { Ok(of_scheme) } else { parsed_port(text) };
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').context(INVALID_HOST)?;
        host.parse::<Ipv6Addr>().ok().context(INVALID_HOST)?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host.to_owned(), parsed_port(port)?)),
            None if after.is_empty() => Ok((host.to_owned(), of_scheme)),
            None => bail!(INVALID_HOST),
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => {
            let port = parsed_port(port)?;
            Ok((checked_host(host)?, port))
        }
        None => Ok((checked_host(authority)?, of_scheme)),
    }
}

fn parsed_port(text: &str) -> Result<u16> {
    let port = text.parse().ok().filter(|port| *port != 0 && !text.starts_with('+'));
    port.context("its port is not a number from 1 to 65535")
}

/// Less strict than for names of objects: kubeconfigs contain hosts with capitals and underscores.
fn checked_host(host: &str) -> Result<String> {
    let is_name = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    ensure!(is_name(host) || host.parse::<Ipv6Addr>().is_ok(), INVALID_HOST);
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ServerUrl;

    #[test]
    fn an_address_is_taken_apart() {
        for (text, host, port, path, authority) in [
            ("https://10.96.0.1", "10.96.0.1", 443, "/x", "10.96.0.1"),
            ("https://Hub.example:6443/", "Hub.example", 6443, "/x", "Hub.example:6443"),
            ("HTTPS://hub/k8s/clusters/c-1/", "hub", 443, "/k8s/clusters/c-1/x", "hub"),
            ("https://hub:/c1", "hub", 443, "/c1/x", "hub"),
            ("https://[fd00::1]", "fd00::1", 443, "/x", "[fd00::1]"),
            ("https://[::1]:6443", "::1", 6443, "/x", "[::1]:6443"),
        ] {
            let url = ServerUrl::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
            assert_eq!(
                (url.path_of("/x").as_str(), url.authority().as_str()),
                (path, authority),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_https_server_is_refused() {
        for (text, words) in [
            ("", "begin with https://"),
            ("hub:6443", "begin with https://"),
            ("http://hub", "begin with https://"),
            ("https://", "its host"),
            ("https://user:pass@hub", "without user"),
            ("https://hub?x", "without user"),
            ("https://hub/#x", "without user"),
            ("https://hub:0", "its port"),
            ("https://hub:+1", "its port"),
            ("https://hub:99999", "its port"),
            ("https://::1", "its port"),
            ("https://[::1", "its host"),
            ("https://[hub]", "its host"),
            ("https://[::1]6443", "its host"),
            ("https://hu b", "its host"),
            ("https://hub\r\nX", "its host"),
            ("https://hub/a b", "its path"),
            ("https://hub/a\r\nX:y", "its path"),
        ] {
            let error = ServerUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn urls_are_compared_as_rfc_3986_says() {
        let parsed = |text| ServerUrl::parse(text).unwrap();
        let server = parsed("https://proxy.example:443/c-1");
        for same in [
            "HTTPS://PROXY.example/c-1",
            "https://proxy.example/c-1/",
            "https://proxy.example/%63-1",
            "https://proxy.example/c%2D1",
        ] {
            assert!(server.is_equivalent(&parsed(same)), "{same}");
        }
        for other in [
            "https://proxy.example/C-1",
            "https://proxy.example/c-1/x",
            "https://proxy.example/c-1/.",
            "https://proxy.example/c-1/%2E%2e/c-1",
            "https://proxy.example/c-1%2F",
            "https://proxy.example:444/c-1",
            "https://proxy.example./c-1",
        ] {
            assert!(!server.is_equivalent(&parsed(other)), "{other}");
        }
        assert!(
            parsed("https://[FD00:0::1]/a%2fb").is_equivalent(&parsed("https://[fd00::1]/a%2Fb"))
        );
        assert!(
            !parsed("https://a/x/../c").is_equivalent(&parsed("https://a/x/../c")),
            "dot segments"
        );
    }

    #[test]
    fn a_pod_finds_ipv6_addresses_without_brackets() {
        let url = ServerUrl::in_cluster("fd00::1", "443").unwrap();
        assert_eq!(url.to_string(), "https://[fd00::1]");
        assert!(ServerUrl::in_cluster("a b", "443").is_err());
        assert!(ServerUrl::in_cluster("10.0.0.1", "https").is_err());
    }

    proptest! {
        #[test]
        fn nothing_that_breaks_a_request_gets_through(text in "https://\\PC{0,20}|https://[a-z:/@\\[\\]\r\n ]{0,20}|\\PC*") {
            if let Ok(url) = ServerUrl::parse(&text) {
                let head = format!("{}{}", url.path_of("/x"), url.authority());
                prop_assert!(head.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}
