//! The headers of requests and responses.

use http::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

use super::Refusal;

/// The hop-by-hop headers (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Further headers of a request that are not forwarded: credentials, and those that an API server could attribute to a
/// proxy that it trusts (`--requestheader-*-headers`, source addresses in its audit log).
const NOT_FORWARDED: [HeaderName; 6] = [
    AUTHORIZATION,
    COOKIE,
    FORWARDED,
    // Replaced by that of the cluster.
    HOST,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("audit-id"),
];

/// The prefixes of further headers that are not forwarded.
const NOT_FORWARDED_PREFIXES: [&str; 2] = ["x-remote-", "x-forwarded-"];

/// Prefix of the headers by which a user acts as another one.
const IMPERSONATION: &str = "impersonate-";

/// Prefix of the subprotocol with which a WebSocket client in a browser sends a bearer token
/// (<https://github.com/kubernetes/kubernetes/pull/47740>).
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Headers of a response that a cluster must not set: they affect the host, which all clusters share.
const NOT_RETURNED: [HeaderName; 4] = [
    SET_COOKIE,
    HeaderName::from_static("alt-svc"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("strict-transport-security"),
];

/// Whether client-go requests the resources of an API server (discovery), as kubectl does first. Of an error response,
/// it shows plain text as it is, but of a `Status` only "unknown" (`client-go/discovery/discovery_client.go`).
#[must_use]
pub fn is_discovery(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("as=APIGroupDiscoveryList"))
}

/// The bearer token of a request.
pub fn bearer_token(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Refusal::NoToken)?;
    if values.next().is_some() {
        return Err(Refusal::SeveralCredentials);
    }
    let (scheme, token) =
        value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or(Refusal::NoToken)?;
    let token = token.trim();
    let is_token =
        !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    if scheme.eq_ignore_ascii_case("bearer") && is_token {
        Ok(token)
    } else {
        Err(Refusal::NoToken)
    }
}

/// The protocol that a request asks to switch to, or a response has switched to, if any.
#[must_use]
pub fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_upgrade = named_by_connection(headers).any(|name| name.eq_ignore_ascii_case("upgrade"));
    is_upgrade.then(|| headers.get(UPGRADE).cloned()).flatten()
}

/// The headers of a request that are forwarded, without those of an upgrade.
pub fn end_to_end(headers: &HeaderMap) -> Result<HeaderMap, Refusal> {
    let impersonation = headers.keys().find(|name| name.as_str().starts_with(IMPERSONATION));
    if let Some(name) = impersonation {
        return Err(Refusal::Impersonation(name.as_str().to_owned()));
    }
    let mut forwarded = without_hop_by_hop(headers);
    let prefixed = |name: &&HeaderName| {
        NOT_FORWARDED_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
    };
    for name in NOT_FORWARDED.iter().chain(headers.keys().filter(prefixed)) {
        forwarded.remove(name);
    }
    if forwarded.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
        let protocols =
            protocols.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        let protocols =
            protocols.map(str::trim).filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL));
        let protocols = protocols.collect::<Vec<_>>().join(", ");
        forwarded.remove(SEC_WEBSOCKET_PROTOCOL);
        if let Ok(protocols) = HeaderValue::from_str(&protocols)
            && !protocols.is_empty()
        {
            forwarded.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
        }
    }
    Ok(forwarded)
}

/// The headers of a cluster's response that a client receives, without those of an upgrade.
#[must_use]
pub fn response_headers(headers: &HeaderMap) -> HeaderMap {
    let mut returned = without_hop_by_hop(headers);
    for name in &NOT_RETURNED {
        returned.remove(name);
    }
    returned
}

fn without_hop_by_hop(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    for name in &HOP_BY_HOP {
        kept.remove(name);
    }
    for name in named_by_connection(headers) {
        kept.remove(name);
    }
    kept
}

/// The names of the headers that `Connection` declares as hop-by-hop.
fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}
