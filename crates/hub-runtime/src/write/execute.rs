//! Sends a planned write.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use http::HeaderValue;
use http::header::{ACCEPT, CONTENT_TYPE};
use hub_core::action::Action;
use hub_core::status_request::{StatusRequest, status_request};
use hub_core::version::{Uid, Version};
use kube::api::{
    DeleteParams, DynamicObject, GetParams, ListParams, ObjectList, Patch, PatchParams, PostParams,
    Preconditions, Request as Requests,
};
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tracing::info;

use super::Writer;
use super::error::{Category, WriteError};
use crate::written::Left;

/// Asks for the metadata alone, if nothing is planned from the response. A server without this representation returns the
/// object.
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The object of a write.
#[derive(Debug, Clone)]
#[must_use]
pub struct Target {
    /// The resource's plural.
    pub resource: &'static str,
    /// The requests to its collection.
    requests: Requests,
    /// `metadata.name`.
    pub name: String,
    /// `NAMESPACE/NAME`, or `NAME` if cluster-scoped.
    pub full_name: String,
    /// The field manager of creates and patches; `None` means that of the client.
    field_manager: Option<&'static str>,
}

/// What is read of a response: an object, or after a delete perhaps a Status. Nothing else of it takes memory.
#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: ResponseMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResponseMetadata {
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<IgnoredAny>,
}

impl From<ResponseMetadata> for Version {
    fn from(metadata: ResponseMetadata) -> Self {
        Self {
            uid: metadata.uid.as_str().into(),
            resource_version: metadata.resource_version.into(),
        }
    }
}

impl Target {
    /// The object of a kind with this name.
    pub fn of<K: Resource>(
        resource: &'static str,
        kind: &K::DynamicType,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        Self {
            resource,
            requests: Requests::new(K::url_path(kind, namespace)),
            name: name.to_owned(),
            full_name: namespace
                .map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")),
            field_manager: None,
        }
    }

    /// The same with a field manager.
    pub fn managed_by(self, field_manager: &'static str) -> Self {
        Self { field_manager: Some(field_manager), ..self }
    }

    /// Reads the object as JSON, with a get or, without that permission, a list; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The read has failed.
    pub async fn read(
        &self,
        client: &Client,
        writer: &Writer,
        can_get: bool,
    ) -> Result<Option<String>, WriteError> {
        if !can_get {
            let params = ListParams::default().fields(&format!("metadata.name={}", self.name));
            let listing = async {
                let list = self.requests.list(&params).map_err(kube::Error::BuildRequest)?;
                client.request::<ObjectList<DynamicObject>>(list).await
            };
            let found = writer.send("list", self, listing).await?.items.pop();
            return Ok(found.map(|object| json!(object).to_string()));
        }
        let reading = async {
            let get = self.requests.get(&self.name, &GetParams::default());
            client.request_text(get.map_err(kube::Error::BuildRequest)?).await
        };
        match writer.send("get", self, reading).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.category == Category::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a write. Returns what it has left, and the response: whole after a delete, and after a create if
    /// `returns_created`; otherwise only the metadata of the object. A delete by uid that finds no object with this uid has
    /// left none.
    ///
    /// # Errors
    ///
    /// The write has failed.
    pub async fn write(
        &self,
        client: &Client,
        writer: &Writer,
        write: Write,
        returns_created: bool,
    ) -> Result<(Left, String), WriteError> {
        let verb = write.verb().unwrap_or_default();
        let field_manager = self.field_manager.map(str::to_owned);
        let patching =
            PatchParams { field_manager: field_manager.clone(), ..PatchParams::default() };
        let (requests, name) = (&self.requests, &*self.name);
        let is_by_uid = matches!(write, Action::DeleteByUid(_));
        let gone = Left::Gone(write.uid().cloned().unwrap_or_else(|| "".into()));
        let (request, done) = match write {
            Action::Nothing => return Ok((gone, String::new())),
            Action::Create(object) => {
                let params = PostParams { field_manager, ..PostParams::default() };
                let create = requests.create(&params, object);
                (if returns_created { create } else { create.map(metadata_only) }, "created")
            }
            Action::Patch(version, patch) => {
                let patch = Patch::Merge(under(&version, patch));
                (requests.patch(name, &patching, &patch).map(metadata_only), "updated")
            }
            Action::PatchStatus(version, patch) => {
                let patch = status_request(&version, patch);
                (patch_status(requests, name, &patching, patch).map(metadata_only), "")
            }
            Action::Delete(version) => {
                let version = (&version.uid, Some(&*version.resource_version));
                (requests.delete(name, &only(version)), "deleted")
            }
            Action::DeleteByUid(uid) => (requests.delete(name, &only((&uid, None))), "deleted"),
        };
        let sending = async {
            let text = client.request_text(request.map_err(kube::Error::BuildRequest)?).await?;
            let response: Response =
                serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
            Ok((response, text))
        };
        let (response, text) = match writer.send(verb, self, sending).await {
            Ok(response) => response,
            // The object is gone, and another may have its name.
            Err(error)
                if is_by_uid
                    && matches!(error.category, Category::NotFound | Category::Conflict) =>
            {
                return Ok((gone, String::new()));
            }
            Err(error) => return Err(error),
        };
        if !done.is_empty() {
            info!(resource = self.resource, object = self.full_name, "{done}");
        }
        // If a finalizer delays the delete, the response contains the object with its deletionTimestamp.
        let is_gone = verb == "delete"
            && (response.kind == "Status" || response.metadata.deletion_timestamp.is_none());
        let left = if is_gone { gone } else { Left::Exists(response.metadata.into()) };
        Ok((left, text))
    }
}

/// A write as it is sent: the object to create is JSON. It may contain a token, so nothing prints it.
pub type Write = Action<Vec<u8>, Value>;

/// Distinguishes what two writes of the same verb would make of an object.
#[must_use]
pub fn content(write: &Write) -> u64 {
    let mut hasher = DefaultHasher::new();
    match write {
        Action::Create(object) => object.hash(&mut hasher),
        Action::Patch(_, patch) | Action::PatchStatus(_, patch) => patch.hash(&mut hasher),
        Action::Nothing | Action::Delete(_) | Action::DeleteByUid(_) => {}
    }
    hasher.finish()
}

/// The version of an object in JSON.
#[must_use]
pub fn version(object: &str) -> Option<Version> {
    Some(serde_json::from_str::<Response>(object).ok()?.metadata.into())
}

/// The request that changes a status.
///
/// # Errors
///
/// The request cannot be built.
pub fn patch_status(
    requests: &Requests,
    name: &str,
    params: &PatchParams,
    patch: StatusRequest,
) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
    let (body, content_type) = match patch {
        StatusRequest::Merge(body) => (body, "application/merge-patch+json"),
        StatusRequest::Json(body) => (body, "application/json-patch+json"),
    };
    let mut request = requests.patch_subresource("status", name, params, &Patch::Merge(body))?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(request)
}

fn metadata_only(mut request: http::Request<Vec<u8>>) -> http::Request<Vec<u8>> {
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA));
    request
}

/// A merge patch that applies only to this version of the object.
fn under(version: &Version, mut patch: Value) -> Value {
    patch["metadata"]["uid"] = json!(version.uid);
    patch["metadata"]["resourceVersion"] = json!(version.resource_version);
    patch
}

/// Deletes only the object with this uid, and only in this version if one is given.
fn only((uid, version): (&Uid, Option<&str>)) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.to_string()),
        resource_version: version.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::api::{ApiResource, GroupVersionKind};
    use kube::client::Body;

    use super::*;
    use crate::host::lease::Claim;
    use crate::observe::metrics::Metrics;

    fn version() -> Version {
        Version { uid: "u1".into(), resource_version: "7".into() }
    }

    #[test]
    fn a_patch_applies_to_one_version_of_one_object() {
        assert_eq!(
            under(&version(), json!({ "metadata": { "labels": { "x": "y" } }, "spec": {} })),
            json!({ "metadata": { "uid": "u1", "resourceVersion": "7", "labels": { "x": "y" } }, "spec": {} })
        );
    }

    fn target() -> Target {
        let kind = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("test", "v1", "Thing"),
            "things",
        );
        Target::of::<DynamicObject>("things", &kind, None, "a")
    }

    /// A client whose requests all get this response.
    fn responding(code: u16, response: &Value) -> (Client, Writer) {
        let response = response.to_string();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            let is_partial = matches!(request.method().as_str(), "POST" | "PATCH") && code != 201;
            assert_eq!(accept == Some(METADATA), is_partial);
            let response = Body::from(response.clone().into_bytes());
            let response = http::Response::builder().status(code).body(response).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let writer = Writer::new(Claim::Always, Metrics::new("0"));
        (Client::new(service, "default"), writer)
    }

    fn object() -> Value {
        json!({ "kind": "Thing", "metadata": { "uid": "u1", "resourceVersion": "7" } })
    }

    fn failure(code: u16, reason: &str) -> (u16, Value) {
        let details = json!({ "kind": "things", "name": "a" });
        (code, json!({ "kind": "Status", "code": code, "reason": reason, "details": details }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_fails_does_not_show_that_there_is_no_object() {
        let text = object().to_string();
        for ((code, response), found) in [
            ((200, object()), Ok(Some(text))),
            (failure(404, "NotFound"), Ok(None)),
            (failure(403, "Forbidden"), Err(Category::Forbidden)),
            (failure(500, "InternalError"), Err(Category::Internal)),
        ] {
            let (client, writer) = responding(code, &response);
            let read = target().read(&client, &writer, true).await;
            assert_eq!(read.map_err(|error| error.category), found, "{response}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_has_left_what_its_response_shows() {
        let mut held = object();
        held["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let (held, object, created) = ((200, held), (200, object()), (201, object()));
        let status = (200, json!({ "kind": "Status", "status": "Success" }));
        let (missing, other) = (failure(404, "NotFound"), failure(409, "Conflict"));
        let (there, broken) = (failure(409, "AlreadyExists"), failure(500, "InternalError"));
        let exists = || Ok(Left::Exists(version()));
        let gone = || Ok(Left::Gone("u1".into()));
        let create = Action::Create(b"{}".to_vec());
        let patch = Action::Patch(version(), json!({}));
        let patch_status = Action::PatchStatus(version(), json!({}));
        let delete = Action::Delete(version());
        let by_uid = Action::DeleteByUid("u1".into());
        for (write, (code, response), left) in [
            (&create, &created, exists()),
            (&create, &there, Err(Category::AlreadyExists)),
            (&create, &broken, Err(Category::Internal)),
            (&patch, &object, exists()),
            (&patch, &held, exists()),
            (&patch, &other, Err(Category::Conflict)),
            (&patch, &missing, Err(Category::NotFound)),
            (&patch_status, &object, exists()),
            (&delete, &status, gone()),
            (&delete, &object, gone()),
            (&delete, &held, exists()),
            (&delete, &other, Err(Category::Conflict)),
            (&delete, &missing, Err(Category::NotFound)),
            (&by_uid, &status, gone()),
            (&by_uid, &held, exists()),
            (&by_uid, &other, gone()),
            (&by_uid, &missing, gone()),
            (&by_uid, &broken, Err(Category::Internal)),
        ] {
            let (client, writer) = responding(*code, response);
            let written = target().write(&client, &writer, write.clone(), *code == 201).await;
            let found = written.map(|(left, _)| left).map_err(|error| error.category);
            assert_eq!(found, left, "{write:?}: {response}");
        }
    }
}
