//! What takes long or is large: commands in Pods, ports, and responses of 50 megabytes.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use local_hub::field::STREAMS;
use local_hub::{Kubectl, RunningKubectl};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::tunnel::{has_all, lists_all};
use super::{Application, Scene};
use crate::support::{SOON, world};

/// The parts of 50 megabytes.
pub const PARTS: usize = 56;
/// The Pod, and the port at which it echoes.
const POD: &str = "streams";
const PORT: &str = ":7000";

/// Runs a Pod on the node of a cluster.
pub async fn pod(scene: &Scene, cluster: &str) {
    let client = scene.tunnel.stage.cluster(cluster).client_as("ocm").await.unwrap();
    let pod = world::object("Pod", Some("default"), POD);
    let container = json!({ "name": "main", "image": STREAMS });
    let pod = pod.field("spec", json!({ "containers": [container] }));
    pod.create(&client).await.unwrap();
    world::becomes(&client, &pod, "runs", |it| it["status"]["phase"] == "Running").await;
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
    let mut command =
        begun.start(&["exec", "--namespace=default", POD, "--", "/streams", "stay"]).await.unwrap();
    command.line("the command runs", SOON, |line| line == "begun").await.unwrap();
    for websockets in ["true", "false"] {
        let kubectl = || {
            let variables =
                ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"];
            variables
                .iter()
                .fold(application.kubectl("one"), |kubectl, name| kubectl.env(name, websockets))
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
    let arguments = ["exec", "--namespace=default", POD, "--", "/streams", "fail"];
    let output = kubectl.run(&arguments).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert_eq!(output.stdout, b"out\n", "{errors}");
    assert!(errors.starts_with("err\n"), "{errors}");
}

/// A connection through a forwarded port, which echoes.
async fn forwards(kubectl: &Kubectl) -> (RunningKubectl, TcpStream) {
    let pod = format!("pod/{POD}");
    let mut forward =
        kubectl.start(&["port-forward", "--namespace=default", &pod, PORT]).await.unwrap();
    let line = forward
        .line("the port is forwarded", SOON, |line| line.starts_with("Forwarding from 127.0.0.1:"));
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
            while self.connection.write_all(b"x").await.is_ok()
                && self.connection.read_u8().await.is_ok()
            {}
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
