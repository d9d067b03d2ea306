//! An in-memory API server as a service under the real client: enough of lists, watches, writes and preconditions for
//! one executor at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream::{self, BoxStream};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

type Reply = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;
type Delay = dyn Fn(&Method, &str) -> Duration + Send;
type Refusal = dyn Fn(&Method, &str) -> Option<(u16, Value)> + Send;

/// The API server. Cheap to clone; clones share its objects.
#[derive(Clone, Default)]
pub struct Api(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    /// By path.
    objects: BTreeMap<String, Value>,
    watches: Vec<(String, UnboundedSender<Value>)>,
    /// Collections whose lists block.
    held_up: BTreeSet<String>,
    refusal: Option<Box<Refusal>>,
    delay: Option<Box<Delay>>,
    /// By method, how late its responses are; by `WATCH`, each event.
    late_responses: BTreeMap<String, Duration>,
    requests: Vec<String>,
    /// `METHOD FIELD_MANAGER` of the requests that name a field manager.
    field_managers: BTreeSet<String>,
}

impl Api {
    pub fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request| {
            let this = this.clone();
            async move { Ok::<_, Infallible>(this.serve(request).await) }
        });
        Client::new(service, "default")
    }

    /// Stores an object, as another client does.
    pub fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap().store(path, object);
    }

    /// The object at a path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }

    /// Blocks lists of a collection.
    pub fn hold_up(&self, collection: &str) {
        self.0.lock().unwrap().held_up.insert(collection.to_owned());
    }

    /// Unblocks all lists.
    pub fn release(&self) {
        self.0.lock().unwrap().held_up.clear();
    }

    /// Deletes an object, as another client does.
    pub fn delete(&self, path: &str) {
        self.0.lock().unwrap().respond(&Method::DELETE, path, Value::Null);
    }

    /// Delays requests by this time before they take effect.
    pub fn delay(&self, delay: impl Fn(&Method, &str) -> Duration + Send + 'static) {
        self.0.lock().unwrap().delay = Some(Box::new(delay));
    }

    /// Delays the responses to requests of a method after they have taken effect; as `WATCH`, each event of watches that
    /// begin later.
    pub fn respond_late(&self, method: &str, by: Duration) {
        self.0.lock().unwrap().late_responses.insert(method.to_owned(), by);
    }

    /// Refuses requests for which this returns a response.
    pub fn refuse(&self, refusal: impl Fn(&Method, &str) -> Option<(u16, Value)> + Send + 'static) {
        self.0.lock().unwrap().refusal = Some(Box::new(refusal));
    }

    /// Stops refusing requests.
    pub fn allow(&self) {
        self.0.lock().unwrap().refusal = None;
    }

    /// The requests so far that contain a text, as `METHOD PATH`.
    pub fn requests(&self, text: &str) -> Vec<String> {
        let requests = &self.0.lock().unwrap().requests;
        requests.iter().filter(|request| request.contains(text)).cloned().collect()
    }

    /// The field managers of the requests so far, as `METHOD FIELD_MANAGER`.
    pub fn field_managers(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().field_managers.clone()
    }

    async fn serve(&self, request: Request<Body>) -> Response<Reply> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default());
        let watch = query.contains("watch=true") || query.contains("watch=1");
        let verb = if watch { "WATCH" } else { parts.method.as_str() };
        self.0.lock().unwrap().requests.push(format!("{verb} {path}"));
        if let Some(manager) =
            query.split('&').find_map(|field| field.strip_prefix("fieldManager="))
        {
            self.0.lock().unwrap().field_managers.insert(format!("{verb} {manager}"));
        }
        while self.0.lock().unwrap().held_up.contains(&path) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let delay = self.0.lock().unwrap().delay.as_ref().map(|delay| delay(&parts.method, &path));
        tokio::time::sleep(delay.unwrap_or_default()).await;
        let named =
            query.split('&').find_map(|field| field.strip_prefix("fieldSelector=metadata.name%3D"));
        if let Some(name) = named.filter(|_| !watch) {
            let named = format!("{path}/{name}");
            return reply(200, &self.0.lock().unwrap().list(|path| path == named));
        }
        let (response, late) = self.take(&parts.method, path, watch, &body);
        tokio::time::sleep(late).await;
        response
    }

    /// Executes a request. Returns the response, and how late it is.
    fn take(
        &self,
        method: &Method,
        path: String,
        watch: bool,
        body: &[u8],
    ) -> (Response<Reply>, Duration) {
        let mut state = self.0.lock().unwrap();
        if let Some(refused) = state.refusal.as_ref().and_then(|refusal| refusal(method, &path)) {
            return (reply(refused.0, &refused.1), Duration::ZERO);
        }
        if watch {
            let (sender, events) = unbounded();
            state.watches.push((path, sender));
            let late = state.late("WATCH");
            let lines = events.then(move |event: Value| async move {
                tokio::time::sleep(late).await;
                Ok(Frame::data(Bytes::from(format!("{event}\n"))))
            });
            return (Response::new(StreamBody::new(lines.boxed())), Duration::ZERO);
        }
        let sent = serde_json::from_slice(body).unwrap_or(Value::Null);
        let (code, value) = state.respond(method, &path, sent);
        (reply(code, &value), state.late(method.as_str()))
    }
}

impl State {
    fn late(&self, method: &str) -> Duration {
        self.late_responses.get(method).copied().unwrap_or_default()
    }

    fn respond(&mut self, method: &Method, path: &str, sent: Value) -> (u16, Value) {
        let of_status = path.ends_with("/status");
        let path = path.trim_end_matches("/status");
        let there = self.objects.get(path).cloned();
        match (method.as_str(), there) {
            ("GET", Some(object)) => (200, object),
            ("GET", None) if is_collection(path) => {
                (200, self.list(|it| collection_of(it) == path))
            }
            ("POST", _) => {
                let generated = || format!("generated-{}", self.version);
                let name = sent["metadata"]["name"].as_str().map_or_else(generated, str::to_owned);
                let path = format!("{path}/{name}");
                match self.objects.get(&path) {
                    Some(_) => (409, failure(409, "AlreadyExists")),
                    None => (201, self.store(&path, sent)),
                }
            }
            (_, None) => (404, not_found(path)),
            ("DELETE", Some(object)) => {
                self.objects.remove(path);
                self.tell("DELETED", path, &object);
                (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            (_, Some(object)) if is_stale(&object, &sent) => (409, failure(409, "Conflict")),
            ("PUT", Some(_)) => (200, self.store(path, sent)),
            (_, Some(mut object)) => {
                let only = if of_status { json!({"status": sent["status"]}) } else { sent };
                merge(&mut object, &only);
                (200, self.store(path, object))
            }
        }
    }

    fn list(&self, is_listed: impl Fn(&str) -> bool) -> Value {
        let items = self.objects.iter().filter(|(path, _)| is_listed(path));
        let items: Vec<_> = items.map(|(_, object)| object.clone()).collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let before = self.objects.get(path);
        let uid = before.map_or_else(
            || json!(format!("uid-{}", self.version)),
            |before| before["metadata"]["uid"].clone(),
        );
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        let mut parts = path.rsplit('/');
        object["metadata"]["name"] = json!(parts.next());
        if let Some((_, rest)) = path.split_once("/namespaces/") {
            object["metadata"]["namespace"] = json!(rest.split('/').next());
        }
        object["metadata"]["uid"] = uid;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        self.tell(kind, path, &object);
        object
    }

    fn tell(&mut self, kind: &str, path: &str, object: &Value) {
        let collection = collection_of(path);
        let event = json!({"type": kind, "object": object});
        self.watches.retain(|(watched, events)| {
            *watched != collection || events.unbounded_send(event.clone()).is_ok()
        });
    }
}

/// A Status as the API server sends it.
pub fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason})
}

fn not_found(path: &str) -> Value {
    let mut status = failure(404, "NotFound");
    status["details"] = json!({"name": path.rsplit('/').next(), "kind": "things"});
    status
}

fn reply(code: u16, value: &Value) -> Response<Reply> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let body = StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from(text)))]).boxed());
    Response::builder().status(code).body(body).unwrap()
}

/// Whether a path is that of all objects of a kind: `/apis/GROUP/VERSION/PLURAL`.
fn is_collection(path: &str) -> bool {
    path.matches('/').count() == 4
}

/// The path of all objects of the kind of the object at a path.
fn collection_of(path: &str) -> String {
    let parts: Vec<_> = path.split('/').collect();
    let plural = parts[parts.len() - 2];
    format!("/{}/{}/{}/{plural}", parts[1], parts[2], parts[3])
}

fn is_stale(object: &Value, sent: &Value) -> bool {
    ["uid", "resourceVersion"].iter().any(|field| {
        let (there, asked) = (&object["metadata"][field], &sent["metadata"][field]);
        !asked.is_null() && asked != there
    })
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}
