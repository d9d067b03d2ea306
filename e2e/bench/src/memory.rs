//! An API server for hubs that are larger than etcd holds: it stores objects as bytes, and has no
//! rules, no defaults and no controllers of its own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use local_hub::{HubError, ServingAuthority};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::place::Place;

/// How many events of a kind a watch may be behind.
const HISTORY: usize = 200_000;

/// When every object was created.
const CREATED: &str = "2026-01-01T00:00:00Z";

/// The size of a request.
const REQUEST: usize = 1 << 20;

/// The code and the reason of a failure.
type Refusal = (u16, &'static str);

const NOT_FOUND: Refusal = (404, "NotFound");

/// A server. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    version: u64,
    /// By the name of their resource.
    kinds: HashMap<String, Kind>,
    /// The writes of profiles and Secrets since the start.
    writes: usize,
}

#[derive(Default)]
struct Kind {
    objects: BTreeMap<Place, Bytes>,
    events: VecDeque<Event>,
    /// The version of the last event that is no longer there.
    forgotten: u64,
    changed: Arc<Notify>,
}

struct Event {
    version: u64,
    kind: &'static str,
    place: Place,
    object: Bytes,
}

/// What a request is about.
struct Target {
    plural: String,
    place: Place,
    is_status: bool,
    query: HashMap<String, String>,
    /// Whether it asks for metadata alone.
    is_partial: bool,
}

impl Target {
    fn of(request: &Request) -> Option<Self> {
        let mut parts: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        let root = if parts[0] == "api" { 2 } else { 3 };
        parts.drain(..root.min(parts.len()));
        let has_namespace = parts.len() > 2 && parts[0] == "namespaces";
        let namespace = if has_namespace { parts.drain(..2).nth(1)? } else { "" };
        let name = parts.get(1).copied().unwrap_or_default();
        let query = request.uri().query().unwrap_or_default().as_bytes();
        let accept = request.headers().get("Accept").and_then(|value| value.to_str().ok());
        Some(Self {
            plural: (*parts.first()?).to_owned(),
            place: (namespace.to_owned(), name.to_owned()),
            is_status: parts.get(2) == Some(&"status"),
            query: form_urlencoded::parse(query).into_owned().collect(),
            is_partial: accept.is_some_and(|accept| accept.contains("PartialObjectMetadata")),
        })
    }

    fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    /// What a list or a watch shows of an object, if it selects it. Only what depends on its content is decoded: a list for
    /// one name or namespace looks at all objects of its kind.
    fn shown(&self, place: &Place, bytes: &Bytes) -> Option<Bytes> {
        let (labels, fields) = (self.parameter("labelSelector"), self.parameter("fieldSelector"));
        let namespace = self.place.0.as_str();
        let is_selected = fields.strip_prefix("metadata.name=").is_none_or(|name| place.1 == name)
            && (namespace.is_empty() || place.0 == namespace);
        if !is_selected {
            return None;
        }
        if labels.is_empty() && !self.is_partial {
            return Some(bytes.clone());
        }
        let object: Value = serde_json::from_slice(bytes).ok()?;
        let metadata = &object["metadata"];
        let has = |part: &str| match part.split_once('=') {
            _ if part.is_empty() => true,
            Some((key, value)) => metadata["labels"][key] == value,
            None => metadata["labels"].get(part).is_some(),
        };
        let partial = || {
            let (version, kind) = ("meta.k8s.io/v1", "PartialObjectMetadata");
            json!({ "apiVersion": version, "kind": kind, "metadata": metadata }).to_string().into()
        };
        labels.split(',').all(has).then(|| if self.is_partial { partial() } else { bytes.clone() })
    }
}

struct TlsListener(TcpListener, TlsAcceptor);

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, client) = Listener::accept(&mut self.0).await;
            drop(stream.set_nodelay(true));
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, client);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Server {
    /// Serves on a port of this machine, with TLS and HTTP/2 as an API server does; returns a kubeconfig for it.
    pub async fn start(&self) -> Result<Value, HubError> {
        let failed = |error| HubError::io("serve a hub", error);
        let authority = ServingAuthority::new("bench")?;
        let config = authority.issue(["127.0.0.1"])?.server_config(b"h2")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let url = format!("https://{}", listener.local_addr().map_err(failed)?);
        let listener = TlsListener(listener, TlsAcceptor::from(Arc::new(config)));
        let router = Router::new().fallback(handle).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let authority = STANDARD.encode(authority.ca_pem());
        let cluster = json!({ "server": url, "certificate-authority-data": authority });
        let context = json!({ "cluster": "hub", "user": "bench", "namespace": "bench" });
        Ok(json!({
            "clusters": [{ "name": "hub", "cluster": cluster }],
            "contexts": [{ "name": "hub", "context": context }],
            "users": [{ "name": "bench", "user": {} }], "current-context": "hub",
        }))
    }

    /// The writes of profiles and Secrets since the start.
    pub fn writes(&self) -> usize {
        self.0.lock().writes
    }

    /// A page: as many items as the limit, where there are as many.
    fn list(&self, target: &Target) -> Response {
        let mut stored = self.0.lock();
        let (version, kind) = stored.kind(&target.plural);
        let limit = target.parameter("limit").parse().unwrap_or(usize::MAX);
        let after =
            target.parameter("continue").split_once('/').map_or_else(Place::default, |at| {
                // The next place after it.
                (at.0.to_owned(), format!("{}\0", at.1))
            });
        let mut selected = kind
            .objects
            .range(after..)
            .filter_map(|(place, bytes)| Some((place, target.shown(place, bytes)?)));
        let page: Vec<_> = selected.by_ref().take(limit).collect();
        let next = selected
            .next()
            .and(page.last())
            .map(|((namespace, name), _)| format!("{namespace}/{name}"));
        let metadata = json!({ "resourceVersion": version.to_string(), "continue": next });
        let items: Vec<&[u8]> = page.iter().map(|(_, item)| item.as_ref()).collect();
        let begin = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{metadata},"items":["#);
        [begin.as_bytes(), &items.join(&b','), b"]}"].concat().into_response()
    }

    fn watch(self, target: Target) -> Response {
        let from = target.parameter("resourceVersion").parse().unwrap_or_default();
        let next = async |(server, target, mut from): (Self, Target, u64)| {
            loop {
                let (lines, version, changed) = server.since(&target, from);
                if !lines.is_empty() {
                    let lines = Ok::<_, std::io::Error>(Bytes::from(lines));
                    return Some((lines, (server, target, version)));
                }
                from = version;
                changed.await;
            }
        };
        Body::from_stream(futures::stream::unfold((self, target, from), next)).into_response()
    }

    /// What a watch shows after a version, the version that it has reached then, and the next change of its kind.
    fn since(&self, target: &Target, from: u64) -> (Vec<u8>, u64, OwnedNotified) {
        let mut stored = self.0.lock();
        let (version, kind) = stored.kind(&target.plural);
        let lines = if kind.forgotten > from {
            let gone = json!({ "kind": "Status", "code": 410, "reason": "Expired" });
            line("ERROR", gone.to_string().as_bytes())
        } else {
            let since = kind.events.partition_point(|event| event.version <= from);
            let events = kind.events.range(since..);
            let shown = events.filter_map(|event| {
                Some(line(event.kind, &target.shown(&event.place, &event.object)?))
            });
            shown.flatten().collect()
        };
        (lines, version, Arc::clone(&kind.changed).notified_owned())
    }

    fn write(&self, method: &Method, target: &Target, body: &[u8]) -> Result<Response, Refusal> {
        let mut body: Value = serde_json::from_slice(body).map_err(|_| (400, "BadRequest"))?;
        let mut stored = self.0.lock();
        let mut place = target.place.clone();
        if *method == Method::POST {
            body["metadata"]["name"].as_str().unwrap_or_default().clone_into(&mut place.1);
        }
        let before = stored.kind(&target.plural).1.objects.get(&place);
        let mut before: Option<Value> = before.and_then(|bytes| serde_json::from_slice(bytes).ok());
        let version = &body["metadata"]["resourceVersion"];
        let object = match (method, before.as_mut()) {
            (_, Some(before))
                if version.is_string() && before["metadata"]["resourceVersion"] != *version =>
            {
                return Err((409, "Conflict"));
            }
            (&Method::POST, Some(_)) => return Err((409, "AlreadyExists")),
            (&Method::POST, None) => {
                let is_profile = target.plural == "clusterprofiles";
                if let Some(fields) = body.as_object_mut().filter(|_| is_profile) {
                    fields.remove("status");
                }
                let strings = body["stringData"].as_object().cloned().unwrap_or_default();
                for (key, text) in strings {
                    body["data"][key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
                }
                body["metadata"]["uid"] = format!("uid-{}", stored.version).into();
                body["metadata"]["creationTimestamp"] = CREATED.into();
                body["metadata"]["generation"] = 1.into();
                if !place.0.is_empty() {
                    body["metadata"]["namespace"] = place.0.as_str().into();
                }
                body
            }
            (&Method::PUT, Some(before)) => {
                body["metadata"]["uid"] = before["metadata"]["uid"].take();
                body
            }
            (&Method::PATCH, Some(before)) => {
                let patch =
                    if target.is_status { json!({ "status": body["status"] }) } else { body };
                json_patch::merge(before, &patch);
                before.take()
            }
            _ => return Err(NOT_FOUND),
        };
        let event = if before.is_some() { "MODIFIED" } else { "ADDED" };
        Ok(stored.store(&target.plural, place, event, object).into_response())
    }
}

impl Stored {
    /// The latest version, and a kind.
    fn kind(&mut self, plural: &str) -> (u64, &mut Kind) {
        (self.version, self.kinds.entry(plural.to_owned()).or_default())
    }

    fn store(
        &mut self,
        plural: &str,
        place: Place,
        kind: &'static str,
        mut object: Value,
    ) -> Bytes {
        self.version += 1;
        self.writes += usize::from(["clusterprofiles", "secrets"].contains(&plural));
        let (version, of) = self.kind(plural);
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let object = Bytes::from(object.to_string());
        of.objects.insert(place.clone(), object.clone());
        of.events.push_back(Event { version, kind, place, object: object.clone() });
        if of.events.len() > HISTORY {
            of.forgotten = of.events.pop_front().map_or(0, |event| event.version);
        }
        of.changed.notify_waiters();
        object
    }
}

async fn handle(State(server): State<Server>, request: Request) -> Response {
    let Some(target) = Target::of(&request) else { return refused(NOT_FOUND) };
    let method = request.method().clone();
    if method != Method::GET {
        let body = to_bytes(request.into_body(), REQUEST).await.unwrap_or_default();
        return server.write(&method, &target, &body).unwrap_or_else(refused);
    }
    if target.place.1.is_empty() {
        let is_watch = ["true", "1"].contains(&target.parameter("watch"));
        return if is_watch { server.watch(target) } else { server.list(&target) };
    }
    let found = server.0.lock().kind(&target.plural).1.objects.get(&target.place).cloned();
    found.map_or_else(|| refused(NOT_FOUND), Bytes::into_response)
}

fn refused((code, reason): Refusal) -> Response {
    let status = json!({
        "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason,
    });
    let code = StatusCode::from_u16(code).unwrap_or_default();
    (code, status.to_string()).into_response()
}

/// An event as a watch shows it.
fn line(kind: &str, object: &[u8]) -> Vec<u8> {
    [br#"{"type":""#, kind.as_bytes(), br#"","object":"#, object, b"}\n"].concat()
}
