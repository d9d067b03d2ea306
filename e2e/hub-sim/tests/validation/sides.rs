//! The two servers that are compared.

use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use hub_sim::model::{Answer, Request, Server};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// The response of a server: the status code and the body.
pub type Response = (u16, Value);

/// A server.
pub enum Side {
    Model(Box<Server>),
    /// A real API server.
    Real(Client),
}

/// The servers, the model first.
pub type Sides = [Side; 2];

impl Side {
    /// A model with these CRDs.
    pub fn model(crds: Vec<Value>) -> Self {
        Self::Model(Box::new(Server::new(crds)))
    }

    /// Changes the model by other means than requests.
    pub fn change_model<T>(&mut self, change: impl FnOnce(&mut Server) -> T) -> T {
        match self {
            Self::Model(server) => change(server),
            Self::Real(_) => unreachable!("it is the model"),
        }
    }

    /// Sends a request other than a watch.
    pub async fn send(&mut self, request: &Request) -> Response {
        let client = match self {
            Self::Real(client) => client,
            Self::Model(server) => {
                return match server.handle(request) {
                    Answer::Object(code, object) => (code, object),
                    Answer::Failure(failure) if failure.reason.is_empty() => {
                        (failure.code, json!(failure.message))
                    }
                    Answer::Failure(failure) => (failure.code, failure.status()),
                    Answer::Watch(_) => unreachable!("watches are not sent"),
                };
            }
        };
        let response = client.send(http(request).map(Body::from)).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (code, serde_json::from_str(&text).unwrap_or(json!(text)))
    }

    /// The events of a watch, until the expected number has arrived or the watch ends.
    pub async fn watch(&mut self, request: &Request, expected: usize) -> Vec<Value> {
        let client = match self {
            Self::Real(client) => client,
            Self::Model(server) => {
                let Answer::Watch(mut start) = server.handle(request) else { return Vec::new() };
                let mut events = start.first;
                if !start.ended {
                    events.extend(server.follow(&mut start.watching).unwrap());
                }
                return events;
            }
        };
        let mut request = request.clone();
        request.query.insert("timeoutSeconds".to_owned(), "2".to_owned());
        let mut lines = client.request_stream(http(&request)).await.unwrap().lines();
        let mut events = Vec::new();
        // An additional event would be a difference, so this waits until the watch ends.
        let all = async {
            while let Some(line) = lines.try_next().await.unwrap() {
                events.push(serde_json::from_str(&line).unwrap());
                if events.len() > expected {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_mins(1), all).await;
        events
    }
}

/// The request to a real server.
fn http(request: &Request) -> http::Request<Vec<u8>> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let content_type =
        if request.method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    http::Request::builder()
        .method(request.method.as_str())
        .uri(format!("{}?{}", request.path, query.extend_pairs(&request.query).finish()))
        .header("Accept", &request.accept)
        .header("Content-Type", content_type)
        .header("User-Agent", &request.agent)
        .body(request.body.clone())
        .unwrap()
}
