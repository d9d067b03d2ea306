//! Metrics over TLS: the hub authorizes clients.

use kube::config::AuthInfo;
use kube::{Client, Config};
use local_hub::ocm::{self, Object};
use local_hub::{LocalHub, eventually};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;

use crate::support::chart::{install, start};
use crate::support::world::{self};
use crate::support::{Addons, Hub, SOON, USER, rights};

const READER: &str = "hub-addons-metrics-reader";

/// The response to a client with this token: the metrics, or a status code.
async fn scrape(addons: &Addons, token: Option<&str>) -> Result<String, u16> {
    let log = addons.log();
    let line = log.lines().find(|line| line.contains("serving metrics")).unwrap();
    let address = line.split_once("address=").unwrap().1.split(' ').next().unwrap();
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    // Self-signed, or created for this test.
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info =
        AuthInfo { token: token.map(|token| token.to_owned().into()), ..AuthInfo::default() };
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    match Client::try_from(config).unwrap().request_text(request).await {
        Ok(text) => Ok(text),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

/// The token of a new ServiceAccount.
async fn token(hub: &Hub, namespace: &str, name: &str) -> String {
    hub.service_account(namespace, name).await.unwrap().token().expose().to_owned()
}

#[tokio::test]
async fn metrics_are_for_those_whom_the_hub_lets_get_them() {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), Vec::new()).await;
    install(&hub, &["metrics.secure.enabled=true"]).await;
    world::create(&hub.ocm, [ocm::namespace("monitoring"), ocm::namespace("team")]).await;
    let binding = ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding");
    let group = json!({
        "kind": "Group", "name": "system:serviceaccounts:monitoring", "apiGroup": "rbac.authorization.k8s.io",
    });
    let role =
        json!({ "kind": "ClusterRole", "name": READER, "apiGroup": "rbac.authorization.k8s.io" });
    let binding = Object::new(binding, "clusterrolebindings", None, "scrapers")
        .field("roleRef", role)
        .field("subjects", json!([group]));
    binding.create(&hub.ocm).await.unwrap();
    for component in ["profiles", "credentials"] {
        let addons = start(&hub, component).await;
        let prometheus = token(&hub, "monitoring", "prometheus").await;
        let text = eventually("metrics are served", SOON, async || {
            scrape(&addons, Some(&prometheus)).await.map(Some)
        })
        .await;
        assert!(text.contains("hub_addons_build_info"), "{text}");
        assert_eq!(scrape(&addons, None).await, Err(401));
        assert_eq!(scrape(&addons, Some("a.b.c")).await, Err(401));
        assert_eq!(scrape(&addons, Some(&token(&hub, "team", "app").await)).await, Err(403));

        let log = addons.log();
        assert!(!log.contains(&prometheus) && !log.contains("a.b.c"), "a token is logged");
        addons.stop().await;
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_served_without_a_restart() {
    let hub =
        Hub::start(LocalHub::builder().without_controller_manager(), rights::projector()).await;
    let directory = hub.directory().join("certificate");
    std::fs::create_dir(&directory).unwrap();
    let renew = || {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(directory.join("tls.crt"), cert.pem()).unwrap();
        std::fs::write(directory.join("tls.key"), signing_key.serialize_pem()).unwrap();
        cert.der().to_vec()
    };
    let first = renew();
    let certificates = format!("--metrics-certificate={}", directory.display());
    let gates = "--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false";
    let addons = Addons::launch(&hub, "hub-addons", USER, &[gates, &certificates]).await;
    // Without a TLS certificate that the client trusts, it would not reach authentication.
    let log = addons.log();
    let line = log.lines().find(|line| line.contains("serving metrics")).unwrap();
    let address = line.split_once("address=").unwrap().1.split(' ').next().unwrap().to_owned();
    let trusting = async |anchor: &[u8]| {
        let mut config = Config::new(format!("https://{address}").parse().unwrap());
        config.root_cert = Some(vec![anchor.to_vec()]);
        config.default_retry = false;
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        match Client::try_from(config).unwrap().request_text(request).await {
            Err(kube::Error::Api(status)) => Ok(status.code),
            other => Err(format!("{other:?}")),
        }
    };
    assert_eq!(trusting(&first).await, Ok(401));
    let second = renew();
    assert_eq!(trusting(&second).await, Ok(401));
    assert!(trusting(&first).await.is_err(), "the first is no longer served");
    addons.stop().await;
}
