//! The API of a hub, as far as a user server needs it: lists, watches and reviews of tokens.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::Certificate;

const ACCOUNT: &str = "hub-addons-user-server";
const PROXY_NAMESPACE: &str = "open-cluster-management-addon";
const CLUSTER_API: &str = "cluster.open-cluster-management.io";

/// A hub. Clones share its objects.
#[derive(Clone)]
pub struct Hub {
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    objects: Mutex<Objects>,
    /// The number of events.
    changed: watch::Sender<usize>,
    /// Each watch has a clone.
    watches: Arc<()>,
    reviews: AtomicUsize,
}

#[derive(Default)]
struct Objects {
    /// By the plural of the kind, the namespace and the name.
    all: BTreeMap<[String; 3], Value>,
    /// Each event increases the version by one.
    events: Vec<(String, Value)>,
}

/// A token that the hub accepts for an hour: of the ServiceAccount `application` of a namespace. Each number is another
/// one.
#[must_use]
pub fn token(namespace: &str, number: usize) -> String {
    forged(namespace, number, "valid")
}

/// The same with another signature.
#[must_use]
pub(crate) fn forged(namespace: &str, number: usize, signature: &str) -> String {
    let expiry = Timestamp::now().as_second() + 3600;
    let subject = format!("system:serviceaccount:{namespace}:application");
    let claims =
        json!({ "aud": ["hub-addons"], "exp": expiry, "sub": subject, "jti": number.to_string() });
    format!("e30.{}.{signature}", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

impl Hub {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            objects: Mutex::default(),
            changed: watch::Sender::new(0),
            watches: Arc::default(),
            reviews: 0.into(),
        };
        let hub = Self { address, state: Arc::new(state) };
        let set =
            json!({ "clusterSelector": { "selectorType": "LabelSelector", "labelSelector": {} } });
        hub.set("managedclustersets", "", "global", json!({ "spec": set }));
        let server = hub.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let hub = server.clone();
                let service = service_fn(move |request| {
                    let hub = hub.clone();
                    async move { Ok::<_, Infallible>(hub.respond(request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        hub
    }

    /// How many tokens it has reviewed.
    #[must_use]
    pub fn reviews(&self) -> usize {
        self.state.reviews.load(Ordering::Relaxed)
    }

    /// How many watches are open.
    #[must_use]
    pub fn watches(&self) -> usize {
        Arc::strong_count(&self.state.watches) - 1
    }

    pub fn accept_cluster(&self, name: &str) {
        self.set("managedclusters", "", name, json!({ "spec": { "hubAcceptsClient": true } }));
    }

    /// Reports the account of a user server in a namespace.
    pub fn report_account(&self, namespace: &str, ca: &str) {
        self.set_secret(namespace, ACCOUNT, &[("token", "account"), ("ca.crt", ca)]);
    }

    pub(crate) fn add_proxy_server(&self, certificate: &Certificate) {
        let Certificate { pem, key } = certificate;
        self.set_secret(PROXY_NAMESPACE, "proxy-client", &[("tls.crt", pem), ("tls.key", key)]);
        self.set_secret(PROXY_NAMESPACE, "proxy-server-ca", &[("ca.crt", pem)]);
    }

    fn set_secret(&self, namespace: &str, name: &str, data: &[(&str, &str)]) {
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, value)| (*key, STANDARD.encode(value))).collect();
        self.set("secrets", namespace, name, json!({ "data": data }));
    }

    /// Grants all clusters to a namespace.
    pub fn bind(&self, namespace: &str) {
        let bound = json!({
            "type": "Bound", "status": "True", "reason": "ClusterSetBound", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let binding =
            json!({ "spec": { "clusterSet": "global" }, "status": { "conditions": [bound] } });
        self.set("managedclustersetbindings", namespace, "global", binding);
    }

    /// Ends that grant.
    pub fn unbind(&self, namespace: &str) {
        let key = ["managedclustersetbindings", namespace, "global"].map(ToOwned::to_owned);
        let mut objects = self.state.objects.lock();
        if let Some(object) = objects.all.remove(&key) {
            self.event(&mut objects, "DELETED", key, object);
        }
    }

    fn set(&self, plural: &str, namespace: &str, name: &str, mut object: Value) {
        let (api_version, kind) = match plural {
            "secrets" => ("v1".to_owned(), "Secret"),
            "managedclusters" => (format!("{CLUSTER_API}/v1"), "ManagedCluster"),
            "managedclustersets" => (format!("{CLUSTER_API}/v1beta2"), "ManagedClusterSet"),
            _ => (format!("{CLUSTER_API}/v1beta2"), "ManagedClusterSetBinding"),
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({ "name": name, "uid": format!("{plural}-{namespace}-{name}") });
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let mut objects = self.state.objects.lock();
        self.event(&mut objects, "ADDED", [plural, namespace, name].map(ToOwned::to_owned), object);
    }

    fn event(&self, objects: &mut Objects, kind: &str, key: [String; 3], mut object: Value) {
        object["metadata"]["resourceVersion"] = json!((objects.events.len() + 1).to_string());
        objects.events.push((key[0].clone(), json!({ "type": kind, "object": object })));
        if kind == "ADDED" {
            objects.all.insert(key, object);
        }
        self.state.changed.send_replace(objects.events.len());
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let (path, query) =
            (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let plural = path.rsplit('/').next().unwrap_or_default().to_owned();
        let value = |name: &str| {
            let mut values = query.split('&').filter_map(|part| part.split_once('='));
            values.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        let text = |value: &Value| Full::from(value.to_string()).boxed_unsync();
        if plural == "tokenreviews" {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            return Response::new(text(&self.review(serde_json::from_slice(&body).unwrap())));
        }
        let namespace = path.split("/namespaces/").nth(1).and_then(|rest| rest.split('/').next());
        let name = value("fieldSelector").map(|selector| selector.replace("%3D", "="));
        let name = name.and_then(|selector| Some(selector.split_once('=')?.1.to_owned()));
        let (namespace, wanted) = (namespace.map(ToOwned::to_owned), plural.clone());
        let is_selected = move |object: &Value| {
            let is = |field: &str, wanted: &Option<String>| {
                wanted.as_ref().is_none_or(|wanted| object["metadata"][field] == wanted.as_str())
            };
            is("namespace", &namespace) && is("name", &name)
        };
        if value("watch").is_none() {
            let objects = self.state.objects.lock();
            let of_kind =
                objects.all.iter().filter(|(key, _)| key[0] == wanted).map(|(_, object)| object);
            let items: Vec<_> = of_kind.filter(|object| is_selected(object)).collect();
            let metadata = json!({ "resourceVersion": objects.events.len().max(1).to_string() });
            let list =
                json!({ "apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items });
            return Response::new(text(&list));
        }
        let after =
            value("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0_usize);
        let state = Arc::clone(&self.state);
        let events =
            stream::unfold((after, state.changed.subscribe()), move |(after, mut changed)| {
                let state = Arc::clone(&state);
                async move {
                    changed.wait_for(|events| *events > after).await.ok()?;
                    let objects = state.objects.lock();
                    let new = objects.events[after..].to_vec();
                    Some((stream::iter(new), (objects.events.len(), changed.clone())))
                }
            });
        let open = Arc::clone(&self.state.watches);
        let lines = events.flatten().filter(move |(plural, event)| {
            let _ = &open;
            std::future::ready(*plural == wanted && is_selected(&event["object"]))
        });
        let frames = lines.map(|(_, event)| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn review(&self, mut review: Value) -> Value {
        self.state.reviews.fetch_add(1, Ordering::Relaxed);
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        let claims = token.strip_suffix(".valid").and_then(|token| token.split('.').nth(1));
        let claims = claims.and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
        let claims: Option<Value> = claims.and_then(|claims| serde_json::from_slice(&claims).ok());
        review["status"] = match claims {
            Some(claims) => json!({
                "authenticated": true, "audiences": review["spec"]["audiences"],
                "user": { "username": claims["sub"] },
            }),
            None => json!({ "authenticated": false, "user": {} }),
        };
        review
    }
}
