//! The published server, with a real TLS server: an anchor with whose certificate it serves is not withdrawn, and what
//! clients would find is visible.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::support::command::hub_addons;
use crate::support::proxy::{
    self, HOME, TEAM, anchors_in, has_written, hub, project, provisioner, serving,
};
use crate::support::shown::profile;
use crate::support::{Addons, Hub, WHOLE_FLEET, world};
use local_hub::{
    ADMIN, Flavour, ServingAuthority, ServingCertificate, Upstream, UserServer, eventually, ocm,
};
use serde_json::Value;

const ANY: &str = "127.0.0.1:0";

/// A TLS server with this certificate, which leads nowhere.
fn serve(certificate: &ServingCertificate, address: impl Into<String>) -> UserServer {
    let address: SocketAddr = address.into().parse().unwrap();
    UserServer::start(certificate, address, Vec::<(String, Upstream)>::new()).unwrap()
}

/// A hub with one profile, on which the provisioner publishes this server with the anchors of the serving Secret.
async fn published(
    server: &UserServer,
    secret: &ServingCertificate,
    arguments: &[&str],
) -> (Hub, Addons) {
    let hub = hub(Flavour::Map).await;
    ocm::namespace(HOME).create(&hub.ocm).await.unwrap();
    serving(HOME, secret.tls_crt()).create(&hub.ocm).await.unwrap();
    project(&hub, &["c1"]).await;
    let server = format!("--access-provider-server={}", server.url_of("{cluster}"));
    let ca = format!("--access-provider-ca=secret/{HOME}/cluster-proxy-user-serving-cert/tls.crt");
    let source = [server.as_str(), &ca, "--server-check-interval=1s"];
    let addons = provisioner(&hub, &[&source, arguments].concat()).await;
    (hub, addons)
}

/// Waits until the profile publishes these authorities.
async fn publishes(hub: &Hub, authorities: &[&ServingAuthority]) {
    let wanted: BTreeSet<_> = authorities.iter().map(|authority| authority.ca_pem()).collect();
    let is_wanted = |profile: &Value| anchors_in(profile) == wanted;
    profile(&hub.ocm, (TEAM, "c1"), "publishes these anchors", is_wanted).await;
}

async fn renew(hub: &Hub, certificate: &ServingCertificate) {
    serving(HOME, certificate.tls_crt()).update(&hub.ocm).await.unwrap();
}

/// Waits until the latest check has this result.
async fn is_checked(addons: &Addons, result: &str) {
    let series = format!("hub_addons_server_check{{source=\"static\",result=\"{result}\"}}");
    addons.measures(&series, 1.0).await;
}

/// Waits until the program has logged this text so many times.
async fn logs(addons: &Addons, text: &str, times: usize) {
    eventually(text, WHOLE_FLEET, async || addons.log().matches(text).count() >= times).await;
}

fn authorities() -> [(ServingAuthority, ServingCertificate); 2] {
    ["a", "b"].map(|name| {
        let authority = ServingAuthority::new(name).unwrap();
        let certificate = authority.issue(["127.0.0.1"]).unwrap();
        (authority, certificate)
    })
}

#[tokio::test]
async fn replaced_anchors_leave_when_the_proxy_is_seen_to_serve_with_the_new_certificate() {
    let [(a, old), (b, new)] = authorities();
    let proxy = serve(&old, ANY);
    let address = proxy.address().to_string();
    let (hub, addons) = published(&proxy, &old, &["--ca-overlap=1h"]).await;
    publishes(&hub, &[&a]).await;

    renew(&hub, &new).await;
    publishes(&hub, &[&a, &b]).await;
    // As long as it serves with the old certificate, no number of handshakes withdraws that one's issuer.
    logs(&addons, "127.0.0.1: old_certificate", 11).await;
    publishes(&hub, &[&a, &b]).await;
    drop(proxy);
    let _proxy = serve(&new, address);
    publishes(&hub, &[&b]).await;
    has_written(&addons, 3).await;
}

#[tokio::test]
async fn an_anchor_stays_after_the_overlap_while_the_proxy_serves_with_its_certificate() {
    let [(a, old), (b, new)] = authorities();
    let proxy = serve(&old, ANY);
    let address = proxy.address().to_string();
    let (hub, addons) = published(&proxy, &old, &["--ca-overlap=1s"]).await;
    publishes(&hub, &[&a]).await;
    is_checked(&addons, "ok").await;

    renew(&hub, &new).await;
    logs(&addons, "which stay published", 3).await;
    publishes(&hub, &[&a, &b]).await;
    is_checked(&addons, "old_certificate").await;
    let note = world::told(&hub.ocm, &serving(HOME, ""), "OldServerCertificate").await;
    assert!(note.contains("127.0.0.1") && note.contains("restart it"), "{note}");
    addons.measures("hub_addons_findings{reason=\"OldServerCertificate\"}", 1.0).await;

    drop(proxy);
    let _proxy = serve(&new, address);
    publishes(&hub, &[&b]).await;
    is_checked(&addons, "ok").await;
    addons.measures("hub_addons_findings{reason=\"OldServerCertificate\"}", 0.0).await;
    has_written(&addons, 3).await;
}

#[tokio::test]
async fn a_published_server_that_clients_refuse_is_reported_until_it_is_in_order() {
    let [(a, good), (_, foreign)] = authorities();
    let misnamed = a.issue(["proxy.example"]).unwrap();
    let proxy = serve(&misnamed, ANY);
    let address = proxy.address().to_string();
    let (hub, addons) = published(&proxy, &good, &[]).await;
    publishes(&hub, &[&a]).await;
    let findings = "hub_addons_findings{reason=\"ServerCheckFailed\"}";
    let mut running = proxy;
    for (certificate, result, text) in [
        (None, "wrong_name", "does not name it: expected 127.0.0.1"),
        (Some(&foreign), "untrusted", "no published trust anchor verifies"),
        (Some(&good), "ok", ""),
    ] {
        if let Some(certificate) = certificate {
            drop(running);
            running = serve(certificate, address.as_str());
        }
        is_checked(&addons, result).await;
        addons.measures(findings, f64::from(u8::from(result != "ok"))).await;
        eventually("the Event says why", WHOLE_FLEET, async || {
            let notes = world::events(&hub.ocm, &serving(HOME, ""), "ServerCheckFailed").await;
            notes.iter().any(|note| note.contains(text))
        })
        .await;
        // The same by the line of `helm test`.
        let kubeconfig = hub.hub.kubeconfig_for(ADMIN).unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let expected = format!("--expect-server={}", proxy::NAME);
        let ended = hub_addons(&["check", &expected, &kubeconfig], &[]).await;
        assert_eq!(ended.code, Some(i32::from(result != "ok")), "{}{}", ended.stdout, ended.stderr);
        let shown =
            if result == "ok" { "127.0.0.1 presents a valid certificate until" } else { text };
        assert!(ended.stdout.contains(shown), "{}", ended.stdout);
    }
    let expiry = "hub_addons_server_certificate_expiry_timestamp_seconds{source=\"static\"}";
    assert!(addons.metric(expiry).await.is_some_and(|seconds| seconds > 1e9));
    // Without a server, the expiry is unknown.
    drop(running);
    is_checked(&addons, "unreachable").await;
    addons.measures(findings, 1.0).await;
    addons.measures(expiry, 0.0).await;
}
