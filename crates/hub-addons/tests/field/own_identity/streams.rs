//! What takes long or is large: commands in Pods, ports, and responses of 50 megabytes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::api::{Patch, PatchParams};
use local_hub::{Kubectl, Running, RunningKubectl, eventually, ocm};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::tunnel::{has_all, lists_all};
use super::{Application, Scene};
use crate::support::SOON;
use crate::support::go_program;

/// The parts of 50 megabytes.
pub const PARTS: usize = 56;
/// The node and its Pod.
const POD: &str = "streams";

/// A node on a cluster whose kubelet serves exec and port-forward alone, with a Pod.
pub async fn node(scene: &Scene, cluster: &str) -> Running {
    let hub = scene.tunnel.stage.cluster(cluster);
    let program = go_program::build("kubelet-streams");
    let kubelet = hub.run("kubelet", Path::new(&program), [""; 0]).await.unwrap();
    let address: SocketAddr = eventually("the kubelet serves", SOON, async || {
        let log = kubelet.log();
        log.lines().find_map(|line| line.strip_prefix("kubelet-streams: serving at "))?.trim().parse().ok()
    })
    .await;
    let client = hub.client_as("ocm").await.unwrap();
    let of_kind = |kind, plural, namespace| ocm::Object::new(("", "v1", kind), plural, namespace, POD);
    let node = of_kind("Node", "nodes", None);
    let status = json!({
        "addresses": [{ "type": "InternalIP", "address": address.ip() }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": address.port() } },
    });
    let container = json!({ "name": "main", "image": "registry.example.com/main" });
    let pod = of_kind("Pod", "pods", Some("default"))
        .field("spec", json!({ "nodeName": POD, "containers": [container] }));
    for (object, status) in [(node, status), (pod, json!({ "phase": "Running" }))] {
        object.create(&client).await.unwrap();
        let patch = Patch::Merge(json!({ "status": status }));
        object.api(&client).patch_status(POD, &PatchParams::default(), &patch).await.unwrap();
    }
    kubelet
}

/// Commands and ports that stay open.
pub struct Open {
    command: RunningKubectl,
    _forward: RunningKubectl,
    connection: TcpStream,
}

/// Runs commands in the Pod and connects to one of its ports, with WebSocket and SPDY.
pub async fn commands_and_ports(application: &Application<'_>) -> Open {
    let begun = application.kubectl("one");
    let mut command = begun
        .start(&["exec", "--namespace=default", POD, "--", "sh", "-c", "echo begun; sleep 600"])
        .await
        .unwrap();
    command.line("the command runs", SOON, |line| line == "begun").await.unwrap();
    for websockets in ["true", "false"] {
        let kubectl = || {
            let variables = ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"];
            variables.iter().fold(application.kubectl("one"), |kubectl, name| kubectl.env(name, websockets))
        };
        runs(&kubectl()).await;
        let (_forward, mut connection) = forwards(&kubectl()).await;
        echoes(&mut connection).await;
    }
    let (forward, connection) = forwards(&begun).await;
    Open { command, _forward: forward, connection }
}

/// A command's output, and its exit code.
async fn runs(kubectl: &Kubectl) {
    let arguments = ["exec", "--namespace=default", POD, "--", "sh", "-c", "echo out; echo err >&2; exit 3"];
    let output = kubectl.run(&arguments).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert_eq!(output.stdout, b"out\n", "{errors}");
    assert!(errors.starts_with("err\n"), "{errors}");
}

/// A connection through a forwarded port to a server that echoes.
async fn forwards(kubectl: &Kubectl) -> (RunningKubectl, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = format!(":{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                tokio::io::copy(&mut reader, &mut writer).await
            });
        }
    });
    let pod = format!("pod/{POD}");
    let mut forward = kubectl.start(&["port-forward", "--namespace=default", &pod, &port]).await.unwrap();
    let line =
        forward.line("the port is forwarded", SOON, |line| line.starts_with("Forwarding from 127.0.0.1:"));
    let line = line.await.unwrap();
    let address = line.trim_start_matches("Forwarding from ").split(' ').next().unwrap();
    (forward, TcpStream::connect(address).await.unwrap())
}

async fn echoes(connection: &mut TcpStream) {
    let sent = b"over the tunnel and back".repeat(10_000);
    let mut received = vec![0; sent.len()];
    let (mut reader, mut writer) = connection.split();
    tokio::try_join!(writer.write_all(&sent), reader.read_exact(&mut received)).unwrap();
    assert!(received == sent);
}

impl Open {
    /// All of it ends.
    pub async fn ends(mut self) {
        let status = tokio::time::timeout(SOON, self.command.exit_status()).await.unwrap();
        assert_ne!(status, Some(0));
        // kubectl notices the end of its connection with the next use of the port.
        let ended = async {
            while self.connection.write_all(b"x").await.is_ok() && self.connection.read_u8().await.is_ok() {}
        };
        tokio::time::timeout(SOON, ended).await.unwrap();
    }
}

/// A client that reads slowly receives the 50 megabytes whole, and another one meanwhile as well.
pub async fn slow_and_fast(application: &Application<'_>) {
    let stream = application.raw().await.into_stream();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("/one/api/v1/namespaces/large/configmaps").header("host", "hub");
    let request = request.header("authorization", format!("Bearer {}", application.token));
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    let mut body = response.into_body();
    let mut received = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    lists_all(&application.kubectl("one"), PARTS).await;
    while let Some(frame) = body.frame().await {
        received.extend_from_slice(&frame.unwrap().into_data().unwrap());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let list: Value = serde_json::from_slice(&received).unwrap();
    has_all(&list, PARTS);
}
