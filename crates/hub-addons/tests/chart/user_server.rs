//! The user server as the chart installs it: it is ready with the permissions of its Roles, and each of them is needed.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::path::PathBuf;

use local_hub::{LocalHub, ServingAuthority, eventually, ocm};
use serde_json::json;

use crate::rights::right::{self, Right};
use crate::support::chart::{self, install};
use crate::support::proxy::{self, Authority};
use crate::support::{Addons, Hub, SOON, world};

const COMPONENT: &str = "user-server";
const VALUES: [&str; 4] = [
    "accessProvider.clusterProxy.namespace=proxy",
    "userServer.enabled=true",
    "userServer.certificateSecret=user-server-tls",
    "userServer.proxyServer.namespace=proxy",
];
const REVIEWS: &str = "token reviews: ok";

/// Starts it with its Deployment's arguments and ServiceAccount.
async fn start(hub: &Hub) -> Addons {
    let certificates = certificates(hub);
    let here = [
        "--bind-address=127.0.0.1:0".to_owned(),
        format!("--certificate-directory={}", certificates.display()),
    ];
    chart::start_with(hub, COMPONENT, &here.each_ref().map(String::as_str)).await
}

fn certificates(hub: &Hub) -> PathBuf {
    let directory = hub.directory().join("user-server-tls");
    if !directory.exists() {
        let serving = ServingAuthority::new("user-server").unwrap().issue(["127.0.0.1"]).unwrap();
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("tls.crt"), serving.tls_crt()).unwrap();
        std::fs::write(directory.join("tls.key"), serving.tls_key()).unwrap();
    }
    directory
}

/// A line of `/readyz`.
async fn shows(server: &Addons, line: &str) {
    eventually(&format!("/readyz shows {line:?}"), SOON, async || {
        let (_, text) = server.probe("/readyz").await;
        if text.contains(line) { Ok(()) } else { Err(text) }
    })
    .await;
}

/// What the user server cannot do without a permission.
async fn misses(server: &Addons, right: &Right) {
    match (&*right.verb, &*right.resource) {
        ("create", "tokenreviews") => shows(server, "[-] token reviews: ").await,
        ("list", resource) => {
            eventually(&format!("{resource} are not listed"), SOON, async || {
                let (_, text) = server.probe("/readyz").await;
                let waits = |line: &str| line.starts_with("[-] ") && line.contains(resource);
                if text.lines().any(waits) { Ok(()) } else { Err(text) }
            })
            .await;
        }
        ("watch", resource) => {
            eventually(&format!("{resource} are not watched"), SOON, async || {
                let refused = format!("cannot watch resource \"{resource}\"");
                if server.log().contains(&refused) { Ok(()) } else { Err(server.log()) }
            })
            .await;
        }
        other => panic!("what is {other:?} for?"),
    }
}

#[tokio::test]
async fn it_is_ready_with_its_permissions_and_needs_each_of_them() {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    proxy::install(&hub, &Authority::new("proxy"), &[]).await;
    install(&hub, &VALUES).await;
    for name in ["proxy-client", "proxy-server-ca"] {
        let secret = ocm::Object::new(("", "v1", "Secret"), "secrets", Some("proxy"), name);
        world::create(&hub.ocm, [secret.field("stringData", json!({}))]).await;
    }
    let all = right::rendered(&hub.ocm).await;
    let server = start(&hub).await;
    shows(&server, REVIEWS).await;
    let (ready, text) = server.probe("/readyz").await;
    assert!(ready == 503 && text.contains("[-] proxy server: there is no client certificate"), "{text}");
    let (_, waiting): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("[+]"));
    assert_eq!(waiting.len(), 2, "nothing else is missing: {text}");
    server.stop().await;
    let rights: Vec<_> = all.iter().filter(|right| right.is_of(COMPONENT)).collect();
    assert_eq!(rights.len(), 13, "{rights:?}");
    for right in rights {
        right::take(&hub.ocm, &all, right, COMPONENT).await;
        let server = start(&hub).await;
        misses(&server, right).await;
        server.stop().await;
        right::give(&hub.ocm, &all, right, COMPONENT).await;
    }
}
