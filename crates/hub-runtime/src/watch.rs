//! Watches that lose no delete, survive any object, and notice when the hub's history is another one.
//!
//! One watch is a list and then a stream of events, for as long as its task lives ([`follow`]). Every absence after a
//! new list becomes a delete, so that a [`Sink`] sees one simple history: apply, apply, delete ([`history`]).
//!
//! - An object that cannot be decoded reaches the sink as [`Unreadable`], with its metadata, and affects no other
//!   object ([`decode`]). This is why kube's watcher does not do: it decodes a page of a list as one value, and shows
//!   neither that a watch has begun nor that it is resumed.
//! - Lists are decoded while they arrive ([`items`]): memory holds one item, not a page.
//! - A complete list counts whatever its versions are, and what our own writes left in a cache is compared with it
//!   ([`own_writes`]).
//! - A kind whose CRD is missing is waited for ([`trouble`]).

mod decode;
mod endpoint;
mod error;
mod follow;
mod history;
mod items;
mod own_writes;
#[cfg(test)]
mod tests;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::core::{PartialObjectMeta, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::decode::{Metadata, Whole};
use self::endpoint::{Endpoint, Extent, Place};
use self::follow::Follower;
use self::history::History;
pub use self::own_writes::OwnWrites;
use self::trouble::Trouble;
use crate::health::{Need, SyncState};
use crate::metrics::Metrics;
use crate::served::ServedVersion;

/// How long one watch lasts before the API server ends it and the next begins where it ended.
pub const WATCH_DURATION: Duration = Duration::from_mins(2);

/// Objects in one page of a list. The same as client-go's.
const PAGE: u32 = 500;

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// `metadata.namespace`, empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl ObjectKey {
    fn of(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
        }
    }
}

/// An object that does not have the shape of its kind, or nests deeper than can be decoded.
#[derive(Debug)]
pub struct Unreadable {
    /// Its metadata as far as it can be read, which is at least what identifies the object.
    pub metadata: Box<ObjectMeta>,
    /// Its `spec`, where that can be read on its own.
    pub spec: Option<Value>,
    /// What is wrong with the rest.
    pub error: String,
}

/// Where a watch leaves what it sees. Called from one task, in order.
pub trait Sink<K>: Send + 'static {
    /// The object is there, as shown.
    fn apply(&mut self, key: &ObjectKey, object: Result<K, Unreadable>);
    /// The object is gone.
    fn delete(&mut self, key: &ObjectKey);
    /// A list begins, or begins anew after one that broke off. What it shows counts whatever its resourceVersions are:
    /// the hub may have another history than before (see [`OwnWrites`]).
    fn listing(&mut self) {}
    /// A list is complete: what has not been shown is not there.
    fn listed(&mut self) {}
    /// The API server refuses a list or a watch for lack of a permission.
    fn refused(&mut self) {}
}

/// What to watch.
pub struct Watch<K: Resource> {
    resource: &'static str,
    kind: K::DynamicType,
    name: Option<String>,
    labels: Option<String>,
    page: u32,
    need: Need,
    served: Option<ServedVersion>,
}

impl<K: Resource<DynamicType = ()>> Watch<K> {
    /// Every object of a kind; `resource` is its plural. Where one kind is watched twice in a process, it says which
    /// of them, too: it tells watches apart in logs, metrics and probes.
    #[must_use]
    pub fn all(resource: &'static str) -> Self {
        Self::dynamic(resource, ())
    }
}

impl<K: Resource> Watch<K> {
    /// Every object of a kind that is known by name only.
    #[must_use]
    pub fn dynamic(resource: &'static str, kind: K::DynamicType) -> Self {
        Self { resource, kind, name: None, labels: None, page: PAGE, need: Need::Required, served: None }
    }

    /// Only objects of this name: a right that is limited to it by `resourceNames` is enough.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Only objects that this label selector picks. A right cannot be limited to it.
    #[must_use]
    pub fn labelled(self, selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), ..self }
    }

    /// So many objects in one page of a list, instead of 500.
    #[must_use]
    pub fn paged(self, page: u32) -> Self {
        Self { page, ..self }
    }

    /// ClusterProfiles, in the version that the hub serves, from the moment when that is known.
    #[must_use]
    pub fn served_in(self, version: ServedVersion) -> Self {
        Self { served: Some(version), ..self }
    }

    /// The process can work without: see [`Need::Optional`].
    #[must_use]
    pub fn optional(self) -> Self {
        Self { need: Need::Optional, ..self }
    }

    /// It begins while the process is at work: see [`Need::Late`].
    #[must_use]
    pub fn late(self) -> Self {
        Self { need: Need::Late, ..self }
    }

    /// The kind, as far as it is not known at compile time.
    #[must_use]
    pub fn kind(&self) -> &K::DynamicType {
        &self.kind
    }

    /// The resource's plural.
    #[must_use]
    pub fn resource(&self) -> &'static str {
        self.resource
    }

    /// Whether the process can work without.
    #[must_use]
    pub fn need(&self) -> Need {
        self.need
    }

    /// The requests of the watch, of so much of each object, at the place that an `Api` stands for.
    fn endpoint(self, api: Api<K>, extent: Extent) -> Endpoint {
        let place = match self.served {
            Some(version) => Place::Profiles(version),
            None => Place::Fixed(api.resource_url().to_owned()),
        };
        let fields = self.name.map(|name| format!("metadata.name={name}"));
        Endpoint { client: api.into_client(), place, extent, fields, labels: self.labels, page: self.page }
    }
}

/// Whether a resourceVersion is later than another. Since KEP-5504 they are numbers that grow; where one is
/// not a number, any that differs is taken for later.
#[must_use]
pub fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

/// Watches whole objects, in every namespace or in one, for as long as the task lives. Errors are counted,
/// logged once and retried.
pub async fn objects<K>(api: Api<K>, watch: Watch<K>, sync: SyncState, metrics: Metrics, sink: impl Sink<K>)
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    let endpoint = watch.endpoint(api, Extent::Whole);
    follower(endpoint, Whole, sync, metrics, sink).follow::<K>().await;
}

/// Watches objects' metadata only, for as long as the task lives: their other fields are not even sent.
/// `managedFields` are left out.
pub async fn metadata<K>(
    api: Api<K>,
    watch: Watch<K>,
    sync: SyncState,
    metrics: Metrics,
    sink: impl Sink<PartialObjectMeta<K>>,
) where
    K: Resource + Send + 'static,
{
    let endpoint = watch.endpoint(api, Extent::Metadata);
    follower(endpoint, Metadata, sync, metrics, sink).follow::<PartialObjectMeta<K>>().await;
}

fn follower<S, D>(
    endpoint: Endpoint,
    decode: D,
    sync: SyncState,
    metrics: Metrics,
    sink: S,
) -> Follower<S, D> {
    let trouble = Trouble::new(sync.resource(), metrics);
    Follower { endpoint, decode, history: History::new(sink), trouble, sync }
}
