//! The user server as the chart installs it: it serves with a certificate that others maintain, or that it issues itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use local_hub::{ServingAuthority, eventually, ocm};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

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

#[tokio::test]
async fn it_waits_for_nothing_but_the_credentials_of_the_proxy_server() {
    let hub = Hub::plain().await;
    proxy::install(&hub, &Authority::new("proxy"), &[]).await;
    install(&hub, &VALUES).await;
    for name in ["proxy-client", "proxy-server-ca"] {
        let secret = world::object("Secret", Some("proxy"), name);
        world::create(&hub.ocm, [secret.field("stringData", json!({}))]).await;
    }
    let server = start(&hub).await;
    shows(&server, REVIEWS).await;
    let (ready, text) = server.probe("/readyz").await;
    assert!(
        ready == 503 && text.contains("[-] proxy server: there is no client certificate"),
        "{text}"
    );
    let (_, waiting): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("[+]"));
    assert_eq!(waiting.len(), 2, "nothing else is missing: {text}");
}

/// Without a Secret for its certificate.
const ISSUING: [&str; 3] = [VALUES[0], VALUES[1], VALUES[3]];

/// The Secret and the ConfigMap of its authority.
fn authority() -> [ocm::Object; 2] {
    let of = |kind, resource| {
        let name = "hub-addons-user-server-authority";
        ocm::Object::new(("", "v1", kind), resource, Some(chart::NAMESPACE), name)
    };
    [of("Secret", "secrets"), of("ConfigMap", "configmaps")]
}

/// The certificate with which a server is reached by its name, verified by what the ConfigMap publishes.
async fn served(hub: &Hub, server: &Addons) -> Vec<u8> {
    let address: SocketAddr = eventually("it serves applications", SOON, async || {
        let log = server.log();
        // Replicas share the file.
        let line = log.lines().rfind(|line| line.contains("serving applications"))?;
        line.split_once("address=")?.1.split(' ').next()?.parse().ok()
    })
    .await;
    eventually("its certificate is trusted", SOON, async || {
        let [_, published] = authority();
        let published = world::get(&hub.ocm, &published).await.unwrap();
        let pem = published["data"]["ca.crt"].as_str().unwrap_or_default().to_owned();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).flatten());
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let name = ServerName::try_from("hub-addons-user-server.addons.svc").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        Ok::<_, String>(Some(shown))
    })
    .await
}

#[tokio::test]
async fn it_issues_its_certificate_by_an_authority_that_replicas_share_and_upgrades_keep() {
    let hub = Hub::plain().await;
    proxy::install(&hub, &Authority::new("proxy"), &[]).await;
    install(&hub, &ISSUING).await;
    let here = ["--bind-address=127.0.0.1:0"];
    let first = chart::start_with(&hub, COMPONENT, &here).await;
    let one = served(&hub, &first).await;
    let second = chart::start_with(&hub, COMPONENT, &here).await;
    let other = served(&hub, &second).await;
    assert_ne!(one, other, "keys of serving certificates are not shared");
    let contents = async || {
        let mut contents = Vec::new();
        for object in authority() {
            contents.push(world::get(&hub.ocm, &object).await.unwrap()["data"].clone());
        }
        contents
    };
    let before = contents().await;
    assert_eq!(before[1]["ca.crt"].as_str().unwrap().matches("BEGIN CERTIFICATE").count(), 1);
    install(&hub, &[&ISSUING[..], &["userServer.accessLog=true"]].concat()).await;
    assert_eq!(contents().await, before, "an upgrade keeps the authority");
    second.stop().await;
    let again = chart::start_with(&hub, COMPONENT, &here).await;
    served(&hub, &again).await;
    assert_eq!(contents().await, before, "a restart keeps the authority");
    for server in [first, again] {
        assert!(!server.log().contains("PRIVATE KEY"), "{}", server.log());
        server.stop().await;
    }
}
