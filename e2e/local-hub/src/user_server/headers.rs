//! Hop-by-hop headers, which a proxy does not forward (RFC 9110, section 7.6.1).

use http::HeaderMap;
use http::header::{
    CONNECTION, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

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

/// The protocol of an upgrade that a message requests or confirms, if any.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    named_by_connection(headers)
        .any(|name| name.eq_ignore_ascii_case("upgrade"))
        .then(|| headers.get(UPGRADE).cloned())
        .flatten()
}

/// Keeps the end-to-end headers, and the upgrade if there is one.
pub(super) fn pass_on(headers: &mut HeaderMap) {
    let protocol = upgrade(headers);
    let named: Vec<HeaderName> = named_by_connection(headers).filter_map(|name| name.parse().ok()).collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
}

/// Further headers that the connection header declares as hop-by-hop.
fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        };
        lines.iter().map(parse).collect()
    }

    #[test]
    fn what_is_about_the_connection_ends_here() {
        let mut passed = headers(&[
            ("connection", "keep-alive, X-Private"),
            ("connection", "x-also-private"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Basic eDp5"),
            ("upgrade", "SPDY/3.1"),
            ("x-private", "1"),
            ("x-also-private", "1"),
            ("authorization", "Bearer token"),
            ("accept", "application/json"),
            ("accept", "text/plain"),
        ]);
        pass_on(&mut passed);
        assert_eq!(
            passed,
            headers(&[
                ("authorization", "Bearer token"),
                ("accept", "application/json"),
                ("accept", "text/plain"),
            ])
        );
    }

    #[test]
    fn an_upgrade_is_passed_on_when_the_connection_names_it() {
        let mut passed = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        pass_on(&mut passed);
        assert_eq!(passed, headers(&[("connection", "Upgrade"), ("upgrade", "websocket")]));
        assert_eq!(upgrade(&passed).unwrap(), "websocket");
        assert_eq!(upgrade(&headers(&[("connection", "upgrade")])), None);
    }
}
