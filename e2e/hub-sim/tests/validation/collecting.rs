//! Compares what the garbage collector and the namespace controller leave of random graphs of owners and finalizers,
//! after random deletes.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use hub_sim::model::{Request, Server};
use serde_json::{Value, json};

use super::sides::{Side, Sides};

const RBAC: &str = "rbac.authorization.k8s.io";
/// The index in [`KINDS`] of the only cluster-scoped kind.
const CLUSTER_ROLE: usize = 4;
/// API version, plural and kind.
const KINDS: [(&str, &str, &str); 5] = [
    ("v1", "configmaps", "ConfigMap"),
    ("v1", "secrets", "Secret"),
    ("multicluster.x-k8s.io/v1alpha1", "clusterprofiles", "ClusterProfile"),
    ("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole"),
];

/// The maximum time until the real controllers have finished.
const DONE: Duration = Duration::from_mins(3);

/// An object of the graph.
#[derive(Clone)]
struct Node {
    kind: usize,
    name: String,
    namespace: String,
    owners: Vec<Owner>,
    held: bool,
}

/// An owner of an object.
#[derive(Clone, Copy)]
enum Owner {
    /// An earlier node.
    Node(usize),
    /// An object that does not exist.
    Missing,
    /// An earlier object of the same name as this node: another uid.
    Predecessor(usize),
}

impl Node {
    fn list(&self) -> String {
        let (api, plural, _) = KINDS[self.kind];
        let root = root(api);
        if self.kind == CLUSTER_ROLE {
            format!("{root}/{plural}")
        } else {
            format!("{root}/namespaces/{}/{plural}", self.namespace)
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.list(), self.name)
    }
}

/// The path of an API version.
fn root(api: &str) -> String {
    let prefix = if api.contains('/') { "/apis" } else { "/api" };
    format!("{prefix}/{api}")
}

fn graph(rng: &mut Rng, seed: u64) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for index in 0..rng.usize(4..10) {
        let kind = rng.usize(..KINDS.len());
        let other_namespace = rng.u8(..6) == 0;
        let namespace = format!("g{seed}-{}", if other_namespace { "b" } else { "a" });
        let mut owners = Vec::new();
        // A cluster-scoped object must not have an owner in a namespace.
        let count = if kind == CLUSTER_ROLE { 0 } else { rng.usize(..3) };
        for _ in 0..count {
            owners.push(match rng.u8(..8) {
                0 => Owner::Missing,
                1 if index > 0 => Owner::Predecessor(rng.usize(..index)),
                _ if index > 0 => Owner::Node(rng.usize(..index)),
                _ => Owner::Missing,
            });
        }
        nodes.push(Node {
            kind,
            name: format!("g{seed}-{index}"),
            namespace,
            owners,
            held: rng.u8(..6) == 0,
        });
    }
    nodes
}

/// The objects of a graph that exist, and whether each is being deleted.
async fn left(side: &mut Side, seed: u64) -> BTreeSet<(String, bool)> {
    let mut left = BTreeSet::new();
    for (api, plural, kind) in KINDS.into_iter().chain([("v1", "namespaces", "Namespace")]) {
        let (_, list) = side.send(&Request::new("GET", &format!("{}/{plural}", root(api)))).await;
        for item in list["items"].as_array().unwrap() {
            let metadata = &item["metadata"];
            let name = metadata["name"].as_str().unwrap();
            if name.starts_with(&format!("g{seed}-")) {
                let key =
                    format!("{kind} {} {name}", metadata["namespace"].as_str().unwrap_or_default());
                left.insert((key, metadata["deletionTimestamp"].is_string()));
            }
        }
    }
    left
}

async fn build(side: &mut Side, nodes: &[Node], seed: u64) {
    for name in ["a", "b"] {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": format!("g{seed}-{name}") } });
        let (code, answer) =
            side.send(&Request::new("POST", "/api/v1/namespaces").with(&body)).await;
        assert_eq!(code, 201, "{answer}");
    }
    let mut uids: Vec<String> = Vec::new();
    for node in nodes {
        let owner = |owner: &Owner| {
            let missing = "11111111-1111-4111-8111-111111111111";
            let (at, uid) = match owner {
                Owner::Node(index) => (&nodes[*index], uids[*index].as_str()),
                Owner::Predecessor(index) => (&nodes[*index], missing),
                Owner::Missing => {
                    return json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": missing });
                }
            };
            let (api, _, kind) = KINDS[at.kind];
            json!({ "apiVersion": api, "kind": kind, "name": at.name, "uid": uid })
        };
        let owners: Vec<Value> = node.owners.iter().map(owner).collect();
        let (api, _, kind) = KINDS[node.kind];
        let mut body = json!({ "apiVersion": api, "kind": kind, "metadata": { "name": node.name, "ownerReferences": owners } });
        if node.held {
            body["metadata"]["finalizers"] = json!(["example.com/hold"]);
        }
        match node.kind {
            2 => body["spec"] = json!({ "clusterManager": { "name": "x" } }),
            3 => {
                body["roleRef"] =
                    json!({ "apiGroup": RBAC, "kind": "ClusterRole", "name": "view" });
            }
            _ => {}
        }
        let (code, answer) = side.send(&Request::new("POST", &node.list()).with(&body)).await;
        assert_eq!(code, 201, "{answer}");
        uids.push(answer["metadata"]["uid"].as_str().unwrap().to_owned());
    }
}

/// Sends the same requests to both servers, and returns the difference that remains when the real controllers have had
/// their time.
pub async fn compare(seed: u64, [mut model, mut real]: Sides) -> Option<String> {
    let mut rng = Rng::with_seed(seed);
    let nodes = graph(&mut rng, seed);
    let mut changes = Vec::new();
    for node in &nodes {
        if rng.u8(..3) == 0 {
            changes.push(Request::new("DELETE", &node.path()));
        }
        if node.held && rng.bool() {
            changes.push(
                Request::new("PATCH", &node.path())
                    .with(&json!({ "metadata": { "finalizers": null } })),
            );
        }
    }
    if rng.u8(..3) == 0 {
        changes.push(Request::new("DELETE", &format!("/api/v1/namespaces/g{seed}-b")));
    }
    build(&mut model, &nodes, seed).await;
    build(&mut real, &nodes, seed).await;
    for change in &changes {
        // The garbage collector may already have deleted the object, on one side or on both.
        model.send(change).await;
        real.send(change).await;
        model.change_model(Server::collect);
    }
    let wanted = left(&mut model, seed).await;
    let begin = tokio::time::Instant::now();
    loop {
        let found = left(&mut real, seed).await;
        if found == wanted {
            return None;
        }
        if begin.elapsed() > DONE {
            let only = |one: &BTreeSet<_>, other| {
                one.difference(other).cloned().collect::<Vec<(String, bool)>>()
            };
            return Some(format!(
                "seed {seed}: only the model has {:?}, only the real server {:?}",
                only(&wanted, &found),
                only(&found, &wanted)
            ));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
