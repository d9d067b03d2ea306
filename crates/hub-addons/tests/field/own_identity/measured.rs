//! The user server beside cluster-proxy's own, on the same tunnel. The figures are for information: no test depends on a
//! time. `HUB_ADDONS_PROGRAM` names a release build to measure.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::ByteString;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{Scene, sees};
use crate::support::chain::CLUSTERS;
use crate::support::{SOON, pods, world};

/// How long each number of clients sends requests.
const PERIOD: Duration = Duration::from_secs(5);
const CLIENTS: [usize; 3] = [1, 32, 256];
/// Open watches, on connections that they share.
const WATCHES: usize = 10_000;
const WATCHES_OF_CONNECTION: usize = 100;

/// A server, and how a client reaches a cluster through it.
struct Target {
    address: SocketAddr,
    name: ServerName<'static>,
    config: ClientConfig,
    token: String,
}

impl Target {
    fn new(address: SocketAddr, stanza: &Value, token: String) -> Self {
        let data: ByteString = serde_json::from_value(stanza["certificate-authority-data"].clone()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&data.0).flatten());
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let server: http::Uri = stanza["server"].as_str().unwrap().parse().unwrap();
        let name = ServerName::try_from(server.host().unwrap().to_owned()).unwrap();
        Self { address, name, config, token }
    }

    async fn connect(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        let mut config = self.config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        TlsConnector::from(Arc::new(config)).connect(self.name.clone(), stream).await.unwrap()
    }

    fn request(&self, path: &str) -> Request<Empty<Bytes>> {
        let request = Request::get(path).header("host", "hub");
        request.header("authorization", format!("Bearer {}", self.token)).body(Empty::new()).unwrap()
    }

    /// Successful requests of one client.
    async fn requests(&self) -> usize {
        let stream = TokioIo::new(self.connect(b"http/1.1").await);
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < PERIOD {
            let Ok(response) = sender.send_request(self.request("/one/version")).await else { break };
            let status = response.status();
            response.into_body().collect().await.unwrap();
            assert_eq!(status, StatusCode::OK);
            count += 1;
        }
        count
    }

    /// Requests in a second, by this number of clients.
    async fn rate(&self, clients: usize) -> usize {
        let counts = join_all((0..clients).map(|_| self.requests())).await;
        counts.iter().sum::<usize>() / usize::try_from(PERIOD.as_secs()).unwrap()
    }
}

/// The processor time that a process has used.
fn processor_time(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    // utime and stime, in hundredths of a second.
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// The resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// The connections of a process to a port.
fn connections(pid: u32, port: u16) -> usize {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let of_port = format!(":{port:04X}");
    let inodes: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(2).is_some_and(|remote| remote.ends_with(&of_port)))
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = descriptors.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok());
    targets.filter(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str())).count()
}

#[tokio::test]
#[allow(clippy::print_stdout, reason = "figures for information, not conditions")]
async fn requests_and_watches_beside_cluster_proxys_user_server() {
    if !pods::can_run("the user server beside cluster-proxy's own, in pods").await {
        return;
    }
    let scene =
        Box::pin(Scene::start(&["--max-requests-per-namespace=20000", "--max-idle-connections=2000"])).await;
    let stage = &scene.tunnel.stage;
    let copies = stage.bound_application("measured-copies", &CLUSTERS).await;
    let application = scene.application("measured").await;
    let binding = stage.bind("measured", &CLUSTERS).await;
    sees(&stage.ocm, "measured", &CLUSTERS).await;
    copies.reaches("one").await;
    let theirs = scene.tunnel.token(&copies, "one").await;
    let theirs = Target::new(scene.tunnel.proxy.address(), &copies.stanza("one").await, theirs);
    let ours = Target::new(scene.address, &application.stanza("one"), application.token.clone());
    let pid = scene.server.pid();
    for clients in CLIENTS {
        let before = processor_time(pid);
        let rate = ours.rate(clients).await;
        let used = processor_time(pid).saturating_sub(before) / u32::try_from(rate * 5).unwrap().max(1);
        let other = theirs.rate(clients).await;
        println!(
            "{clients} clients: {rate} requests a second ({used:?} of processor time each), cluster-proxy's {other}"
        );
    }

    let before = resident(pid);
    let (mut bodies, mut senders, mut begins) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..WATCHES / WATCHES_OF_CONNECTION {
        let stream = TokioIo::new(ours.connect(b"h2").await);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..WATCHES_OF_CONNECTION {
            let path = format!(
                "https://hub/one/api/v1/namespaces?watch=true&resourceVersion=0&token={}",
                bodies.len()
            );
            let begun = Instant::now();
            let response = sender.send_request(ours.request(&path)).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let mut body = response.into_body();
            body.frame().await.unwrap().unwrap();
            begins.push(begun.elapsed());
            bodies.push(body);
        }
        senders.push(sender);
    }
    begins.sort_unstable();
    println!(
        "{WATCHES} watches: {before} KiB of memory before, {} with them; the median of the first bytes after {:?}; {} \
         connections to the proxy server",
        resident(pid),
        begins[WATCHES / 2],
        connections(pid, scene.tunnel.proxy.entrypoint().port()),
    );
    world::delete(&stage.ocm, &binding).await;
    let begun = Instant::now();
    let ends = bodies.into_iter().map(|mut body| async move {
        while let Some(Ok(_)) = body.frame().await {}
        begun.elapsed()
    });
    let mut ends = tokio::time::timeout(SOON, join_all(ends)).await.unwrap();
    ends.sort_unstable();
    println!(
        "watches that outlived the response to the deletion: 99 of 100 by less than {:?}, the last by {:?}",
        ends[WATCHES * 99 / 100],
        ends[WATCHES - 1]
    );
}
