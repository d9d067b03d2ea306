//! The entry to clusters: paths, headers and grants.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri, Version};
use hub_api::names::{ClusterName, is_dns_subdomain};
use hub_core::entry::{
    self, Caller, Refusal, RefusalReason, Route, admit, bearer_token, end_to_end, is_cut,
    redirected, response_headers, route, upgrade,
};
use hub_core::fleet::Part;
use hub_core::protected::ProtectedNamespaces;
use proptest::prelude::*;
use serde_json::Value;

use crate::support::{binding, broken, exclusive, fleet, member};

fn routed(target: &str) -> Result<(String, String), u16> {
    let uri: Uri = target.parse().map_err(|_| 400_u16)?;
    let route = route(&Method::GET, &uri, Version::HTTP_11).map_err(|refusal| refusal.code())?;
    Ok((route.cluster.to_string(), route.target))
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let parse = |(name, value): &(&str, &str)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
    };
    lines.iter().map(parse).collect()
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_first_segment_is_the_cluster_and_the_rest_is_forwarded_as_it_is() {
    for (target, cluster, forwarded) in [
        ("/c1", "c1", "/"),
        ("/c1/", "c1", "/"),
        ("/c1?a=b", "c1", "/?a=b"),
        ("/c1/api/v1/namespaces?watch=true&a=%2F..", "c1", "/api/v1/namespaces?watch=true&a=%2F.."),
        ("/c1.example/apis//x", "c1.example", "/apis//x"),
        (
            "/c1/api/v1/namespaces/a/services/https:b:c/proxy/x%20y",
            "c1",
            "/api/v1/namespaces/a/services/https:b:c/proxy/x%20y",
        ),
    ] {
        assert_eq!(routed(target), Ok((cluster.to_owned(), forwarded.to_owned())), "{target}");
    }
}

#[test]
fn a_redirect_leads_to_the_same_cluster_or_nowhere() {
    let target = "/api/v1/namespaces/a/services/web/proxy?x=y".to_owned();
    let from = Route { cluster: "c1".into(), target };
    for (location, followed) in [
        ("/api/v1/namespaces/a/services/web/proxy/", "/c1/api/v1/namespaces/a/services/web/proxy/"),
        ("/", "/c1/"),
        ("/login?next=%2Fa#top", "/c1/login?next=%2Fa#top"),
        ("proxy/", "/c1/api/v1/namespaces/a/services/web/proxy/"),
        ("?page=2", "/c1/api/v1/namespaces/a/services/web/proxy?page=2"),
        ("https://kubernetes.default.svc/version", "/c1/version"),
        ("HTTPS://kubernetes.default.svc:443/version", "/c1/version"),
        // The cluster has no part in what is before its path.
        ("/c2/api", "/c1/c2/api"),
    ] {
        let shown = redirected(&from, "kubernetes.default.svc", location);
        assert_eq!(shown.as_deref(), Some(followed), "{location}");
    }
    for location in [
        "",
        "https://elsewhere.example/api",
        "https://kubernetes.default.svc.elsewhere.example/",
        "https://kubernetes.default.svc@elsewhere.example/",
        "https://kubernetes.default.svc:6443/api",
        "https://kubernetes.default.svc:4430/api",
        "https://kubernetes.default.svc",
        "https://kubernetes.default.svc:443",
        "https://kubernetes.default.svc//elsewhere.example",
        "http://kubernetes.default.svc/api",
        "//elsewhere.example/",
        "/\\elsewhere.example/",
        "\\\\elsewhere.example",
        "javascript:alert(1)",
        "../../../../../../../../c2/api",
        "/../c2/api",
        "/%2e%2e/c2/api",
        "/..%2fc2/api",
        "/a\tb",
        "/a b",
    ] {
        assert_eq!(redirected(&from, "kubernetes.default.svc", location), None, "{location}");
    }
}

#[test]
fn a_path_that_may_be_read_in_two_ways_is_refused() {
    for target in [
        "/c1/../c2/api",
        "/c1/./api",
        "/../c1/api",
        "/c1/%2e%2e/c2",
        "/c1/%2E%2e/c2",
        "/c1%2Fapi",
        "/c1/..%2fc2/api",
        "/c1/a%5c..",
        "/c1/%252e%252e/c2",
        "/c1/%00",
        "/c1/%zz",
        "/c1/%2",
        "/c1:443/api",
        "/user@c1/api",
        "/C1/api",
        "/c1_/api",
        "*",
        "c1/api",
        "https://c1/api",
        "http://hub-addons-user-server:9092/c1/api",
    ] {
        assert_eq!(routed(target), Err(400), "{target}");
    }
    assert_eq!(routed("/"), Err(404));
    assert_eq!(routed("//c1/api"), Err(404));
    assert_eq!(routed(&format!("/{}/api", "c".repeat(64))), Err(400));
}

#[test]
fn connect_is_refused_and_http2_has_an_authority() {
    let uri: Uri = "c1:443".parse().unwrap();
    let refused = |method: Method, uri: &Uri, version| {
        route(&method, uri, version).map_err(|refusal| refusal.code())
    };
    assert_eq!(refused(Method::CONNECT, &uri, Version::HTTP_11), Err(400));
    let uri: Uri = "https://anything/c1/api".parse().unwrap();
    assert_eq!(refused(Method::GET, &uri, Version::HTTP_11), Err(400));
    assert_eq!(refused(Method::GET, &uri, Version::HTTP_2).unwrap().target, "/api");
}

#[test]
fn one_bearer_token_is_required() {
    let token = |values: &[&str]| {
        let lines: Vec<_> = values.iter().map(|value| ("authorization", *value)).collect();
        bearer_token(&headers(&lines)).map(str::to_owned).map_err(|refusal| refusal.code())
    };
    assert_eq!(token(&["Bearer abc"]), Ok("abc".to_owned()));
    assert_eq!(token(&["bearer  abc "]), Ok("abc".to_owned()));
    for none in [
        &[][..],
        &["Basic abc"],
        &["Bearer"],
        &["Bearer "],
        &["abc"],
        &["Bearer a b"],
        &["Bearer a,Bearer b"],
    ] {
        assert_eq!(token(none), Err(401), "{none:?}");
    }
    assert_eq!(token(&["Bearer abc", "Bearer abc"]), Err(400));
    assert_eq!(token(&["Basic abc", "Bearer abc"]), Err(400));
}

#[test]
fn a_caller_becomes_nobody_else_by_a_header() {
    for name in
        ["Impersonate-User", "impersonate-group", "Impersonate-Extra-Scopes", "IMPERSONATE-UID"]
    {
        let refused = end_to_end(&headers(&[(name, "admin")]));
        assert!(matches!(refused, Err(Refusal::Impersonation(_))), "{name}");
    }
    // Also where `Connection` would have it removed on the way.
    let removed = headers(&[("connection", "impersonate-user"), ("impersonate-user", "admin")]);
    assert!(end_to_end(&removed).is_err());
}

#[test]
fn credentials_and_what_a_trusted_proxy_would_say_are_not_forwarded() {
    let sent = headers(&[
        ("authorization", "Bearer abc"),
        ("accept", "application/json"),
        ("connection", "keep-alive, x-private"),
        ("cookie", "a=b"),
        ("forwarded", "for=a"),
        ("host", "hub"),
        ("keep-alive", "5"),
        ("proxy-authorization", "Basic abc"),
        ("te", "trailers"),
        ("user-agent", "kubectl"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-private", "a"),
        ("x-remote-extra-a", "b"),
        ("x-remote-group", "system:masters"),
        ("x-remote-user", "admin"),
        ("x-stream-protocol-version", "v5.channel.k8s.io"),
    ]);
    let forwarded = end_to_end(&sent).unwrap();
    assert_eq!(names(&forwarded), ["accept", "user-agent", "x-stream-protocol-version"]);
}

#[test]
fn a_token_in_a_subprotocol_is_not_forwarded_and_the_other_protocols_are() {
    let sent = headers(&[
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YWJj, v5.channel.k8s.io"),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
    ]);
    let forwarded = end_to_end(&sent).unwrap();
    assert_eq!(forwarded["sec-websocket-protocol"], "v5.channel.k8s.io, v4.channel.k8s.io");
    let only = headers(&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YWJj")]);
    assert_eq!(names(&end_to_end(&only).unwrap()), [""; 0]);
}

#[test]
fn discovery_is_recognized_by_what_it_accepts() {
    let accepts = |value: &str| entry::is_discovery(&headers(&[("accept", value)]));
    let json = "application/json";
    assert!(accepts(&format!("{json};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{json}")));
    assert!(!accepts(&format!("{json};as=Table;v=v1;g=meta.k8s.io,{json}")) && !accepts("*/*"));
}

#[test]
fn an_upgrade_is_one_that_connection_names() {
    for (connection, protocol) in [("Upgrade", "SPDY/3.1"), ("keep-alive, upgrade", "websocket")] {
        let sent = headers(&[("connection", connection), ("upgrade", protocol)]);
        assert_eq!(upgrade(&sent).unwrap(), protocol);
    }
    assert_eq!(upgrade(&headers(&[("upgrade", "websocket")])), None);
    assert_eq!(upgrade(&headers(&[("connection", "upgrade")])), None);
}

#[test]
fn a_cluster_sets_nothing_for_the_host_that_all_clusters_share() {
    let sent = headers(&[
        ("alt-svc", "h2=\"evil:443\""),
        ("connection", "close"),
        ("content-type", "application/json"),
        ("set-cookie", "a=b"),
        ("strict-transport-security", "max-age=1"),
        ("transfer-encoding", "chunked"),
        ("warning", "299 - \"deprecated\""),
    ]);
    assert_eq!(names(&response_headers(&sent)), ["content-type", "warning"]);
}

#[test]
fn a_caller_is_a_service_account() {
    let caller = Caller::of_user("system:serviceaccount:team:application").unwrap();
    assert_eq!((caller.namespace.as_str(), caller.name.as_str()), ("team", "application"));
    for user in [
        "admin",
        "system:serviceaccount:team",
        "system:serviceaccount::a",
        "system:serviceaccount:a:b:c",
        "system:node:a",
    ] {
        assert_eq!(Caller::of_user(user), Err(Refusal::NoServiceAccount), "{user}");
    }
}

#[test]
fn the_grant_of_the_callers_namespace_decides_and_in_doubt_nothing_new_passes() {
    let joined = |objects: Vec<Value>, namespace: &str| {
        let fleet = fleet(objects);
        let caller = Caller { namespace: namespace.into(), name: "application".to_owned() };
        let (protected, cluster) = (ProtectedNamespaces::default(), "c1".into());
        let admitted =
            admit(&fleet, &protected, &caller, &cluster).map_err(|refusal| refusal.code());
        (admitted, is_cut(&fleet, &protected, &caller.namespace, &cluster))
    };
    let granted = || vec![member("c1", "prod"), exclusive("prod"), binding("team", "prod")];
    assert_eq!(joined(granted(), "team"), (Ok(()), false));
    assert_eq!(joined(granted(), "other"), (Err(403), true), "nothing is bound there");
    assert_eq!(joined(granted()[..2].to_vec(), "team"), (Err(403), true), "the binding is gone");
    assert_eq!(joined(granted()[1..].to_vec(), "team"), (Err(403), true), "the cluster is gone");
    let doubtful = vec![member("c1", "prod"), broken("prod"), binding("team", "prod")];
    assert_eq!(joined(doubtful, "team"), (Err(503), false), "what is open stays");
    let hub = vec![member("c1", "prod"), exclusive("prod"), binding("kube-system", "prod")];
    assert_eq!(joined(hub, "kube-system"), (Err(403), true));
}

#[test]
fn while_a_kind_cannot_be_read_nothing_is_admitted_and_what_is_open_stays() {
    let protected = ProtectedNamespaces::default();
    for part in [Part::Clusters, Part::Sets, Part::Bindings] {
        let mut fleet = fleet([member("c1", "prod"), exclusive("prod"), binding("team", "prod")]);
        fleet.set_read(part, false);
        let code = |namespace: &str, cluster: &str| {
            let caller = Caller { namespace: namespace.into(), name: "application".to_owned() };
            admit(&fleet, &protected, &caller, &cluster.into()).map_err(|refusal| refusal.code())
        };
        assert_eq!(code("team", "c1"), Err(503), "{part:?}");
        assert_eq!(code("other", "c1"), Err(503), "a binding may exist by now");
        assert_eq!(code("team", "c2"), Err(503), "a cluster may have joined by now");
        assert!(!is_cut(&fleet, &protected, &"team".into(), &"c1".into()), "{part:?}");
    }
}

#[test]
fn each_refusal_is_a_status_and_only_what_passes_is_tried_again() {
    let cluster = ClusterName::from("c1");
    let refusal = Refusal::NoAccount(cluster.clone());
    let status = refusal.status();
    assert_eq!((status["kind"].as_str(), status["code"].as_u64()), (Some("Status"), Some(503)));
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert!(status["message"].as_str().unwrap().contains("c1"), "{status}");
    let message = Refusal::TooManyReviews.message();
    for limit in ["from this address", "of the namespace"] {
        assert!(message.contains(limit), "{message}");
    }
    let refusal = Refusal::Redirect(cluster);
    assert_eq!((refusal.code(), refusal.retry_after()), (502, None));
    assert_eq!(refusal.reason(), RefusalReason::Redirect);
    // A cluster chooses the names in its certificate.
    let cause = "valid for \u{202e}\x1b[31m".to_owned() + &"x".repeat(10_000);
    let message = Refusal::Unreachable { cluster: "c1".into(), cause }.message();
    assert!(message.len() < 2000 && !message.contains(['\u{202e}', '\x1b']), "{message}");
    assert!(RefusalReason::ALL.iter().all(|reason| !reason.into_str().is_empty()));
}

proptest! {
    #[test]
    fn whatever_is_routed_stays_below_its_cluster(target in "/[a-c./%2eEfF5:\\\\-]{0,30}") {
        if let Ok((cluster, forwarded)) = routed(&target) {
            prop_assert!(is_dns_subdomain(&cluster));
            prop_assert!(forwarded.starts_with('/'));
            let path = forwarded.split('?').next().unwrap();
            prop_assert!(path.split('/').all(|segment| segment != "." && segment != ".."));
            let whole = [format!("/{cluster}{forwarded}"), format!("/{cluster}")];
            prop_assert!(whole.contains(&target));
        }
    }
}
