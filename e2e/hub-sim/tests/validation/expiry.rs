//! Compares what a client observes that continues from an earlier version: in a whole history, in one that etcd has
//! compacted, and in one that is restored from a backup.

use hub_sim::model::{Request, Server};
use local_hub::LocalHub;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::requests::normal;
use super::sides::{Side, Sides};

const PROFILES: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/default/clusterprofiles";

fn profile(name: &str) -> Value {
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile", "metadata": { "name": name },
        "spec": { "clusterManager": { "name": "x" } },
    })
}

/// A client's position in the history.
struct Position {
    token: String,
    version: String,
}

async fn begin(side: &mut Side) -> Position {
    for name in ["one", "two", "three", "four"] {
        let (code, answer) = side.send(&Request::new("POST", PROFILES).with(&profile(name))).await;
        assert_eq!(code, 201, "{answer}");
    }
    let (_, page) = side.send(&Request::new("GET", &format!("{PROFILES}?limit=2"))).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let text = |field: &str| page["metadata"][field].as_str().unwrap().to_owned();
    let position = Position { token: text("continue"), version: text("resourceVersion") };
    for name in ["five", "six"] {
        side.send(&Request::new("POST", PROFILES).with(&profile(name))).await;
    }
    side.send(&Request::new("DELETE", &format!("{PROFILES}/one"))).await;
    position
}

/// The responses to requests that continue from a position.
async fn continued(side: &mut Side, position: &Position) -> Vec<String> {
    let mut seen = Vec::new();
    for query in [
        format!("limit=2&continue={}", position.token),
        format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", position.version),
    ] {
        let (code, mut answer) =
            side.send(&Request::new("GET", &format!("{PROFILES}?{query}"))).await;
        // The rest of the message names versions, which differ between the servers.
        if answer["kind"] == "Status" {
            answer["message"] = answer["message"].as_str().unwrap().split(':').next().into();
        }
        seen.push(format!("{:?}", normal((code, answer))));
    }
    let watch =
        Request::new("GET", &format!("{PROFILES}?watch=true&resourceVersion={}", position.version));
    for event in side.watch(&watch, usize::MAX).await {
        let object = &event["object"];
        let name = &object["metadata"]["name"];
        seen.push(format!("{} {} {} {name}", event["type"], object["reason"], object["code"]));
    }
    seen
}

async fn compact(hub: &LocalHub, revision: &str) {
    let socket = hub.directory().join("etcd-clients:0");
    let mut connection = UnixStream::connect(socket).await.unwrap();
    let body = json!({ "revision": revision, "physical": true }).to_string();
    let request = format!(
        "POST /v3/kv/compaction HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

/// Sends the same requests to both servers, and fails at the first difference.
pub async fn compare(hub: &LocalHub, [mut model, mut real]: Sides) {
    let (in_model, in_real) = (begin(&mut model).await, begin(&mut real).await);
    assert_eq!(
        continued(&mut model, &in_model).await,
        continued(&mut real, &in_real).await,
        "the history is whole"
    );

    let (_, list) = real.send(&Request::new("GET", PROFILES)).await;
    compact(hub, list["metadata"]["resourceVersion"].as_str().unwrap()).await;
    hub.stop_api_server().await.unwrap();
    hub.start_api_server().await.unwrap();
    model.change_model(Server::compact);
    assert_eq!(
        continued(&mut model, &in_model).await,
        continued(&mut real, &in_real).await,
        "the history is compacted"
    );

    let (backup, snapshot) = (model.change_model(|it| it.backup()), hub.snapshot().await.unwrap());
    let mut later = Vec::new();
    for side in [&mut model, &mut real] {
        for name in ["seven", "eight"] {
            side.send(&Request::new("POST", PROFILES).with(&profile(name))).await;
        }
        let (_, list) = side.send(&Request::new("GET", PROFILES)).await;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        // The hub itself writes after its restoration: this version must still be in the future.
        let version = version.parse::<u64>().unwrap() + 1000;
        later.push(Position { token: String::new(), version: version.to_string() });
    }
    model.change_model(|it| it.restore(&backup));
    hub.restore(&snapshot).await.unwrap();
    for (index, side) in [&mut model, &mut real].into_iter().enumerate() {
        let watch = format!("{PROFILES}?watch=true&resourceVersion={}", later[index].version);
        assert_eq!(
            side.watch(&Request::new("GET", &watch), 0).await,
            [Value::Null; 0],
            "a watch from the future is silent"
        );
        let (_, list) = side.send(&Request::new("GET", &format!("{PROFILES}?limit=1"))).await;
        let version: u64 = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(
            version < later[index].version.parse().unwrap(),
            "the version of a list has gone back"
        );
    }
    assert_eq!(
        continued(&mut model, &in_model).await,
        continued(&mut real, &in_real).await,
        "the history is restored"
    );
}
