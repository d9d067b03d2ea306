//! The requests of one watch: pages of a list, the current resourceVersion of a list, and the stream of events.

use std::future::Future;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::io::AsyncBufReadExt as _;
use futures::stream::BoxStream;
use futures::{AsyncBufRead as _, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Client;
use kube::api::{ListParams, Request, WatchParams};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::WATCH_DURATION;
use super::error::{Malformed, WatchError};
use super::items::Items;
use super::page_size::PageSize;

/// Longest time without data from the API server during a list or before a watch starts. The API server ends its own
/// requests after a minute.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// An event with its object as text, for the caller to decode.
#[derive(Debug, Deserialize)]
pub(super) struct RawEvent {
    #[serde(rename = "type")]
    pub(super) kind: EventType,
    pub(super) object: Box<RawValue>,
}

impl RawEvent {
    /// Parses one line of a stream; `None` if the line is truncated.
    fn read(line: std::io::Result<String>) -> Option<Result<Self, WatchError>> {
        let line = match line {
            Ok(line) => line,
            Err(error) => return Some(Err(WatchError::Stream(kube::Error::ReadEvents(error)))),
        };
        match serde_json::from_str(&line) {
            Ok(event) => Some(Ok(event)),
            Err(error) if error.is_eof() => None,
            // Without the decoder's error, which may quote a Secret.
            Err(_) => Some(Err(Malformed("a line that is not an event".to_owned()).into())),
        }
    }
}

/// Whether whole objects or only their metadata are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    Metadata,
}

/// The path of a collection whose version can change between requests.
pub trait ServedPath: Send + Sync {
    /// The path, as far as it is known.
    fn current(&self) -> String;
    /// Waits until it is known.
    fn known(&self) -> BoxFuture<'_, ()>;
}

pub(super) enum CollectionPath {
    Fixed(String),
    Served(Box<dyn ServedPath>),
}

/// The collection of one watch and its selectors.
pub(super) struct WatchEndpoint {
    pub(super) client: Client,
    pub(super) path: CollectionPath,
    pub(super) extent: Extent,
    pub(super) fields: Option<String>,
    pub(super) labels: Option<String>,
    pub(super) page: PageSize,
}

impl WatchEndpoint {
    /// Reads one page of a list, item by item, and returns the list's metadata.
    pub(super) async fn page(
        &self,
        continue_token: Option<String>,
        item: impl FnMut(&[u8]) -> Result<(), Malformed>,
    ) -> Result<ListMeta, WatchError> {
        let params = ListParams { continue_token, ..self.list_params(self.page.limit()) };
        self.list(&params, self.extent, item).await
    }

    /// The current resourceVersion of the list. It is consistent: no earlier list had a later version. The response
    /// contains the metadata of at most one object.
    pub(super) async fn version(&self) -> Result<String, WatchError> {
        let list = self.list(&self.list_params(Some(1)), Extent::Metadata, |_| Ok(())).await?;
        Ok(version_of(list)?)
    }

    /// Starts a watch after this version; returns when the API server has accepted it.
    pub(super) async fn watch(
        &self,
        version: &str,
    ) -> Result<BoxStream<'static, Result<RawEvent, WatchError>>, WatchError> {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: u32::try_from(WATCH_DURATION.as_secs()).ok(),
            bookmarks: true,
            send_initial_events: false,
        };
        let request = self.request().await;
        let request = match self.extent {
            Extent::Whole => request.watch(&params, version),
            Extent::Metadata => request.watch_metadata(&params, version),
        };
        let request =
            request.map_err(|error| WatchError::Start(kube::Error::BuildRequest(error)))?;
        let lines =
            in_time(self.client.request_stream(request)).await?.map_err(WatchError::Start)?.lines();
        Ok(lines.filter_map(async |line| RawEvent::read(line)).boxed())
    }

    async fn list(
        &self,
        params: &ListParams,
        extent: Extent,
        mut item: impl FnMut(&[u8]) -> Result<(), Malformed>,
    ) -> Result<ListMeta, WatchError> {
        let request = self.request().await;
        let request = match extent {
            Extent::Whole => request.list(params),
            Extent::Metadata => request.list_metadata(params),
        };
        let request =
            request.map_err(|error| WatchError::List(kube::Error::BuildRequest(error)))?;
        let text = in_time(self.client.request_stream(request)).await?.map_err(WatchError::List)?;
        let mut text = std::pin::pin!(text);
        let mut items = Items::default();
        loop {
            let broken = |error| WatchError::List(kube::Error::ReadEvents(error));
            let part = in_time(text.fill_buf()).await?.map_err(broken)?;
            if part.is_empty() {
                return Ok(items.finish()?);
            }
            items.read(part, &mut item)?;
            let length = part.len();
            text.as_mut().consume(length);
        }
    }

    async fn request(&self) -> Request {
        if let CollectionPath::Served(path) = &self.path {
            path.known().await;
        }
        Request::new(self.current_path())
    }

    /// The path of the collection, as far as the served version is known.
    pub(super) fn current_path(&self) -> String {
        match &self.path {
            CollectionPath::Fixed(path) => path.clone(),
            CollectionPath::Served(path) => path.current(),
        }
    }

    fn list_params(&self, limit: Option<u32>) -> ListParams {
        ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit,
            ..ListParams::default()
        }
    }
}

/// The version of a list.
pub(super) fn version_of(list: ListMeta) -> Result<String, Malformed> {
    let version = list.resource_version.filter(|version| !version.is_empty());
    version.ok_or_else(|| Malformed("the list has no resourceVersion to watch from".to_owned()))
}

async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T, WatchError> {
    tokio::time::timeout(ANSWER_TIMEOUT, answer).await.map_err(|_| WatchError::Silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_line_is_the_end_of_a_stream_and_any_other_an_error_that_does_not_quote_it() {
        let read = |line: &str| RawEvent::read(Ok(line.to_owned()));
        assert!(read("{\"type\": \"ADDED\", \"object\": {\"a\"").is_none());
        assert!(read("{\"type\": \"ADDED\", \"object\": {}}").is_some_and(|event| event.is_ok()));
        let error = read("{\"type\": \"secret\", \"object\": {}}").unwrap().unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
