//! The cluster and the path of a request.

use http::{Method, Uri, Version};
use hub_api::names::{ClusterName, LABEL_VALUE_MAX_LENGTH, is_dns_subdomain};

use super::Refusal;

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub cluster: ClusterName,
    /// The path and the query for its API server, exactly as the client sent them.
    pub target: String,
}

/// The route of a request.
///
/// Its path is forwarded without a change, so a path that an API server, or a proxy in front of it, may read as
/// another one is refused: one with `.` or `..` as a segment, and one with an encoded slash, backslash, dot or percent
/// sign.
pub fn route(method: &Method, uri: &Uri, version: Version) -> Result<Route, Refusal> {
    if method == Method::CONNECT {
        return Err(Refusal::Target("is that of CONNECT, which is not supported"));
    }
    // In HTTP/2, every request has a scheme and an authority.
    if version < Version::HTTP_2 && (uri.scheme().is_some() || uri.authority().is_some()) {
        return Err(Refusal::Target("must be a path, not a URL"));
    }
    let path = uri.path();
    if !path.starts_with('/') {
        return Err(Refusal::Target("must be a path"));
    }
    if path.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'\\') {
        return Err(Refusal::Target("has a character that must be encoded"));
    }
    if has_ambiguous_encoding(path) {
        return Err(Refusal::Target(
            "has an encoded slash, backslash, dot, percent sign or control character",
        ));
    }
    if path.split('/').any(|segment| segment == "." || segment == "..") {
        return Err(Refusal::Target("has a segment . or .."));
    }
    let rest = &path[1..];
    let (cluster, rest) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
    if cluster.is_empty() {
        return Err(Refusal::NoCluster);
    }
    // Clusters with longer names have no profile.
    if !is_dns_subdomain(cluster) || cluster.len() > LABEL_VALUE_MAX_LENGTH {
        return Err(Refusal::Target("does not begin with a valid name of a cluster"));
    }
    let target = uri.query().map_or_else(|| rest.to_owned(), |query| format!("{rest}?{query}"));
    Ok(Route { cluster: cluster.into(), target })
}

/// The `Location` by which a client follows a redirect of an API server, which is called by this authority: a path of
/// the same cluster. `None` if the redirect may lead anywhere else, such as to another cluster.
#[must_use]
pub fn redirected(from: &Route, authority: &str, location: &str) -> Option<String> {
    let of_api_server = location
        .split_once("://")
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
        .and_then(|(_, rest)| rest.strip_prefix(authority))
        .map(|rest| rest.strip_prefix(":443").unwrap_or(rest));
    let reference = of_api_server.unwrap_or(location);
    let base = from.target.split('?').next()?;
    let target = if reference.starts_with('/') {
        reference.to_owned()
    } else if of_api_server.is_some()
        || reference.is_empty()
        || reference.split(['/', '?', '#']).next()?.contains(':')
    {
        return None;
    } else if reference.starts_with('?') {
        format!("{base}{reference}")
    } else {
        format!("{}{reference}", &base[..=base.rfind('/')?])
    };
    let location = format!("/{}{target}", from.cluster);
    let to = route(&Method::GET, &location.parse().ok()?, Version::HTTP_11).ok()?;
    (to.cluster == from.cluster && !target.starts_with("//")).then_some(location)
}

/// Whether a percent-encoding is malformed, or encodes a character that has a meaning in a path.
fn has_ambiguous_encoding(path: &str) -> bool {
    path.split('%').skip(1).any(|encoded| {
        let byte = encoded.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_none_or(|byte| {
            matches!(byte, b'/' | b'\\' | b'.' | b'%') || byte.is_ascii_control()
        })
    })
}
