//! Generates random requests, and compares their results.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use hub_sim::model::Request;
use serde_json::{Value, json};

use super::sides::{Response, Sides};

/// The number of requests that are printed before a difference.
const LOGGED: usize = 12;

/// A sequence of requests that depend on each other: it knows which versions are current and which are old.
pub struct Sequence {
    seed: u64,
    rng: Rng,
    length: usize,
}

/// The result of a sequence.
pub struct Outcome {
    pub requests: usize,
    pub difference: Option<String>,
}

/// What one side has returned about an object.
#[derive(Default, Clone)]
struct Seen {
    uid: String,
    versions: Vec<String>,
}

/// The version that a write names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Precondition {
    None,
    Current,
    Old,
    OtherUid,
}

const PROFILES: &str = "apis/multicluster.x-k8s.io/v1alpha1";
const ACCOUNTS: &str = "apis/authentication.open-cluster-management.io/v1beta1";
const CLUSTERS: &str = "apis/cluster.open-cluster-management.io/v1";
const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";

/// API, plural, kind, whether in a namespace.
const KINDS: [(&str, &str, &str, bool); 6] = [
    (PROFILES, "clusterprofiles", "ClusterProfile", true),
    (PROFILES, "clusterprofiles", "ClusterProfile", true),
    ("api/v1", "secrets", "Secret", true),
    (ACCOUNTS, "managedserviceaccounts", "ManagedServiceAccount", true),
    (CLUSTERS, "managedclusters", "ManagedCluster", false),
    (RBAC, "rolebindings", "RoleBinding", true),
];

const AGENTS: [&str; 3] = ["one/1.0", "two", "hub-addons/0.1.0"];

impl Sequence {
    pub fn random(seed: u64, length: usize) -> Self {
        Self { seed, rng: Rng::with_seed(seed), length }
    }

    /// Sends the same requests to both servers.
    pub async fn compare(mut self, sides: &mut Sides) -> Outcome {
        let namespaces = [format!("v{}-a", self.seed), format!("v{}-b", self.seed)];
        let mut requests = 0;
        let mut log = Vec::new();
        for namespace in &namespaces {
            let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            let request = Request::new("POST", "/api/v1/namespaces").with(&body);
            for side in sides.iter_mut() {
                side.send(&request).await;
            }
        }
        let list = Request::new(
            "GET",
            &format!("/{PROFILES}/namespaces/{}/clusterprofiles", namespaces[0]),
        );
        let mut begin = Vec::new();
        for side in sides.iter_mut() {
            let (_, list) = side.send(&list).await;
            begin.push(list["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        }
        let mut seen: [BTreeMap<String, Seen>; 2] = Default::default();
        for _ in 0..self.length {
            let (template, precondition, key) = self.draw(&namespaces);
            let mut answers = Vec::new();
            let mut shown = String::new();
            for (index, seen) in seen.iter_mut().enumerate() {
                let known = seen.get(&key).cloned().unwrap_or_default();
                let request = under(&template, precondition, &known);
                let answer = sides[index].send(&request).await;
                note(seen, &key, &answer.1);
                shown = format!(
                    "{} {} {:?} by {} {}",
                    request.method,
                    request.path,
                    request.query,
                    request.agent,
                    String::from_utf8_lossy(&request.body)
                );
                answers.push(normal(answer));
            }
            requests += 1;
            log.push(format!("{shown}\n      {precondition:?} -> {}", answers[0].0));
            if answers[0] != answers[1] {
                let difference = format!(
                    "seed {}: {}\n  model: {} {}\n  real:  {} {}",
                    self.seed,
                    log[log.len().saturating_sub(LOGGED)..].join("\n  "),
                    answers[0].0,
                    answers[0].1,
                    answers[1].0,
                    answers[1].1
                );
                return Outcome { requests, difference: Some(difference) };
            }
        }
        let difference = self.compare_watches(&namespaces[0], &begin, sides).await;
        Outcome { requests, difference }
    }

    /// Compares the events of a watch that started before the sequence.
    async fn compare_watches(
        &mut self,
        namespace: &str,
        begin: &[String],
        sides: &mut Sides,
    ) -> Option<String> {
        let selector =
            *self.rng.choice(&["", "color", "color=red", "!color", "color!=red"]).unwrap();
        let by_name = self.rng.u8(..4) == 0;
        let metadata = self.rng.bool();
        let mut shown = Vec::new();
        for (index, begin) in begin.iter().enumerate() {
            let path = format!("/{PROFILES}/namespaces/{namespace}/clusterprofiles");
            let mut request = Request::new("GET", &path);
            let mut set =
                |key: &str, value: &str| request.query.insert(key.to_owned(), value.to_owned());
            set("watch", "true");
            set("resourceVersion", begin);
            set("labelSelector", selector);
            if by_name {
                set("fieldSelector", &format!("metadata.name=v{}-one", self.seed));
            }
            if metadata {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
                    .clone_into(&mut request.accept);
            }
            let expected = shown.first().map_or(0, Vec::len);
            let events = sides[index].watch(&request, expected).await;
            let events = events.into_iter().map(|event| {
                let object = normal((0, event["object"].clone())).1;
                format!("{} {object}", event["type"])
            });
            shown.push(events.collect::<Vec<_>>());
        }
        (shown[0] != shown[1]).then(|| {
            format!(
                "seed {}: watch with {selector:?}\n  model: {}\n  real:  {}",
                self.seed,
                shown[0].join("\n         "),
                shown[1].join("\n         ")
            )
        })
    }

    /// A request, the version that it names, and the object.
    fn draw(&mut self, places: &[String; 2]) -> (Request, Precondition, String) {
        let rng = &mut self.rng;
        let (api, plural, kind, namespaced) = *rng.choice(&KINDS).unwrap();
        let namespace = if rng.u8(..5) == 0 { &places[1] } else { &places[0] };
        let name = format!("v{}-{}", self.seed, rng.choice(["one", "one", "two"]).unwrap());
        let base = if namespaced {
            format!("/{api}/namespaces/{namespace}/{plural}")
        } else {
            format!("/{api}/{plural}")
        };
        let key = format!("{base}/{name}");
        let object = |body: Value| {
            let mut object = json!({ "apiVersion": api.trim_start_matches("apis/").trim_start_matches("api/"), "kind": kind });
            merge(&mut object, &body);
            object
        };
        let agent = *rng.choice(&AGENTS).unwrap();
        let (request, precondition) = match rng.u8(..24) {
            0..7 => {
                let mut body = object(content(rng, plural));
                body["metadata"]["name"] = name.as_str().into();
                if rng.u8(..12) == 0 {
                    body["status"] = status(rng);
                }
                (Request::new("POST", &base).with(&body), Precondition::None)
            }
            7..13 => {
                (Request::new("PATCH", &key).with(&change(rng, plural)), any_precondition(rng))
            }
            13..17 => {
                let has_status = ["clusterprofiles", "managedserviceaccounts", "managedclusters"]
                    .contains(&plural);
                let path = if has_status { format!("{key}/status") } else { key.clone() };
                let body = if plural == "clusterprofiles" {
                    json!({ "status": status(rng) })
                } else if has_status {
                    json!({ "status": { "conditions": [condition("Ready", "True")] } })
                } else {
                    change(rng, plural)
                };
                (Request::new("PATCH", &path).with(&body), any_precondition(rng))
            }
            17..19 => {
                let mut body = object(content(rng, plural));
                body["metadata"]["name"] = name.as_str().into();
                (Request::new("PUT", &key).with(&body), any_precondition(rng))
            }
            19..21 => (Request::new("DELETE", &key), any_precondition(rng)),
            21 => (Request::new("GET", &key), Precondition::None),
            _ if namespaced => {
                let selector =
                    rng.choice(["", "color", "color=red", "!color", "color!=red"]).unwrap();
                let limit = rng.choice(["0", "1", "5"]).unwrap();
                (
                    Request::new("GET", &format!("{base}?labelSelector={selector}&limit={limit}")),
                    Precondition::None,
                )
            }
            _ => (Request::new("GET", &key), Precondition::None),
        };
        let mut request = request.by(agent);
        if request.is_write() && rng.u8(..4) == 0 {
            request.query.insert("fieldManager".to_owned(), "named".to_owned());
        }
        if rng.u8(..40) == 0 {
            request = Request::new("DELETE", &format!("/api/v1/namespaces/{}", places[1]));
        }
        // As the controllers request it of what they patch.
        let is_ours = request.method == "PATCH" && agent == AGENTS[2];
        if is_ours || (request.method == "GET" && rng.bool()) {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
                .clone_into(&mut request.accept);
            if request.path.starts_with(&key) {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
                    .clone_into(&mut request.accept);
            }
        }
        (request, precondition, key)
    }
}

fn any_precondition(rng: &mut Rng) -> Precondition {
    use Precondition::{Current, None, Old, OtherUid};
    *rng.choice(&[None, None, Current, Current, Old, OtherUid]).unwrap()
}

fn merge(object: &mut Value, more: &Value) {
    for (key, value) in more.as_object().unwrap() {
        object[key] = value.clone();
    }
}

fn metadata(rng: &mut Rng) -> Value {
    let mut metadata = json!({});
    match rng.u8(..6) {
        0 => metadata["labels"] = json!({ "color": "red" }),
        1 => metadata["labels"] = json!({ "color": "blue", "other": "" }),
        2 => metadata["annotations"] = json!({ "example.com/Note": "text" }),
        3 => metadata["labels"] = json!({}),
        _ => {}
    }
    match rng.u8(..12) {
        0 => metadata["finalizers"] = json!(["example.com/hold"]),
        1 => {
            metadata["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-1111-4111-8111-111111111111", "controller": true }]);
        }
        2 => metadata["labels"] = json!({ "color": "not a value!" }),
        3 => metadata["unknown"] = json!(1),
        _ => {}
    }
    metadata
}

fn content(rng: &mut Rng, plural: &str) -> Value {
    let mut body = match plural {
        "clusterprofiles" => {
            let spec = [
                json!({ "displayName": "one", "clusterManager": { "name": "open-cluster-management" } }),
                json!({ "displayName": null, "clusterManager": { "name": "open-cluster-management", "more": 1 } }),
                json!({ "clusterManager": { "name": "another" } }),
                json!({ "displayName": 7, "clusterManager": { "name": "another" } }),
                json!({ "displayName": "one" }),
            ];
            json!({ "spec": spec[if rng.bool() { 0 } else { rng.usize(..spec.len()) }] })
        }
        "secrets" => {
            let data = [
                json!({ "data": { "token": "YQ==", "ca.crt": "Yg==" } }),
                json!({ "stringData": { "token": "text" } }),
                json!({ "data": { "token": "not base64" } }),
                json!({ "data": {}, "type": "Opaque" }),
                json!({ "data": { "token": "YQ==" }, "type": "example.com/other" }),
                json!({ "data": { "token": "YQ==" }, "immutable": true }),
            ];
            data[if rng.bool() { 0 } else { rng.usize(..data.len()) }].clone()
        }
        "rolebindings" => json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": rng.choice(["view", "view", "edit"]).unwrap() },
            "subjects": [{ "kind": "ServiceAccount", "name": "x", "namespace": "default" }],
        }),
        "managedclusters" => json!({ "spec": { "hubAcceptsClient": true } }),
        _ => json!({ "spec": { "rotation": { "enabled": true, "validity": "24h0m0s" } } }),
    };
    body["metadata"] = metadata(rng);
    body
}

fn change(rng: &mut Rng, plural: &str) -> Value {
    match rng.u8(..9) {
        0 => json!({ "metadata": { "labels": { "color": "red", "other": null } } }),
        1 => json!({ "metadata": { "labels": { "color": null } } }),
        2 => json!({ "metadata": { "labels": null, "annotations": { "a": "b" } } }),
        3 => json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
        4 => json!({ "metadata": { "finalizers": null } }),
        5 => json!({ "metadata": { "ownerReferences": null, "managedFields": [{}] } }),
        6 => json!({}),
        _ => match plural {
            "clusterprofiles" => [
                json!({ "spec": { "displayName": "two" } }),
                json!({ "spec": { "displayName": null } }),
                json!({ "spec": { "clusterManager": { "name": "changed" } } }),
                json!({ "status": { "version": { "kubernetes": "v1" } } }),
            ][rng.usize(..4)]
            .clone(),
            "secrets" => [
                json!({ "data": { "token": "Yw==" } }),
                json!({ "data": { "token": null } }),
                json!({ "type": "example.com/changed" }),
                json!({ "immutable": true }),
            ][rng.usize(..4)]
            .clone(),
            "rolebindings" => json!({ "roleRef": { "name": "edit" } }),
            "managedclusters" => json!({ "spec": { "leaseDurationSeconds": 30, "taints": null } }),
            _ => json!({ "spec": { "rotation": { "validity": "48h0m0s" } } }),
        },
    }
}

fn condition(kind: &str, status: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn status(rng: &mut Rng) -> Value {
    let provider = |name: &str| json!({ "name": name, "cluster": { "server": "https://x:1/y", "unknown": 1, "extensions": [{ "name": "e", "extension": { "any": [1, null, { "deep": null }] } }] } });
    match rng.u8(..16) {
        0 => json!({ "version": { "kubernetes": "v1.36.3" } }),
        1 => json!({ "version": { "kubernetes": null } }),
        2 => json!({ "version": null }),
        3 => {
            json!({ "properties": [{ "name": "a", "value": "1" }, { "name": "b", "value": "2", "more": 1 }] })
        }
        4 => {
            json!({ "properties": [{ "name": "a", "value": "1" }, { "name": "a", "value": "2" }] })
        }
        5 => json!({ "properties": null }),
        6 => json!({ "properties": [{ "name": "", "value": "" }] }),
        7 => json!({ "properties": [] }),
        8 => {
            json!({ "conditions": [condition("Joined", "True"), condition("Healthy", "Unknown")] })
        }
        9 => json!({ "conditions": [condition("Joined", "Maybe")] }),
        10 => json!({ "conditions": [condition("Joined", "True"), condition("Joined", "False")] }),
        11 => json!({ "conditions": [{ "type": "Joined" }] }),
        12 => json!({ "accessProviders": [provider("one"), provider("two")] }),
        13 => json!({ "accessProviders": [provider("one"), provider("one")] }),
        14 => json!({ "accessProviders": [{ "name": "bare", "cluster": null }], "unknown": 1 }),
        _ => json!({ "accessProviders": null, "conditions": null }),
    }
}

/// The request, with the version that it names.
fn under(template: &Request, precondition: Precondition, seen: &Seen) -> Request {
    let mut request = template.clone();
    let old = seen.versions.first().cloned().unwrap_or_else(|| "1".to_owned());
    let current = seen.versions.last().cloned().unwrap_or_else(|| "1".to_owned());
    let other = "22222222-2222-4222-8222-222222222222".to_owned();
    let uid = if seen.uid.is_empty() { other.clone() } else { seen.uid.clone() };
    let (uid, version) = match precondition {
        Precondition::None => return request,
        Precondition::Current => (uid, current),
        Precondition::Old => (uid, old),
        Precondition::OtherUid => (other, current),
    };
    if request.method == "DELETE" {
        return request.with(&json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": uid, "resourceVersion": version } }));
    }
    let mut body: Value = serde_json::from_slice(&request.body).unwrap();
    if !body["metadata"].is_object() {
        body["metadata"] = json!({});
    }
    body["metadata"]["uid"] = uid.into();
    body["metadata"]["resourceVersion"] = version.into();
    request.body = body.to_string().into_bytes();
    request
}

fn note(seen: &mut BTreeMap<String, Seen>, key: &str, object: &Value) {
    let (uid, version) = (&object["metadata"]["uid"], &object["metadata"]["resourceVersion"]);
    if let (Some(uid), Some(version)) = (uid.as_str(), version.as_str())
        && object["kind"] != "Namespace"
    {
        let seen = seen.entry(key.to_owned()).or_default();
        uid.clone_into(&mut seen.uid);
        if seen.versions.last().is_none_or(|last| last != version) {
            seen.versions.push(version.to_owned());
        }
    }
}

/// The parts of a response that must be the same.
pub fn normal((code, mut body): Response) -> (u16, Value) {
    if body["kind"] == "Status" {
        let reason = body["reason"].as_str().unwrap_or_default().to_owned();
        // Messages about errors of a field vary in wording, and those of conflicts name versions.
        let message = if ["Invalid", "BadRequest", "Conflict"].contains(&reason.as_str()) {
            Value::Null
        } else {
            body["message"].clone()
        };
        let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
        let terminating = causes.iter().any(|cause| cause["reason"] == "NamespaceTerminating");
        return (code, json!([body["status"], reason, message, terminating, body["code"]]));
    }
    blank(&mut body, code == 201);
    let items = body["items"].as_array_mut().into_iter().flatten();
    items.for_each(|item| blank(item, false));
    (code, body)
}

/// Compares who wrote which field only where an object is created: for later writes the real server knows which lists
/// are sets and which are maps, and the model does not.
fn blank(object: &mut Value, with_writers: bool) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "continue"] {
        if let Some(value) = metadata.get_mut(field) {
            *value = "*".into();
        }
    }
    for field in ["resourceVersion", "remainingItemCount", "selfLink"] {
        metadata.remove(field);
    }
    if let Some(fields) = metadata.remove("managedFields").filter(|_| with_writers) {
        let writers: BTreeSet<String> = fields
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                format!("{} {} {}", entry["manager"], entry["operation"], entry["subresource"])
            })
            .collect();
        metadata.insert("managedFields".to_owned(), json!(writers));
    }
}
