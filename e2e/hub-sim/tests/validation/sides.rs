//! The two servers that are compared.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use hub_sim::model::{Answer, Request, Server};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// The response of a server: the status code and the body.
pub type Response = (u16, Value);

/// A server.
pub trait Side: Send {
    /// Sends a request other than a watch.
    fn send<'a>(&'a mut self, request: &'a Request) -> BoxFuture<'a, Response>;
    /// The events of a watch, until the expected number has arrived or the watch ends.
    fn watch<'a>(&'a mut self, request: &'a Request, expected: usize) -> BoxFuture<'a, Vec<Value>>;
}

/// The servers, the model first.
pub type Sides = [Box<dyn Side>; 2];

pub struct Model(pub Server);

impl Side for Model {
    fn send<'a>(&'a mut self, request: &'a Request) -> BoxFuture<'a, Response> {
        let response = match self.0.handle(request) {
            Answer::Object(code, object) => (code, object),
            Answer::Failure(failure) if failure.reason.is_empty() => {
                (failure.code, json!(failure.message))
            }
            Answer::Failure(failure) => (failure.code, failure.status()),
            Answer::Watch(_) => unreachable!("watches are not sent"),
        };
        Box::pin(async { response })
    }

    fn watch<'a>(&'a mut self, request: &'a Request, _: usize) -> BoxFuture<'a, Vec<Value>> {
        let Answer::Watch(mut start) = self.0.handle(request) else {
            return Box::pin(async { Vec::new() });
        };
        let mut events = start.first;
        if !start.ended {
            events.extend(self.0.follow(&mut start.watching).unwrap());
        }
        Box::pin(async { events })
    }
}

/// A real API server.
pub struct Real(pub Client);

impl Real {
    fn http(request: &Request) -> http::Request<Body> {
        let query: Vec<String> = request
            .query
            .iter()
            .map(|(key, value)| {
                format!(
                    "{key}={}",
                    value.replace('=', "%3D").replace(',', "%2C").replace('!', "%21")
                )
            })
            .collect();
        let content_type = if request.method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        http::Request::builder()
            .method(request.method.as_str())
            .uri(format!("{}?{}", request.path, query.join("&")))
            .header("Accept", &request.accept)
            .header("Content-Type", content_type)
            .header("User-Agent", &request.agent)
            .body(Body::from(request.body.clone()))
            .unwrap()
    }
}

impl Side for Real {
    fn send<'a>(&'a mut self, request: &'a Request) -> BoxFuture<'a, Response> {
        Box::pin(async move {
            let response = self.0.send(Self::http(request)).await.unwrap();
            let code = response.status().as_u16();
            let bytes = response.into_body().collect_bytes().await.unwrap();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            (code, serde_json::from_str(&text).unwrap_or(json!(text)))
        })
    }

    fn watch<'a>(&'a mut self, request: &'a Request, expected: usize) -> BoxFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut request = request.clone();
            request.query.insert("timeoutSeconds".to_owned(), "2".to_owned());
            let mut lines =
                self.0.request_stream(Self::http_of_bytes(&request)).await.unwrap().lines();
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
        })
    }
}

impl Real {
    fn http_of_bytes(request: &Request) -> http::Request<Vec<u8>> {
        let (parts, _) = Self::http(request).into_parts();
        http::Request::from_parts(parts, request.body.clone())
    }
}
