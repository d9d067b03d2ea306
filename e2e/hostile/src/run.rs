//! The program under attack, and an honest tenant beside the attacks.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::json;
use strum::VariantArray as _;
use tokio::process::{Child, Command};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use crate::act::Act;
use crate::client::Client;
use crate::{World, attacks, eventually, token};

/// What the chart requests for the program, in KiB, without a quarter for what the kernel holds of connections.
pub const MEMORY: u64 = 96 << 10;

const HONEST: &str = "honest";
const HOSTILE: &str = "hostile";
/// A namespace whose application reaches hostile clusters.
const EXPOSED: &str = "exposed";
/// The address of the honest tenant.
const ADDRESS: [u8; 4] = [127, 0, 0, 2];
/// What each round of the honest tenant sends to a cluster.
const UPLOAD: usize = 100_000;
/// How often a request is repeated, a second after each 503.
const REPEATS: usize = 10;
/// Longer than a request takes on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// What happened.
#[derive(Debug, Default)]
pub struct Report {
    /// How long the handshakes of the honest tenant took, and its requests with their responses.
    pub handshakes: Latencies,
    pub requests: Latencies,
    /// The requests that it repeated after a 503: the hub, whose thread is one of this machine, had not reviewed its token
    /// within seconds.
    pub repeated: usize,
    /// The rounds in which it did not get what it asked for, followed by the program's log if there are any.
    pub failed: Vec<String>,
    /// The most memory that the program had, in KiB: its own, without the pages of its file.
    pub memory: u64,
    /// Before the attacks.
    pub memory_before: u64,
    /// How many tokens the hub has reviewed.
    pub reviews: usize,
}

/// Durations, which are shown by their number and the greatest of 50 %, 99 %, 99.9 % and all of them.
#[derive(Default)]
pub struct Latencies(pub Vec<Duration>);

impl fmt::Debug for Latencies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let greatest = |of: usize| sorted.get(sorted.len().saturating_sub(1) * of / 1000);
        write!(formatter, "{}: {:?}", sorted.len(), [500, 990, 999, 1000].map(greatest))
    }
}

impl Latencies {
    async fn of<T>(&mut self, work: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let result = work.await;
        self.0.push(begun.elapsed());
        result
    }
}

/// Runs the program with all attacks at once, for this time after its start.
pub async fn run(program: &Path, period: Duration) -> Report {
    let world = World::with_hostile_clusters(&["one", "two"]).await;
    for namespace in [HONEST, HOSTILE, EXPOSED] {
        world.hub.bind(namespace);
    }
    let (child, server) = start(program, &world).await;
    let pid = child.id().unwrap();
    let client = world.client(server, ADDRESS);
    let mut report = Report { memory_before: memory(pid), ..Report::default() };
    let mut watch = client.http1().await.unwrap();
    let mut watch = watch
        .send_request(Client::request("/one/watch", &token(HONEST, 0), None))
        .await
        .unwrap()
        .into_body();
    watch.frame().await.unwrap().unwrap();

    // With a thread of their own, so that they delay the program and not the hub and the honest tenant in this process.
    let attackers = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let from = |last| client.from([127, 0, 0, last]);
    attackers.spawn(attacks::refusals_without_window(from(3), 100));
    attackers.spawn(attacks::pipelined(from(4), 100));
    attackers.spawn(attacks::silent(from(5), 1500));
    attackers.spawn(attacks::tokens(
        client.clone(),
        HONEST,
        (1..20).map(|last| [127, 0, 1, last]).collect(),
    ));
    // From the address of the honest tenant.
    attackers.spawn(attacks::tokens(client.clone(), HOSTILE, vec![ADDRESS]));
    attackers.spawn(attacks::unread_responses(from(6), HOSTILE));
    attackers.spawn(attacks::unread_upgrades(from(7), HOSTILE, 25));
    attackers.spawn(attacks::unread_sockets(from(9), HOSTILE, 20, "large"));
    attackers.spawn(attacks::unread_sockets(from(10), HOSTILE, 20, "heads"));
    for act in Act::VARIANTS {
        attackers.spawn(attacks::hostile_cluster(from(8), EXPOSED, act.cluster()));
    }
    let most = Arc::new(AtomicU64::new(0));
    let measured = Arc::clone(&most);
    attackers.spawn(async move {
        loop {
            measured.fetch_max(memory(pid), Ordering::Relaxed);
            sleep(Duration::from_millis(20)).await;
        }
    });
    let begun = Instant::now();
    for round in 1.. {
        if begun.elapsed() > period {
            break;
        }
        // The second one shares its namespace with requests to hostile clusters.
        for namespace in [HONEST, EXPOSED] {
            if let Err(error) = honest(&client, namespace, round, &mut report).await {
                report.failed.push(format!("round {round} of {namespace}: {error}"));
            }
        }
    }
    report.memory = most.load(Ordering::Relaxed);
    if timeout(Duration::from_millis(1), watch.frame()).await.is_ok() {
        report.failed.push("the watch has ended".to_owned());
    }
    report.reviews = world.hub.reviews();
    if !report.failed.is_empty() {
        let log = std::fs::read_to_string(world.directory.path().join("log")).unwrap_or_default();
        report.failed.extend(log.lines().map(str::to_owned));
    }
    attackers.shutdown_background();
    drop(child);
    report
}

/// Sessions of the program, each a watch on a connection of its own.
pub struct Sessions {
    program: Child,
    watches: Vec<Incoming>,
    _world: World,
}

impl Sessions {
    /// The namespaces that share them, each with fewer than the program allows one.
    const NAMESPACES: usize = 10;

    /// Starts the program and opens as many.
    pub async fn open(program: &Path, count: usize) -> Self {
        let world = World::start(&["one", "two"]).await;
        let namespaces: Vec<_> = (0..Self::NAMESPACES).map(|it| format!("open-{it}")).collect();
        namespaces.iter().map(String::as_str).chain([HONEST]).for_each(|it| world.hub.bind(it));
        let (program, server) = start(program, &world).await;
        let client = world.client(server, ADDRESS);
        let mut watches = Vec::new();
        for namespace in namespaces.iter().cycle().take(count) {
            let mut connection = client.http1().await.unwrap();
            let request = Client::request("/one/watch", &token(namespace, 0), None);
            let response = connection.send_request(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let mut watch = response.into_body();
            watch.frame().await.unwrap().unwrap();
            watches.push(watch);
        }
        Self { program, watches, _world: world }
    }

    /// Fails unless all are open; returns the memory of the program, in KiB.
    pub async fn memory(&mut self) -> u64 {
        for watch in &mut self.watches {
            assert!(timeout(Duration::ZERO, watch.frame()).await.is_err(), "a session has ended");
        }
        memory(self.program.id().unwrap())
    }
}

/// One round: new connections, a token that the program has not seen, and both clusters.
async fn honest(
    client: &Client,
    namespace: &str,
    round: usize,
    report: &mut Report,
) -> Result<(), String> {
    let token = token(namespace, round);
    let connected = report.handshakes.of(client.http2(65_535)).await;
    let (mut http2, _connection) = connected.map_err(|error| error.to_string())?;
    let connected = report.handshakes.of(client.http1()).await;
    let mut http1 = connected.map_err(|error| error.to_string())?;
    for cluster in ["one", "two"] {
        let (url, path) = (format!("https://hub/{cluster}/count"), format!("/{cluster}/version"));
        let upload = async || {
            let body = Full::from(vec![b'x'; UPLOAD]).boxed_unsync();
            http2.send_request(Client::request(&url, &token, Some(body))).await
        };
        request(report, upload, &UPLOAD.to_string()).await?;
        let get = async || {
            http1.ready().await?;
            http1.send_request(Client::request(&path, &token, None)).await
        };
        request(report, get, "/version").await?;
    }
    Ok(())
}

async fn request(
    report: &mut Report,
    mut send: impl AsyncFnMut() -> hyper::Result<Response<Incoming>>,
    expected: &str,
) -> Result<(), String> {
    for _ in 0..=REPEATS {
        let response = async {
            let response = send().await?;
            Ok::<_, hyper::Error>((
                response.status(),
                response.into_body().collect().await?.to_bytes(),
            ))
        };
        let response = report.requests.of(timeout(PATIENCE, response)).await;
        match response.map_err(|_| format!("no response within {PATIENCE:?}"))? {
            Ok((StatusCode::OK, body)) if body == expected => return Ok(()),
            Ok((StatusCode::SERVICE_UNAVAILABLE, _)) => report.repeated += 1,
            Ok((status, body)) => {
                return Err(format!("{status}: {}", String::from_utf8_lossy(&body)));
            }
            Err(error) => return Err(error.to_string()),
        }
        // As Retry-After says.
        sleep(Duration::from_secs(1)).await;
    }
    Err(format!("503 as often as it was repeated, {REPEATS} times"))
}

/// Starts the program; returns when it serves.
async fn start(program: &Path, world: &World) -> (Child, std::net::SocketAddr) {
    let directory = world.directory.path();
    let (kubeconfig, log) = (directory.join("kubeconfig"), directory.join("log"));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "hub",
        "clusters": [{ "name": "hub", "cluster": { "server": format!("http://{}", world.hub.address) } }],
        "users": [{ "name": "hub", "user": {} }],
        "contexts": [{ "name": "hub", "context": { "cluster": "hub", "user": "hub" } }],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let file = std::fs::File::create(&log).unwrap();
    let child = Command::new(program)
        .arg("user-server")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--certificate-directory={}", directory.display()))
        .arg(format!("--proxy-server-host={}", world.proxy.ip()))
        .arg(format!("--proxy-server-port={}", world.proxy.port()))
        .args(
            ["--bind-address", "--metrics-bind-address", "--health-probe-bind-address"]
                .map(|flag| format!("{flag}=127.0.0.1:0")),
        )
        .stdout(Stdio::from(file.try_clone().unwrap()))
        .stderr(Stdio::from(file))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut server = None;
    eventually("the program serves", async || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let address = text
            .lines()
            .find_map(|line| line.split_once("serving applications")?.1.split_once("address="));
        server = address.and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        server.is_some() && text.contains("starting to work")
    })
    .await;
    let server = server.unwrap();
    let client = world.client(server, ADDRESS);
    eventually("it reaches the clusters", async || {
        honest(&client, HONEST, 0, &mut Report::default()).await.is_ok()
    })
    .await;
    (child, server)
}

/// The memory of a process, in KiB.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(u64::MAX)
}
