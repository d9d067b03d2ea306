//! Watches that lose no delete, tolerate any object, and notice when the hub's history is replaced.
//!
//! A watch is a list followed by streams of events, for as long as its task runs ([`follow`]). An object that is
//! missing from a new list becomes a delete, so that a [`Sink`] receives one simple history: apply, apply, delete
//! ([`history`]).
//!
//! - An object that cannot be decoded reaches the sink as [`Unreadable`], with its metadata, and affects no other
//!   object ([`mod@decode`]). This is why kube's watcher is not used: it decodes a page of a list as one value, and reports
//!   neither the start nor the resumption of a watch.
//! - Lists are decoded while they arrive ([`items`]): memory contains one item, not a page.
//! - Only the watch writes into a cache, and what our own writes have changed is planned again when the watch has shown
//!   it ([`crate::written`]).
//! - A kind whose CRD is missing is retried until it is served ([`trouble`]).
//! - Knowledge has an age: what a watch has shown is unknown when its kind could be neither listed nor watched for a
//!   minute, as before its first list ([`unread`]).

mod decode;
mod endpoint;
mod error;
mod follow;
mod history;
mod items;
mod page_size;
mod seen_history;
#[cfg(test)]
mod tests;
mod trouble;
mod unread;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

pub use hub_api::Unreadable;
pub use hub_api::names::ObjectKey;
use hub_api::text::Text;
use hub_core::known::Known;
use kube::Client;
use kube::core::{NamespaceResourceScope, PartialObjectMeta, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use self::decode::Decode;
pub use self::endpoint::ServedPath;
use self::endpoint::{CollectionPath, Extent, WatchEndpoint};
use self::follow::Follower;
use self::history::{Decoding, History};
use self::page_size::PageSize;
use self::seen_history::{Era, SeenHistory};
use self::trouble::{Logged, Trouble};
use self::unread::{Unavailable, UnreadKinds};
use crate::observe::health::{Need, SyncState};
use crate::observe::report::{Clock, Reporter};

/// How long one watch lasts before the API server ends it and the next one continues.
pub const WATCH_DURATION: Duration = Duration::from_mins(2);

/// Page size of a list, as in client-go.
const PAGE: u32 = 500;

/// Page size for objects of which little is kept: a list that fits into one page is one request.
pub const LARGE_PAGE: u32 = 5000;

/// Receives what a watch shows. Called from one task, in order.
pub trait Sink<K>: Send + 'static {
    /// The object exists, as shown.
    fn apply(&mut self, key: &ObjectKey, object: Result<K, Unreadable>);
    /// The object does not exist any more.
    fn delete(&mut self, key: &ObjectKey);
    /// A list is complete: what it has not shown does not exist. Its objects have been applied regardless of their
    /// resourceVersions: the hub may have another history than before.
    fn listed(&mut self) {
        self.set_read(true);
    }
    /// The list that is complete has no object; called after [`Self::listed`]. For watches on one object, which then
    /// does not exist.
    fn none_listed(&mut self) {}
    /// The kind could be neither listed nor watched for a minute. What the watch has shown is unknown until the next
    /// [`Self::listed`], as before the first one: then a list follows in any case.
    fn unread(&mut self) {
        self.set_read(false);
    }
    /// What the watch has shown is known, or unknown: for sinks without [`Self::listed`] and [`Self::unread`] of their own.
    fn set_read(&mut self, _is_read: bool) {}
    /// Lists and watches have failed for this long, or with `None` no longer fail. Called after each failure.
    fn failing(&mut self, _since: Option<Duration>) {}
    /// The API server refuses a list or a watch for lack of permission.
    fn refused(&mut self) {}
    /// The API server does not serve the kind: its CRD is missing. Returns whether this shows that no object exists,
    /// because the kind need not be installed; otherwise it is unknown after a minute.
    fn not_served(&mut self) -> bool {
        false
    }
}

/// Receives the one object of a watch on a name, which is unknown until the first list and while it cannot be read.
pub struct One<F>(pub F);

impl<K, F: FnMut(Known<Result<K, Unreadable>>) + Send + 'static> Sink<K> for One<F> {
    fn apply(&mut self, _: &ObjectKey, object: Result<K, Unreadable>) {
        self.0(Known::Present(object));
    }

    fn delete(&mut self, _: &ObjectKey) {
        self.0(Known::Absent);
    }

    fn none_listed(&mut self) {
        self.0(Known::Absent);
    }

    fn unread(&mut self) {
        self.0(Known::Unknown);
    }
}

/// Receives each object of a watch, `None` for one that does not exist any more, and whether they can be read.
pub struct Each<S, K> {
    pub store: S,
    pub set: fn(&S, &ObjectKey, Option<Result<K, Unreadable>>),
    pub set_read: fn(&S, bool),
}

impl<S: Send + 'static, K: 'static> Sink<K> for Each<S, K> {
    fn apply(&mut self, key: &ObjectKey, object: Result<K, Unreadable>) {
        (self.set)(&self.store, key, Some(object));
    }

    fn delete(&mut self, key: &ObjectKey) {
        (self.set)(&self.store, key, None);
    }

    fn set_read(&mut self, is_read: bool) {
        (self.set_read)(&self.store, is_read);
    }
}

/// What all watches of a process share: permits for lists, how far they have seen the history of the hub, and what is
/// logged and reported about their failures.
#[derive(Clone)]
pub struct Lists {
    /// For [late](Need::Late) watches. The others are few, and go first.
    permits: Arc<Semaphore>,
    /// The watches that are not late and that an outage has interrupted.
    unavailable: Unavailable,
    seen: SeenHistory,
    logged: Logged,
    unread: UnreadKinds,
}

impl Default for Lists {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Lists {
    /// Permits for 32 lists at a time. Without a limit, a process with a watch in each of hundreds of namespaces would
    /// be throttled at its start, and other clients with it. `report` is for what cannot be read.
    #[must_use]
    pub fn new(report: Option<(Reporter, Clock)>) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(32)),
            unavailable: Unavailable::default(),
            seen: SeenHistory::default(),
            logged: Logged::default(),
            unread: UnreadKinds::new(report),
        }
    }

    /// The kinds that cannot be read, since when and why.
    pub(crate) fn unreadable(&self) -> Option<String> {
        self.unread.summary()
    }
}

/// What to watch, and how each object is passed on.
#[must_use]
pub struct Watch<K> {
    pub(crate) resource: &'static str,
    /// The namespace, if a process may have such a watch in several and waits for all of them.
    pub(crate) namespace: Option<Text>,
    pub(crate) need: Need,
    is_expected: bool,
    path: CollectionPath,
    extent: Extent,
    decode: Decode<K>,
    fields: Option<String>,
    labels: Option<String>,
    page: u32,
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + 'static> Watch<K> {
    /// Every object of a kind, without `managedFields`; `resource` is its plural and identifies the watch in logs,
    /// metrics and probes. If a process watches one kind twice, it also distinguishes the two.
    pub fn all(resource: &'static str) -> Self {
        Self::dynamic(resource, &(), None)
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Watch<PartialObjectMeta<K>> {
    /// The metadata of every object of a kind, without `managedFields`: other fields are not requested.
    pub fn metadata(resource: &'static str) -> Self {
        Self::new(resource, K::url_path(&(), None), Extent::Metadata, decode::whole)
    }
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>> Watch<K> {
    /// Only objects in this namespace. Not for a watch that is [`Self::served_at`] a path that changes.
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { path: CollectionPath::Fixed(K::url_path(&(), Some(namespace))), ..self }
    }
}

impl<K: Resource + DeserializeOwned + 'static> Watch<K> {
    /// Every object of a kind that is known at run time only, in one namespace or in all.
    pub fn dynamic(resource: &'static str, kind: &K::DynamicType, namespace: Option<&str>) -> Self {
        let watch = Self::new(resource, K::url_path(kind, namespace), Extent::Whole, decode::whole);
        Self { namespace: namespace.map(Text::from), ..watch }
    }

    /// Decodes `managedFields` too: the manager, the time and the fields of each entry, apart from those of the status.
    /// If one entry cannot be read, none is.
    pub fn with_managed_fields(self) -> Self {
        Self { decode: decode::whole_with_managed_fields, ..self }
    }
}

impl<K: 'static> Watch<K> {
    fn new(resource: &'static str, path: String, extent: Extent, decode: Decode<K>) -> Self {
        Self {
            resource,
            namespace: None,
            need: Need::Required,
            is_expected: false,
            path: CollectionPath::Fixed(path),
            extent,
            decode,
            fields: None,
            labels: None,
            page: PAGE,
        }
    }

    /// Only objects of this name: a permission limited to it by `resourceNames` suffices.
    pub fn named(self, name: impl Display) -> Self {
        Self { fields: Some(format!("metadata.name={name}")), ..self }
    }

    /// Only objects that match this label selector. RBAC cannot limit a permission to it.
    pub fn labelled(self, selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), ..self }
    }

    /// Sets the page size of lists, instead of 500.
    pub fn paged(self, page: u32) -> Self {
        Self { page, ..self }
    }

    /// In the version that the hub serves, which can change; starts once it is known.
    pub fn served_at(self, path: impl ServedPath + 'static) -> Self {
        Self { path: CollectionPath::Served(Box::new(path)), ..self }
    }

    /// The process can work without it: see [`Need::Optional`].
    pub fn optional(self) -> Self {
        Self { need: Need::Optional, ..self }
    }

    /// The hub should serve the kind, although the process can work without it: otherwise this is reported after a minute,
    /// also before the first list.
    pub fn expected(self) -> Self {
        Self { is_expected: true, ..self }
    }

    /// It starts while the process already works: see [`Need::Late`].
    pub fn late(self) -> Self {
        Self { need: Need::Late, ..self }
    }

    /// Watches for as long as the task runs. Errors are counted, logged once and retried.
    pub(crate) fn follow(
        self,
        client: Client,
        sync: SyncState,
        lists: Lists,
        sink: Box<dyn Sink<K>>,
    ) -> impl Future<Output = ()> + Send + use<K> {
        let Self { path, extent, decode, fields, labels, page, is_expected, .. } = self;
        let follower = Follower {
            endpoint: WatchEndpoint {
                client,
                path,
                extent,
                fields,
                labels,
                page: PageSize::new(page),
            },
            history: History::new(Box::new(Decoding { decode, sink })),
            trouble: Trouble::new(self.resource, sync.metrics.clone(), Arc::clone(&lists.logged)),
            sync,
            lists,
            unseen: None,
            unread: None,
            is_expected,
            was_listed: false,
            is_absent: false,
            is_interrupted: false,
            interrupted: None,
            futile: 0,
            era: Era::default(),
        };
        follower.follow()
    }
}

/// Whether a resourceVersion is later than another. KEP-5504 defines them as comparable numbers; one that is not a
/// number counts as later than any that differs.
#[must_use]
pub fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

/// Decodes an object as a watch [with `managedFields`](Watch::with_managed_fields) does; `None` if it cannot be
/// identified.
pub(crate) fn decode<K: Resource + DeserializeOwned>(text: &str) -> Option<Result<K, Unreadable>> {
    let (_, object) = decode::whole_with_managed_fields(text.as_bytes()).ok()?;
    Some(object)
}
