//! A hub's keys in etcd, by its JSON gateway: <https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/>.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::{HubError, programs};

/// What the API server's keys begin with, and the first key after all of these.
const PREFIX: &str = "/registry/";
const END: &str = "/registry0";

/// A connection to a hub's etcd.
pub(crate) struct Etcd(SendRequest<Full<Bytes>>);

impl Etcd {
    pub(crate) async fn connect(directory: &Path) -> Result<Self, HubError> {
        let socket = directory.join(programs::ETCD_CLIENTS);
        let stream = UnixStream::connect(&socket)
            .await
            .map_err(|source| HubError::io(format!("connect to {}", socket.display()), source))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // It ends with the sender.
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// The API server's keys, without their common prefix, each with the revision of its last change.
    pub(crate) async fn revisions(&mut self) -> Result<BTreeMap<String, u64>, HubError> {
        let range = json!({ "key": STANDARD.encode(PREFIX), "range_end": STANDARD.encode(END), "keys_only": true });
        let range: Range = self.post("/v3/kv/range", &range).await?;
        range.kvs.into_iter().map(Key::decode).collect()
    }

    /// Deletes one of these keys, if it exists.
    pub(crate) async fn delete(&mut self, key: &str) -> Result<(), HubError> {
        let _: Value = self
            .post(
                "/v3/kv/deleterange",
                &json!({ "key": STANDARD.encode(format!("{PREFIX}{key}")) }),
            )
            .await?;
        Ok(())
    }

    async fn post<T: DeserializeOwned>(&mut self, path: &str, body: &Value) -> Result<T, HubError> {
        let request = http::Request::post(path)
            .header(http::header::HOST, "etcd")
            .body(Full::from(body.to_string()))
            .map_err(failed)?;
        let response = self.0.send_request(request).await.map_err(failed)?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(failed)?.to_bytes();
        if !status.is_success() {
            return Err(failed(format!("{status}: {}", String::from_utf8_lossy(&body))));
        }
        serde_json::from_slice(&body).map_err(failed)
    }
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> HubError {
    HubError::io("ask etcd", std::io::Error::other(error))
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Key>,
}

/// As in the gateway: bytes in base64, 64-bit numbers as text.
#[derive(Deserialize)]
struct Key {
    key: String,
    mod_revision: String,
}

impl Key {
    fn decode(self) -> Result<(String, u64), HubError> {
        let key = String::from_utf8(STANDARD.decode(self.key).map_err(failed)?).map_err(failed)?;
        let revision = self.mod_revision.parse().map_err(failed)?;
        Ok((key.trim_start_matches(PREFIX).to_owned(), revision))
    }
}
