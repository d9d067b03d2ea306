//! What clients that read nothing, and clusters that read nothing, take from others: the user server on loopback, between
//! a scripted hub and scripted clusters.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hostile::attacks::upgrade;
use hostile::{Client, SOON, World, endless, eventually, token};
use http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use hub_core::own_identity::ACCOUNT;
use hub_process::process::{Process, Setup};
use hub_runtime::observe::metrics::Metrics;
use hub_runtime::observe::serving_certificate::ServingCertificate;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use user_server::{ProxyServerSettings, UserServer, UserServerMetrics, UserServerSettings};

const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];
const WINDOW: u32 = 65_535;
const HONEST: [u8; 4] = [127, 0, 0, 2];
const HOSTILE: [u8; 4] = [127, 0, 0, 3];
const OPEN: &str = "hub_addons_user_server_open{kind=\"request\"}";
/// The metric of the requests that were ended for a reason.
fn cut(reason: &str) -> String {
    format!("hub_addons_user_server_cut_total{{reason=\"{reason}\"}}")
}

struct Scene {
    world: World,
    server: SocketAddr,
    metrics: Metrics,
}

impl Scene {
    /// The user server, which grants both clusters to the namespace `team`.
    async fn start(idle_connections: usize) -> Self {
        let world = World::start(&["one", "two"]).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let directory: PathBuf = world.directory.path().to_owned();
        let certificate = Arc::new(ServingCertificate::new(Some(directory), PROTOCOLS).unwrap());
        let hub = format!("http://{}", world.hub.address).parse().unwrap();
        let client = kube::Client::try_from(kube::Config::new(hub)).unwrap();
        let (metrics, of_server) = Metrics::with("0", UserServerMetrics::register);
        let settings = UserServerSettings {
            audience: "hub-addons".to_owned(),
            account: ACCOUNT.into(),
            protected: "".parse().unwrap(),
            requests_per_namespace: 500,
            idle_connections,
            access_log: false,
            refuse_shared_authorities: true,
            proxy_server: ProxyServerSettings {
                host: world.proxy.ip().to_string(),
                port: world.proxy.port(),
                namespace: "open-cluster-management-addon".into(),
                client_secret: "proxy-client".to_owned(),
                ca_secret: "proxy-server-ca".to_owned(),
            },
            metrics: of_server,
        };
        let setup = Setup { metrics: metrics.clone(), is_read_only: true, ..Setup::new(client) };
        let process = Process::new(setup).add(Some(settings), |shared, settings| {
            UserServer::new(shared, settings, listener, certificate)
        });
        tokio::spawn(process.run(CancellationToken::new()));
        let scene = Self { world, server, metrics };
        scene.grant("team").await;
        scene
    }

    /// Grants both clusters to a namespace, until the user server knows it.
    async fn grant(&self, namespace: &str) {
        self.world.hub.bind(namespace);
        let is_granted = async || self.get_from(namespace, "one").await == Some(StatusCode::OK);
        eventually("it is granted", is_granted).await;
    }

    fn client(&self, from: [u8; 4]) -> Client {
        self.world.client(self.server, from)
    }

    /// The status of an honest request on a new connection.
    async fn get(&self, cluster: &str) -> Option<StatusCode> {
        self.get_from("team", cluster).await
    }

    async fn get_from(&self, namespace: &str, cluster: &str) -> Option<StatusCode> {
        let (mut sender, _connection) = self.client(HONEST).http2(WINDOW).await.ok()?;
        let request =
            Client::request(&format!("https://hub/{cluster}/version"), &token(namespace, 0), None);
        Some(sender.send_request(request).await.ok()?.status())
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
        line.parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_that_are_not_read_keep_no_connection_open() {
    // Two for each peer.
    let scene = Scene::start(8).await;
    let client = scene.client(HOSTILE);
    let mut open = Vec::new();
    for _ in 0..20 {
        let (sender, connection) = client.http2(0).await.unwrap();
        let mut refusals = Vec::new();
        for _ in 0..100 {
            // The oldest connections are being closed meanwhile.
            let request = Client::request("https://hub/one/version", "", None);
            let Ok(response) = sender.clone().send_request(request).await else { break };
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
            refusals.push(response);
        }
        open.push((connection, refusals));
    }
    eventually("all but the newest are closed", async || {
        open.iter().filter(|(connection, _)| !connection.is_finished()).count() <= 2
    })
    .await;

    let mut open = Vec::new();
    for _ in 0..20 {
        let mut connection = client.raw().await.unwrap();
        let requests = "GET /one/version HTTP/1.1\r\nHost: hub\r\n\r\n".repeat(1000);
        open.push(tokio::spawn(async move {
            // It ends when the connection does: the responses are not read.
            while connection.write_all(requests.as_bytes()).await.is_ok() {}
        }));
    }
    eventually("all but the newest are closed", async || {
        open.iter().filter(|connection| !connection.is_finished()).count() <= 2
    })
    .await;
    assert_eq!(scene.get("one").await, Some(StatusCode::OK));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_grant_ends_both_directions_of_a_client_that_reads_nothing() {
    let scene = Scene::start(100).await;
    let client = scene.client(HOSTILE);
    let (mut http2, _connection) = client.http2(WINDOW).await.unwrap();
    let mut http1 = client.http1().await.unwrap();
    let request = |url| Client::request(url, &token("team", 0), Some(endless()));
    let unread = (
        http2.send_request(request("https://hub/one/stuck")).await.unwrap(),
        http2.send_request(request("https://hub/one/sink")).await.unwrap(),
        http1.send_request(request("/one/sink")).await.unwrap(),
    );
    let seen = &scene.world.cluster("one").seen;
    eventually("the uploads reach the cluster", async || seen.uploaded() > 1 << 20).await;
    for of_writers in ["_leader", "_queue_depth{", "_conflicts_total{"] {
        assert!(!scene.metrics.text().contains(of_writers), "{of_writers}");
    }
    assert_eq!(scene.metric(OPEN), 3);
    scene.world.hub.unbind("team");
    eventually("the cluster sees the end of all four bodies", async || seen.ended() == 2).await;
    eventually("and of a request that it does not read", async || seen.stuck_ended() == 1).await;
    eventually("nothing is left", async || scene.metric(OPEN) == 0).await;
    assert_eq!(scene.metric(&cut("grant_ended")), 3);
    assert_eq!(scene.get("one").await, Some(StatusCode::FORBIDDEN));
    drop(unread);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_response_says_that_its_grant_has_ended() {
    let scene = Scene::start(100).await;
    let (mut http2, _connection) = scene.client(HONEST).http2(WINDOW).await.unwrap();
    let mut http1 = scene.client(HONEST).http1().await.unwrap();
    let request = |url| Client::request(url, &token("team", 0), None);
    let waiting = tokio::spawn(async move {
        tokio::join!(
            http2.send_request(request("https://hub/one/hang")),
            http1.send_request(request("/one/hang")),
        )
    });
    eventually("both are open", async || scene.metric(OPEN) == 2).await;
    scene.world.hub.unbind("team");
    let (of_http2, of_http1) = timeout(SOON, waiting).await.unwrap().unwrap();
    for response in [of_http2.unwrap(), of_http1.unwrap()] {
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&text).contains("is no longer granted"), "{text:?}");
    }
    assert_eq!(scene.metric("hub_addons_user_server_refused_total{reason=\"grant_ended\"}"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_responds_to_nothing_keeps_no_request_that_was_given_up() {
    let scene = Scene::start(100).await;
    let (http2, _connection) = scene.client(HONEST).http2(WINDOW).await.unwrap();
    let given_up = async |count: u64| {
        for _ in 0..count {
            let request = Client::request("https://hub/one/hang", &token("team", 0), None);
            let waiting = tokio::spawn(http2.clone().send_request(request));
            eventually("it is open", async || scene.metric(OPEN) == 1).await;
            waiting.abort();
            eventually("it is given up", async || scene.metric(OPEN) == 0).await;
        }
    };
    let mut watch = http2.clone();
    let request = Client::request("https://hub/two/watch", &token("team", 0), None);
    let mut other = watch.send_request(request).await.unwrap().into_body();
    timeout(SOON, other.frame()).await.unwrap().unwrap().unwrap();
    drop(other);
    eventually("the watch is over", async || scene.metric(OPEN) == 0).await;
    let connections = "hub_addons_user_server_tunnels";
    assert_eq!(scene.metric(connections), 2);
    given_up(33).await;
    eventually("the connection has ended", async || scene.metric(connections) == 1).await;
    assert_eq!(scene.get("one").await, Some(StatusCode::OK), "another one is opened");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_reads_nothing_stalls_no_upload_to_another_on_the_same_connection() {
    let scene = Scene::start(100).await;
    let (http2, _connection) = scene.client(HONEST).http2(WINDOW).await.unwrap();
    let send = async |url: &str, body| {
        let request = Client::request(url, &token("team", 0), Some(body));
        timeout(SOON, http2.clone().send_request(request)).await.unwrap().unwrap()
    };
    let mut stuck = Vec::new();
    for _ in 0..50 {
        stuck.push(send("https://hub/one/stuck", endless()).await);
    }
    let upload = Full::from(vec![b'x'; 1 << 20]).boxed_unsync();
    let counted = send("https://hub/two/count", upload).await.into_body().collect();
    let counted = timeout(SOON, counted).await.unwrap().unwrap().to_bytes();
    assert_eq!(counted, (1 << 20).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_a_cluster_ends_has_streams_of_one_namespace_only() {
    let scene = Scene::start(100).await;
    scene.grant("hostile").await;
    let (mut http2, _connection) = scene.client(HONEST).http2(WINDOW).await.unwrap();
    let mut send = async |namespace, path: &str| {
        let request =
            Client::request(&format!("https://hub/one/{path}"), &token(namespace, 0), None);
        timeout(SOON, http2.send_request(request)).await.unwrap().unwrap()
    };
    let mut watches = Vec::new();
    for namespace in ["team", "hostile"] {
        let mut watch = send(namespace, "watch").await.into_body();
        timeout(SOON, watch.frame()).await.unwrap().unwrap().unwrap();
        watches.push(watch);
    }
    assert_eq!(send("hostile", "end").await.status(), StatusCode::BAD_GATEWAY);
    let end = timeout(SOON, watches[1].frame()).await.unwrap();
    assert!(end.is_none_or(|frame| frame.is_err()), "the connection has not ended");
    assert_eq!(send("team", "version").await.status(), StatusCode::OK);
    let other = timeout(Duration::from_millis(1), watches[0].frame()).await;
    assert!(other.is_err(), "another namespace's watch has ended: {other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_a_cluster_does_not_read_delay_no_later_request_when_their_clients_have_left()
{
    let scene = Scene::start(100).await;
    scene.grant("hostile").await;
    // As many as the cluster accepts on a connection, a few at a time: what is open holds more memory than what has ended.
    for _ in 0..12 {
        let (sender, connection) = scene.client(HOSTILE).http2(WINDOW).await.unwrap();
        let mut stuck = Vec::new();
        for _ in 0..25 {
            let request =
                Client::request("https://hub/one/stuck", &token("hostile", 0), Some(endless()));
            stuck.push(timeout(SOON, sender.clone().send_request(request)).await.unwrap());
        }
        connection.abort();
    }
    for _ in 0..20 {
        let got = timeout(SOON, scene.get("one")).await.unwrap();
        assert_eq!(got, Some(StatusCode::OK));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_data_of_one_cluster_end_no_upgraded_connection_to_another() {
    let scene = Scene::start(100).await;
    let token = token("team", 0);
    let (mut flood, mut echo) =
        (scene.client(HONEST).http1().await.unwrap(), scene.client(HONEST).http1().await.unwrap());
    let unread = upgrade(&mut flood, "/one/flood", &token).await.unwrap();
    let mut echo = TokioIo::new(upgrade(&mut echo, "/two/echo", &token).await.unwrap());
    let mut echoes = async || {
        let mut received = [0; 10_000];
        echo.write_all(&[b'x'; 10_000]).await.unwrap();
        echo.read_exact(&mut received).await.unwrap();
    };
    timeout(SOON, echoes()).await.unwrap();
    eventually("it ends", async || scene.world.cluster("one").seen.floods_ended() == 1).await;
    timeout(SOON, echoes()).await.unwrap();
    drop(unread);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_headers_are_refused_and_one_cluster_leaves_requests_of_a_namespace_to_others() {
    let scene = Scene::start(100).await;
    let (http2, _connection) = scene.client(HONEST).http2(WINDOW).await.unwrap();
    let mut request = Client::request("https://hub/one/version", &token("team", 0), None);
    request.headers_mut().insert("large", "x".repeat(17 << 10).parse().unwrap());
    let refused = timeout(SOON, http2.clone().send_request(request)).await.unwrap().unwrap();
    assert_eq!(refused.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let (mut clients, mut open, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..300 {
        if number % 50 == 0 {
            clients.push(scene.client(HONEST).http2(WINDOW).await.unwrap());
        }
        let mut sender = clients.last().unwrap().0.clone();
        let request = Client::request("https://hub/one/watch", &token("team", 0), None);
        let response = timeout(SOON, sender.send_request(request)).await.unwrap().unwrap();
        statuses.push(response.status());
        open.push(response);
    }
    assert!(statuses[..250].iter().all(|status| *status == StatusCode::OK));
    assert!(statuses[250..].iter().all(|status| *status == StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(scene.get("two").await, Some(StatusCode::OK));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_namespace_leaves_unread_is_limited_with_the_windows_behind_it() {
    let scene = Scene::start(100).await;
    scene.grant("hostile").await;
    let token = token("hostile", 0);
    let mut open = Vec::new();
    for cluster in ["one", "one", "two", "two"] {
        let (sender, connection) = scene.client(HOSTILE).http2(0).await.unwrap();
        let mut responses = Vec::new();
        for _ in 0..100 {
            let request = Client::request(&format!("https://hub/{cluster}/large"), &token, None);
            responses
                .push(timeout(SOON, sender.clone().send_request(request)).await.unwrap().unwrap());
        }
        open.push((connection, responses));
    }
    // 6 MiB, in which each has a window of 64 KiB and one part.
    let counts = || (scene.metric(OPEN), scene.metric(&cut("limit")));
    eventually("some end", async || matches!(counts(), (open @ ..=96, cut) if open + cut == 400))
        .await;
    assert!(scene.metric(OPEN) > 40);
    assert_eq!(scene.get("one").await, Some(StatusCode::OK));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_with_the_name_of_the_account_counts_where_its_namespace_is_that_of_a_cluster() {
    let scene = Scene::start(100).await;
    let watches = scene.world.hub.watches();
    let ca = &scene.world.cluster("one").certificate.pem;
    scene.world.hub.report_account("other", ca);
    let (mut http2, _connection) = scene.client(HONEST).http2(WINDOW).await.unwrap();
    let request = Client::request("https://hub/one/watch", &token("team", 0), None);
    let mut watch = timeout(SOON, http2.send_request(request)).await.unwrap().unwrap().into_body();
    timeout(SOON, watch.frame()).await.unwrap().unwrap().unwrap();
    // Later events of the same watch have arrived, so the first one has.
    scene.world.hub.report_account("two", ca);
    eventually("two clusters have a CA in common", async || {
        scene.get("one").await == Some(StatusCode::BAD_GATEWAY)
    })
    .await;
    while let Some(Ok(_)) = timeout(SOON, watch.frame()).await.expect("what was open ends") {}
    scene.world.hub.report_account("two", &scene.world.cluster("two").certificate.pem);
    eventually("no other cluster has it", async || scene.get("one").await == Some(StatusCode::OK))
        .await;
    scene.world.hub.accept_cluster("other");
    eventually("another cluster has it", async || {
        scene.get("one").await == Some(StatusCode::BAD_GATEWAY)
    })
    .await;
    eventually("its watch has ended", async || scene.world.hub.watches() == watches).await;
}
