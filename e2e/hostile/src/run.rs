//! The program under attack, and an honest tenant beside the attacks.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::{World, attacks, eventually, token};

const HONEST: &str = "honest";
const HOSTILE: &str = "hostile";
/// The address of the honest tenant.
const ADDRESS: [u8; 4] = [127, 0, 0, 2];
/// What each round of the honest tenant sends to a cluster.
const UPLOAD: usize = 100_000;

/// What happened.
#[derive(Debug, Default)]
pub struct Report {
    /// The requests of the honest tenant that had their response.
    pub honest: usize,
    /// Those that had not.
    pub failed: Vec<String>,
    /// The longest of them.
    pub longest: Duration,
    /// The most memory that the program had, in KiB: its own, without the pages of its file.
    pub memory: u64,
    /// Before the attacks.
    pub memory_before: u64,
    /// How many tokens the hub has reviewed.
    pub reviews: usize,
}

/// Runs the program with all attacks at once, for this time after its start.
pub async fn run(program: &Path, period: Duration) -> Report {
    let world = World::start(&["one", "two"]).await;
    for namespace in [HONEST, HOSTILE] {
        world.hub.bind(namespace);
    }
    let (child, server) = start(program, &world).await;
    let pid = child.id().unwrap();
    let client = world.client(server, ADDRESS);
    let mut report = Report { memory_before: memory(pid), ..Report::default() };
    let mut watch = client.http1().await.unwrap();
    let mut watch =
        watch.send_request(Client::request("/one/watch", &token(HONEST, 0), None)).await.unwrap().into_body();
    watch.frame().await.unwrap().unwrap();

    let mut hostile = JoinSet::new();
    let from = |last| client.from([127, 0, 0, last]);
    hostile.spawn(attacks::refusals_without_window(from(3), 100));
    hostile.spawn(attacks::pipelined(from(4), 100));
    hostile.spawn(attacks::silent(from(5), 1500));
    hostile.spawn(attacks::tokens(client.clone(), HONEST, (1..20).map(|last| [127, 0, 1, last]).collect()));
    // From the address of the honest tenant.
    hostile.spawn(attacks::tokens(client.clone(), HOSTILE, vec![ADDRESS]));
    hostile.spawn(attacks::unread_responses(from(6), HOSTILE, 250));
    hostile.spawn(attacks::unread_upgrades(from(7), HOSTILE, 25));
    let begun = Instant::now();
    let mut round = 0;
    while begun.elapsed() < period {
        round += 1;
        let before = Instant::now();
        match honest(&client, round).await {
            Ok(requests) => report.honest += requests,
            Err(error) => report.failed.push(format!("round {round}: {error}")),
        }
        report.longest = report.longest.max(before.elapsed());
        report.memory = report.memory.max(memory(pid));
    }
    let is_open = tokio::time::timeout(Duration::from_millis(1), watch.frame()).await.is_err();
    if !is_open {
        report.failed.push("the watch has ended".to_owned());
    }
    report.reviews = world.hub.reviews();
    hostile.shutdown().await;
    drop(child);
    report
}

/// One round: new connections, a token that the program has not seen, and both clusters.
async fn honest(client: &Client, round: usize) -> Result<usize, String> {
    let token = token(HONEST, round);
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (mut http2, _connection) = client.http2(65_535).await.map_err(|error| text(&error))?;
    let mut http1 = client.http1().await.map_err(|error| text(&error))?;
    for cluster in ["one", "two"] {
        let body = Full::from(vec![b'x'; UPLOAD]).boxed_unsync();
        let upload = Client::request(&format!("https://hub/{cluster}/count"), &token, Some(body));
        let sent = http2.send_request(upload).await.map_err(|error| text(&error))?;
        let (status, body) = (sent.status(), sent.into_body().collect().await.map_err(|error| text(&error))?);
        if body.to_bytes() != UPLOAD.to_string() {
            return Err(format!("an upload to {cluster}: {status}"));
        }
        let get = Client::request(&format!("/{cluster}/version"), &token, None);
        http1.ready().await.map_err(|error| text(&error))?;
        let sent = http1.send_request(get).await.map_err(|error| text(&error))?;
        let (status, body) = (sent.status(), sent.into_body().collect().await.map_err(|error| text(&error))?);
        if body.to_bytes() != "/version" {
            return Err(format!("a request to {cluster}: {status}"));
        }
    }
    Ok(4)
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
        let address =
            text.lines().find_map(|line| line.split_once("serving applications")?.1.split_once("address="));
        server = address.and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        server.is_some() && text.contains("starting to work")
    })
    .await;
    let server = server.unwrap();
    let client = world.client(server, ADDRESS);
    eventually("it reaches the clusters", async || honest(&client, 0).await.is_ok()).await;
    (child, server)
}

/// The memory of a process, in KiB.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(u64::MAX)
}
