//! Which URLs may be published as a cluster's server.
//!
//! Consumers use the server of an access provider as it is and send a token there, so a published URL must use https,
//! must name a host that they accept (Kueue accepts an IP address or a DNS-1123 name), and must not contain a
//! credential. A URL that a managed cluster reports must also not point consumers at themselves or at their cloud's
//! metadata service.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;
use hub_api::names::{ClusterName, LABEL_VALUE_MAX_LENGTH, is_dns_subdomain};

/// The placeholder for the cluster's name in a [`ServerTemplate`].
const PLACEHOLDER: &str = "{cluster}";

/// Addresses, besides link-local ones, at which clouds serve credentials to any process inside.
const METADATA_ADDRESSES: [IpAddr; 3] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

/// Names of such services, names by which containers reach their host, and names of the machine itself, as in
/// `/etc/hosts`.
const LOCAL_NAMES: [&str; 16] = [
    "metadata",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.tencentyun.com",
    "instance-data",
    "instance-data.ec2.internal",
    "host.docker.internal",
    "kubernetes.docker.internal",
    "host.containers.internal",
    "localhost",
    "localhost.localdomain",
    "localhost6",
    "localhost6.localdomain6",
    "ip6-localhost",
    "ip6-loopback",
    "ip6-allnodes",
];
const LOCAL_SUFFIXES: [&str; 2] = [".localhost", ".localdomain"];

const HTTPS_PORT: u16 = 443;

/// Longest server URL that v1alpha2 of ClusterProfile allows.
const MAX_LENGTH: usize = 2048;

/// Why a URL is not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("it is not a valid URL")]
    NotAUrl,
    /// It is longer than v1alpha2 of ClusterProfile allows.
    #[error("it exceeds {MAX_LENGTH} characters")]
    TooLong,
    #[error("its scheme is not https")]
    NotHttps,
    /// It has a user name or password.
    #[error("it contains a credential")]
    HasCredential,
    #[error("it has a query")]
    HasQuery,
    #[error("its host is neither an IP address nor a DNS name")]
    InvalidHost,
    #[error("its host is a loopback, link-local or metadata address")]
    LocalHost,
}

/// Validates a URL to be published as the server of an access provider, and returns it with its host in lower case:
/// the hosts of EKS have capital letters, and consumers accept DNS-1123 names only.
pub fn check(url: &str) -> Result<String, EndpointError> {
    let url = in_lower_case(url);
    host_of(&url).map(|_| url)
}

/// Validates a URL that a managed cluster reports, and returns it with its host in lower case.
pub fn check_remote(url: &str) -> Result<String, EndpointError> {
    let url = in_lower_case(url);
    let local = match host_of(&url)? {
        EndpointHost::Address(address) => is_local(address),
        EndpointHost::Name(name) => {
            LOCAL_NAMES.contains(&&*name)
                || LOCAL_SUFFIXES.iter().any(|local| name.ends_with(local))
        }
    };
    if local { Err(EndpointError::LocalHost) } else { Ok(url) }
}

/// The URL with its scheme and host in lower case, which mean the same (RFC 3986, section 6.2.2.1).
fn in_lower_case(url: &str) -> String {
    let authority = url.find("://").map_or(0, |scheme| scheme + "://".len());
    let end = url[authority..].find(['/', '?', '#']).map_or(url.len(), |length| authority + length);
    format!("{}{}", url[..end].to_ascii_lowercase(), &url[end..])
}

/// The host of a URL that is not published, without any part that could contain a credential.
#[must_use]
pub fn shown(url: &str) -> String {
    const LONGEST: usize = 200;
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.chars().take(LONGEST).collect()
}

enum EndpointHost {
    Address(IpAddr),
    Name(String),
}

fn host_of(url: &str) -> Result<EndpointHost, EndpointError> {
    if url.len() > MAX_LENGTH {
        return Err(EndpointError::TooLong);
    }
    let uri: Uri = url.parse().map_err(|_| EndpointError::NotAUrl)?;
    let authority = uri.authority().ok_or(EndpointError::NotAUrl)?;
    if uri.scheme_str() != Some("https") {
        return Err(EndpointError::NotHttps);
    }
    if authority.as_str().contains('@') {
        return Err(EndpointError::HasCredential);
    }
    if uri.query().is_some() || url.contains('#') {
        return Err(EndpointError::HasQuery);
    }
    // The host is followed by a numeric port.
    let host = authority.host();
    let port = &authority.as_str()[host.len()..];
    if !(port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()))
    {
        return Err(EndpointError::NotAUrl);
    }
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address = address.parse().map_err(|_| EndpointError::InvalidHost)?;
        return Ok(EndpointHost::Address(IpAddr::V6(address)));
    }
    if let Ok(address) = host.parse() {
        return Ok(EndpointHost::Address(IpAddr::V4(address)));
    }
    // Resolvers parse `127.1`, `0x7f.1` and `2130706433` as IPv4 addresses, so the last label of a name must not look
    // like a number.
    let last = host.rsplit('.').next().unwrap_or_default();
    let looks_numeric = last.starts_with(|c: char| c.is_ascii_digit())
        && (last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x"));
    if looks_numeric || !is_dns_subdomain(host) {
        return Err(EndpointError::InvalidHost);
    }
    Ok(EndpointHost::Name(host.to_owned()))
}

fn is_local(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V6(v6) => embedded_ipv4(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let by_range = match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local(),
    };
    by_range || METADATA_ADDRESSES.contains(&address)
}

/// The IPv4 address that an IPv6 address stands for: IPv4-mapped, or translated by NAT64 (RFC 6052).
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d] = *address.octets().last_chunk()?;
    let translated = address.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    address.to_ipv4_mapped().or_else(|| translated.then(|| Ipv4Addr::new(a, b, c, d)))
}

/// The address of a server that terminates TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// A DNS name or an IP address, without brackets.
    pub host: String,
    pub port: u16,
}

impl ServerAddress {
    /// The address in an https URL. `Uri` rejects the braces of a [`ServerTemplate`], so the text is split instead.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        let authority = url.strip_prefix("https://")?.split('/').next()?;
        let authority: Authority = authority.parse().ok()?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self { host, port: authority.port_u16().unwrap_or(HTTPS_PORT) })
    }
}

/// A server URL with a placeholder for the cluster's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTemplate(String);

impl ServerTemplate {
    /// The server of one cluster.
    #[must_use]
    pub fn server(&self, cluster: &ClusterName) -> String {
        self.0.replace(PLACEHOLDER, cluster.as_str())
    }

    /// The address of the server; `None` if each cluster has its own.
    #[must_use]
    pub fn address(&self) -> Option<ServerAddress> {
        ServerAddress::of_url(&self.0)
    }
}

impl fmt::Display for ServerTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is not a valid [`ServerTemplate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    #[error(
        "{0:?} is the same for every cluster: it must contain {PLACEHOLDER}, as in https://proxy.example:9092/{PLACEHOLDER}"
    )]
    NoPlaceholder(String),
    /// The resulting URL may not be published.
    #[error("{template:?} is not a valid server URL: {error}")]
    Endpoint { template: String, error: EndpointError },
    #[error("{0:?} must not end with a slash, since clients append paths that begin with one")]
    TrailingSlash(String),
}

impl FromStr for ServerTemplate {
    type Err = InvalidTemplate;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.contains(PLACEHOLDER) {
            return Err(InvalidTemplate::NoPlaceholder(text.to_owned()));
        }
        if text.ends_with('/') {
            return Err(InvalidTemplate::TrailingSlash(text.to_owned()));
        }
        // Clusters with longer names have no profile.
        let longest = "c".repeat(LABEL_VALUE_MAX_LENGTH);
        check(&text.replace(PLACEHOLDER, &longest))
            .map_err(|error| InvalidTemplate::Endpoint { template: text.to_owned(), error })?;
        Ok(Self(in_lower_case(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_https_urls_of_a_host_that_consumers_accept() {
        for good in [
            "https://proxy.example:9092/c1",
            "https://10.0.0.1:6443",
            "https://proxy.4example",
            "https://[2001:db8::1]:6443/x",
            "https://cluster-proxy-addon-user.ns:9092/c1",
        ] {
            assert_eq!(check(good), Ok(good.to_owned()), "{good}");
        }
        for (bad, error) in [
            ("proxy.example", EndpointError::NotHttps),
            ("/c1", EndpointError::NotAUrl),
            ("http://proxy.example", EndpointError::NotHttps),
            ("https://user:password@proxy.example", EndpointError::HasCredential),
            ("https://proxy.example/?token=x", EndpointError::HasQuery),
            ("https://proxy_1.example", EndpointError::InvalidHost),
            ("https://127.1", EndpointError::InvalidHost),
            ("https://2130706433", EndpointError::InvalidHost),
            ("https://0x7f.0x1", EndpointError::InvalidHost),
            ("https://localhost.", EndpointError::InvalidHost),
            ("https://proxy.example:http", EndpointError::NotAUrl),
        ] {
            assert_eq!(check(bad), Err(error), "{bad}");
        }
        let long = |length: usize| format!("https://a/{}", "x".repeat(length - "https://a/".len()));
        assert_eq!(
            (check(&long(2048)), check(&long(2049))),
            (Ok(long(2048)), Err(EndpointError::TooLong))
        );
    }

    #[test]
    fn a_cluster_cannot_point_consumers_at_themselves_or_their_cloud() {
        for bad in [
            "https://127.0.0.1:6443",
            "https://127.8.9.1",
            "https://0.0.0.0",
            "https://0.1.2.3",
            "https://[::1]",
            "https://[::ffff:127.0.0.1]",
            "https://[64:ff9b::169.254.169.254]",
            "https://169.254.169.254",
            "https://[fe80::1]",
            "https://[fd00:ec2::254]",
            "https://100.100.100.200",
            "https://localhost",
            "https://kube.localhost",
            "https://localhost.localdomain",
            "https://localhost6",
            "https://ip6-localhost:6443",
            "https://ip6-loopback",
            "https://metadata",
            "https://metadata.goog",
            "https://metadata.google.internal",
            "https://instance-data.ec2.internal",
            "https://kubernetes.docker.internal",
        ] {
            assert_eq!(check_remote(bad), Err(EndpointError::LocalHost), "{bad}");
        }
        for good in [
            "https://10.0.0.1",
            "https://api.example:6443",
            "https://[2001:db8::1]",
            "https://api.eu-west-1.compute.internal",
        ] {
            assert_eq!(check_remote(good), Ok(good.to_owned()), "{good}");
        }
    }

    #[test]
    fn capital_letters_in_a_host_are_published_in_lower_case() {
        let eks = "https://0123ABCD.gr7.eu-west-1.EKS.amazonaws.com";
        let published = "https://0123abcd.gr7.eu-west-1.eks.amazonaws.com";
        assert_eq!(check_remote(eks), Ok(published.to_owned()));
        assert_eq!(
            check("HTTPS://Api.Example:6443/K8s/C1"),
            Ok("https://api.example:6443/K8s/C1".to_owned())
        );
        assert_eq!(check_remote("https://LocalHost:6443"), Err(EndpointError::LocalHost));
        assert_eq!(check("https://user:Secret@proxy.example"), Err(EndpointError::HasCredential));
        let template: ServerTemplate = "https://Proxy.example/K8s/{cluster}".parse().unwrap();
        assert_eq!(template.server(&"c1".into()), "https://proxy.example/K8s/c1");
    }

    #[test]
    fn of_a_url_only_the_host_is_shown() {
        for (url, host) in [
            ("https://api.example:6443/x?token=secret", "api.example:6443"),
            ("https://user:secret@api.example", "api.example"),
            ("https://api.example?token=secret@x", "api.example"),
            ("https://api.example#secret", "api.example"),
            ("user:secret@api.example/secret", "api.example"),
            ("?secret", ""),
        ] {
            assert_eq!(shown(url), host, "{url}");
        }
        assert_eq!(shown(&format!("https://{}", "x".repeat(9000))).len(), 200);
    }

    #[test]
    fn a_template_has_a_place_for_the_cluster() {
        let template: ServerTemplate = "https://{cluster}.proxy.example:9092".parse().unwrap();
        assert_eq!(template.server(&"c1".into()), "https://c1.proxy.example:9092");
        assert_eq!(template.address(), None);
        for (text, host, port) in [
            ("https://proxy.example/{cluster}", "proxy.example", 443),
            ("https://10.0.0.1:9092/{cluster}", "10.0.0.1", 9092),
            ("https://[2001:db8::1]:9092/clusters/{cluster}", "2001:db8::1", 9092),
        ] {
            let address = ServerAddress { host: host.to_owned(), port };
            assert_eq!(text.parse::<ServerTemplate>().unwrap().address(), Some(address), "{text}");
        }
        for (bad, hint) in [
            ("https://proxy.example", "{cluster}"),
            ("http://proxy.example/{cluster}", "not https"),
            ("https://proxy.example/{cluster}/", "slash"),
        ] {
            let error = bad.parse::<ServerTemplate>().unwrap_err().to_string();
            assert!(error.contains(hint), "{bad}: {error}");
        }
    }
}
