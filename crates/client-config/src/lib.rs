//! Rules by which kubectl configures its client, for programs that share no parser: what counts of a kubeconfig file (a
//! parser of streams would be a fifteenth of `cp-creds`), and the proxy that the environment sets for an `https` server,
//! as Go's `net/http` chooses it: `HTTPS_PROXY` and `NO_PROXY`, or the same in lower case.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::Path;
use std::{env, fmt, fs};

use ipnet::IpNet;

/// The variables.
#[derive(Clone, Default)]
pub struct ProxyVariables {
    pub https_proxy: Option<String>,
    pub no_proxy: String,
}

/// Without the proxy, whose URL can contain a password.
impl fmt::Debug for ProxyVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ProxyVariables");
        shown.field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}

impl ProxyVariables {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            https_proxy: variable(["HTTPS_PROXY", "https_proxy"]),
            no_proxy: variable(["NO_PROXY", "no_proxy"]).unwrap_or_default(),
        }
    }

    /// The proxy for a host, which is an IP address without brackets or a name.
    #[must_use]
    pub fn proxy_for(&self, host: &str, port: u16) -> Option<&str> {
        let proxy = self.https_proxy.as_deref()?;
        let host = host.to_ascii_lowercase();
        let is_loopback =
            host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        (!is_loopback && !is_excepted(&self.no_proxy, &host, port)).then_some(proxy)
    }
}

fn variable(names: [&str; 2]) -> Option<String> {
    let values = names.into_iter().filter_map(|name| env::var(name).ok());
    values.map(|value| value.trim().to_owned()).find(|value| !value.is_empty())
}

/// Whether `NO_PROXY` names the host. Libraries follow curl, which knows no ports, and for which `.example` includes
/// `example`.
fn is_excepted(no_proxy: &str, host: &str, port: u16) -> bool {
    let parsed = |text: &str| text.parse().ok().map(|ip: IpAddr| ip.to_canonical());
    let address = parsed(host);
    no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
        if let (Some(address), Ok(network)) = (address, entry.parse::<IpNet>()) {
            return network.contains(&address);
        }
        let (name, only) = match entry.rsplit_once(':') {
            Some((name, only)) if parsed(&entry).is_none() => (name, Some(only)),
            _ => (&*entry, None),
        };
        let name = name.trim_matches(['[', ']']);
        let is_named = match (address, name.strip_prefix("*.").or_else(|| name.strip_prefix('.'))) {
            _ if entry == "*" => true,
            (Some(address), _) => parsed(name) == Some(address),
            (None, Some(domain)) => is_below(host, domain),
            (None, None) => host == name || is_below(host, name),
        };
        is_named && only.is_none_or(|only| only == port.to_string())
    })
}

fn is_below(host: &str, domain: &str) -> bool {
    !domain.is_empty() && host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

/// The text of a kubeconfig file, which may be in UTF-16 with a byte order mark, as Windows PowerShell 5 writes it.
pub fn read_text(file: &Path) -> io::Result<String> {
    let bytes = fs::read(file)?;
    let decoded = match bytes.as_slice() {
        [0xff, 0xfe, units @ ..] => utf16(units, u16::from_le_bytes),
        [0xfe, 0xff, units @ ..] => utf16(units, u16::from_be_bytes),
        _ => String::from_utf8(bytes).ok(),
    };
    decoded.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "its text is not valid Unicode"))
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (units, rest) = bytes.as_chunks();
    let units: Vec<u16> = units.iter().map(|bytes| unit(*bytes)).collect();
    String::from_utf16(&units).ok().filter(|_| rest.is_empty())
}

/// A name that occurs twice in one of the lists of a kubeconfig file, its clusters, users and contexts: kubectl refuses it.
#[must_use]
pub fn repeated<'a>(lists: [Vec<&'a str>; 3]) -> Option<&'a str> {
    let repeated = |names: Vec<&'a str>| {
        let mut seen = HashSet::new();
        names.into_iter().find(|name| !seen.insert(*name))
    };
    lists.into_iter().find_map(repeated)
}

/// The first document of a YAML file, which is all that kubectl reads of a kubeconfig.
#[must_use]
pub fn first_document(text: &str) -> &str {
    let mut end = 0;
    let mut has_begun = false;
    for line in text.split_inclusive('\n') {
        // No scalar contains such a line.
        let begins = |mark| {
            line.strip_prefix(mark)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        };
        if begins("...") || has_begun && begins("---") {
            break;
        }
        has_begun |= !(line.trim().is_empty() || line.starts_with(['#', '%']));
        end += line.len();
    }
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::{first_document, is_excepted};

    #[test]
    fn the_first_document_ends_where_another_begins() {
        for (text, expected) in [
            ("", ""),
            ("a: b", "a: b"),
            ("# c\n%YAML 1.2\n--- # d\na: b\n---\na: c\n", "# c\n%YAML 1.2\n--- # d\na: b\n"),
            ("a: |\n  ---\n  b\n---", "a: |\n  ---\n  b\n"),
            ("a: b\n---c: d\n", "a: b\n---c: d\n"),
            ("a: b\r\n...\r\na: c", "a: b\r\n"),
            ("---\n---\na: b\n", "---\n"),
        ] {
            assert_eq!(first_document(text), expected, "{text:?}");
        }
    }

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
            ("hub.example:https", "hub.example", false),
            ("*:6443", "hub.example", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
        ] {
            assert_eq!(is_excepted(no_proxy, host, 6443), expected, "{no_proxy} {host}");
        }
    }
}
