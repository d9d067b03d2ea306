//! Metrics over TLS: the hub authorizes clients.

use kube::config::AuthInfo;
use kube::{Client, Config};
use local_hub::eventually;
use local_hub::ocm;

use crate::support::chart::{install, start};
use crate::support::world;
use crate::support::{Addons, Hub, SOON};

const READER: &str = "hub-addons-metrics-reader";

/// The response to a client with this token: the metrics, or a status code.
async fn scrape(addons: &Addons, token: Option<&str>) -> Result<String, u16> {
    let log = addons.log();
    let line = log.lines().find(|line| line.contains("serving metrics")).unwrap();
    let address = line.split_once("address=").unwrap().1.split(' ').next().unwrap();
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    // Self-signed.
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
    let hub = Hub::plain().await;
    install(&hub, &["metrics.secure.enabled=true"]).await;
    world::create(&hub.ocm, [ocm::namespace("monitoring"), ocm::namespace("team")]).await;
    let group = world::subject("Group", "system:serviceaccounts:monitoring");
    let binding = world::binding(None, "scrapers", ("ClusterRole", READER), group);
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
