//! The user server on a real hub, with upstream's own proxy server and clusters that a test plays: the proxy server freezes,
//! permissions are lost, clusters share a CA.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hostile::Cluster;
use local_hub::field::HOME;
use local_hub::{LocalHub, Relay, Running, ServingAuthority, eventually, ocm};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::own_identity::raw::Raw;
use super::own_identity::{ACCOUNT, AUDIENCE, HOUR, permissions, start};
use crate::support::command::succeeded;
use crate::support::field::{free_port, program, run};
use crate::support::{Hub, SOON, world};

const CLUSTERS: [&str; 2] = ["one", "two"];

/// A hub, the proxy server, clusters that have registered there, and the user server.
struct Stage {
    // Ends before the hub.
    server: Running,
    _proxy: Running,
    address: SocketAddr,
    authority: ServingAuthority,
    relay: Relay,
    /// Of an application to which all clusters are granted.
    token: String,
    _agents: JoinSet<()>,
    hub: Hub,
    /// The ClusterRoleBinding of the user server.
    permission: String,
}

impl Stage {
    /// With clusters that share a CA with each other, or do not, and with more flags of the user server.
    async fn start(is_shared: bool, more: &[&str]) -> Self {
        let hub = Hub::with_rights(LocalHub::builder().start().await.unwrap(), Vec::new()).await;
        let access = hub.service_account(HOME, "user-server").await.unwrap();
        let [everywhere, in_home] = permissions();
        let permission = hub.grant_service_account(HOME, "user-server", everywhere).await.unwrap();
        access.grant_in_namespace(in_home).await.unwrap();
        let application = hub.service_account("team", "application").await.unwrap();
        let token = application.token_for(AUDIENCE, HOUR).await.unwrap().expose().to_owned();
        world::create(&hub.ocm, [ocm::cluster_set("blue"), ocm::bound("team", "blue")]).await;

        let authority = ServingAuthority::new("hub").unwrap();
        let serving = authority.issue(["127.0.0.1"]).unwrap();
        let certificates = hub.directory().join("user-server");
        std::fs::create_dir(&certificates).unwrap();
        let [crt, key] = ["tls.crt", "tls.key"].map(|name| certificates.join(name));
        std::fs::write(&crt, serving.tls_crt()).unwrap();
        std::fs::write(&key, serving.tls_key()).unwrap();
        let [clients, agents, admin, health] = [(); 4].map(|()| free_port());
        let mut arguments = vec![
            "--mode=grpc".to_owned(),
            "--uds-name=".to_owned(),
            "--proxy-strategies=destHost".to_owned(),
        ];
        for (kind, port) in
            [("server", clients), ("agent", agents), ("admin", admin), ("health", health)]
        {
            arguments.extend([
                format!("--{kind}-port={port}"),
                format!("--{kind}-bind-address=127.0.0.1"),
            ]);
        }
        for kind in ["server", "cluster"] {
            arguments.push(format!("--{kind}-cert={}", crt.display()));
            arguments.push(format!("--{kind}-key={}", key.display()));
        }
        // A client is trusted by its own certificate, which may be used for anything.
        let client = rcgen::generate_simple_self_signed(vec!["client".to_owned()]).unwrap();
        let (client, client_key) = (client.cert.pem(), client.signing_key.serialize_pem());
        let trusted = hub.directory().join("client.crt");
        std::fs::write(&trusted, &client).unwrap();
        arguments.push(format!("--server-ca-cert={}", trusted.display()));
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let proxy =
            run(&hub, "proxy-server", &program("proxy-server").await, &[], &arguments).await;
        secret(&hub, HOME, "proxy-server-ca", &json!({ "ca.crt": authority.ca_pem() })).await;
        let client = json!({ "tls.crt": client, "tls.key": client_key });
        secret(&hub, HOME, "proxy-client", &client).await;

        let shared = Cluster::certificate();
        let (mut running, proxy_address) =
            (JoinSet::new(), SocketAddr::from(([127, 0, 0, 1], agents)));
        for name in CLUSTERS {
            ocm::ManagedCluster::named(name).in_set("blue").create(&hub.ocm).await.unwrap();
            world::ensure_namespace(&hub.ocm, name).await;
            let certificate = if is_shared { shared.clone() } else { Cluster::certificate() };
            let reported = json!({ "token": "token", "ca.crt": certificate.pem });
            secret(&hub, name, ACCOUNT, &reported).await;
            let cluster = Arc::new(Cluster::honest(name, certificate));
            let authority = authority.ca_pem();
            running.spawn(async move {
                loop {
                    // It ends when the proxy server has not started yet, and when its connection ends.
                    let _ =
                        Arc::clone(&cluster).register(proxy_address, authority.as_bytes()).await;
                    sleep(Duration::from_millis(100)).await;
                }
            });
        }
        let relay = Relay::before(SocketAddr::from(([127, 0, 0, 1], clients))).await.unwrap();
        let (server, address) =
            start(&hub, access.kubeconfig(), &certificates, relay.address(), more).await;
        Self {
            server,
            _proxy: proxy,
            address,
            authority,
            relay,
            token,
            _agents: running,
            hub,
            permission,
        }
    }

    /// The response of a cluster, and whether it is what an honest one responds.
    async fn asks(&self, cluster: &str) -> (String, bool) {
        let raw = Raw::connect(self.address, &self.authority.ca_pem()).await;
        let response = raw.asks(&format!("{cluster}/version"), &self.token, "").await;
        let is_honest = response.starts_with("HTTP/1.1 200 ") && response.ends_with("/version");
        (response, is_honest)
    }

    /// Waits until a cluster responds.
    async fn reaches(&self, cluster: &str) {
        eventually(&format!("{cluster} responds"), SOON, async || match self.asks(cluster).await {
            (_, true) => Ok(()),
            (response, false) => Err(response),
        })
        .await;
    }

    /// Waits until a request to a cluster is refused with a 503 that says this.
    async fn refuses(&self, cluster: &str, why: &str, within: Duration) {
        eventually(&format!("a refusal: {why}"), within, async || match self.asks(cluster).await {
            (response, _) if response.starts_with("HTTP/1.1 503 ") && response.contains(why) => {
                Ok(())
            }
            (response, _) => Err(response),
        })
        .await;
    }
}

async fn secret(hub: &Hub, namespace: &str, name: &str, data: &Value) {
    let secret = world::object("Secret", Some(namespace), name);
    secret.field("stringData", data.clone()).create(&hub.ocm).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_succeed_again_soon_after_the_proxy_server_has_frozen() {
    let stage = Box::pin(Stage::start(false, &[])).await;
    stage.reaches(CLUSTERS[0]).await;
    // As if the node of the proxy server had failed and another replica had taken over.
    stage.relay.freeze();
    stage.reaches(CLUSTERS[0]).await;
}

/// The simulation shows that what is open ends after five more minutes.
#[tokio::test(flavor = "multi_thread")]
async fn new_requests_get_503_while_grants_or_tokens_could_not_be_read_for_a_minute_and_what_is_open_stays()
 {
    let [other, denied] = CLUSTERS;
    let stage = Box::pin(Stage::start(false, &[])).await;
    let hub = &stage.hub;
    stage.reaches(other).await;
    let open = Raw::connect(stage.address, &stage.authority.ca_pem()).await;
    let mut open = open.starts(&format!("{denied}/large"), &stage.token).await.into_stream();
    open.read_exact(&mut [0; 100]).await.unwrap();

    let [[fleet, reviews, secrets], _] = permissions().map(|rules| {
        let mut rules = rules.into_iter();
        [(); 3].map(|()| rules.next().unwrap_or_default())
    });
    let losing = async {
        hub.grant_service_account(HOME, "user-server", vec![reviews]).await.unwrap();
        let remove = ["delete", "clusterrolebinding", &stage.permission];
        succeeded(hub.kubectl(&remove).await.unwrap());
        // Ends the open watches.
        hub.stop_api_server().await.unwrap();
        hub.start_api_server().await.unwrap();
        stage.refuses(other, "cannot be decided at the moment", Duration::from_mins(4)).await;
        hub.grant_service_account(HOME, "user-server", vec![fleet]).await.unwrap();
        stage.refuses(other, "can no longer read its secrets (accounts)", SOON).await;
    };
    let mut part = vec![0; 1 << 20];
    // A client that reads nothing for 90 seconds counts as gone.
    let reading = async {
        loop {
            open.read_exact(&mut part).await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = losing => {}
        () = reading => {}
    }
    // More than the buffers in between can contain.
    for _ in 0..64 {
        open.read_exact(&mut part).await.unwrap();
    }
    hub.grant_service_account(HOME, "user-server", vec![secrets]).await.unwrap();
    stage.reaches(other).await;

    // An administrator denies the cluster, with which all of this ends.
    let cluster = ocm::ManagedCluster::named(denied).in_set("blue");
    world::merge(&hub.ocm, &cluster.into(), &json!({ "spec": { "hubAcceptsClient": false } }))
        .await;
    let ended = async { while open.read_exact(&mut part).await.is_ok() {} };
    tokio::time::timeout(SOON, ended).await.unwrap();
    let (response, _) = stage.asks(denied).await;
    assert!(response.starts_with("HTTP/1.1 403 "), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_with_a_ca_in_common_are_reported_and_refused_where_that_is_wanted() {
    let stage = Box::pin(Stage::start(true, &[])).await;
    for cluster in CLUSTERS {
        stage.reaches(cluster).await;
        let log = stage.server.log();
        let is_reported = |line: &str| {
            line.contains("SharedAuthority") && line.contains(&format!("ManagedCluster {cluster}"))
        };
        assert!(log.lines().any(is_reported), "{log}");
    }
    drop(stage);
    let stage = Box::pin(Stage::start(true, &["--refuse-shared-authorities"])).await;
    for cluster in CLUSTERS {
        let (response, _) = stage.asks(cluster).await;
        assert!(response.contains("has a CA in common"), "{cluster}: {response}");
    }
}
