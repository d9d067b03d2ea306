//! Watches that lose no delete.
//!
//! kube's watcher tells what there is after a connection was lost, and leaves it to the caller to notice what
//! is no longer there. This module keeps the names of what it has shown and turns every absence after a new
//! list into a delete, so that a [`Sink`] sees one simple history: apply, apply, delete.
//!
//! An object that does not have the shape of its kind reaches the sink as such, with its metadata, and holds
//! up nobody else (`DeserializeGuard`). A kind whose CRD is missing is waited for.

use std::collections::HashSet;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DeserializeGuard, PartialObjectMeta, Resource};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tracing::{debug, info, warn};

use crate::backoff;
use crate::error::{Category, summary};
use crate::health::{Need, SyncState};
use crate::metrics::Metrics;

/// Waits after a failed list or watch. The longest also bounds how long a CRD that appears goes unnoticed.
const RECONNECT_MIN: Duration = Duration::from_millis(200);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// How long one watch lasts before the API server ends it and the next begins where it ended. A peer that is
/// gone without a word is noticed soon after: kube's client sends no keep-alives, and a quiet watch may be
/// silent all the time.
pub const WATCH_DURATION: Duration = Duration::from_mins(2);

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

/// An object that does not have the shape of its kind.
#[derive(Debug)]
pub struct Unreadable {
    /// Its metadata, which could be read.
    pub metadata: Box<ObjectMeta>,
    /// What is wrong with the rest.
    pub error: String,
}

/// Tells an object from one that does not have the shape of its kind.
fn guarded<K>(object: DeserializeGuard<K>) -> Result<K, Unreadable> {
    object.0.map_err(|invalid| Unreadable { metadata: Box::new(invalid.metadata), error: invalid.error })
}

/// Where a watch leaves what it sees. Called from one task, in order.
pub trait Sink<K>: Send + 'static {
    /// The object is there, as shown.
    fn apply(&mut self, key: &ObjectKey, object: Result<K, Unreadable>);
    /// The object is gone.
    fn delete(&mut self, key: &ObjectKey);
    /// A list is complete: what has not been shown is not there.
    fn listed(&mut self) {}
}

/// What to watch.
pub struct Watch<K: Resource> {
    resource: &'static str,
    kind: K::DynamicType,
    name: Option<String>,
    labels: Option<String>,
    page: Option<u32>,
    need: Need,
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
        Self { resource, kind, name: None, labels: None, page: None, need: Need::Required }
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

    /// So many objects in one answer to a list, instead of kube's 500.
    #[must_use]
    pub fn paged(self, page: u32) -> Self {
        Self { page: Some(page), ..self }
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

    fn config(&self) -> watcher::Config {
        let seconds = u32::try_from(WATCH_DURATION.as_secs()).unwrap_or(u32::MAX);
        let mut config = watcher::Config::default().timeout(seconds);
        if let Some(name) = &self.name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        if let Some(labels) = &self.labels {
            config = config.labels(labels);
        }
        if let Some(page) = self.page {
            config = config.page_size(page);
        }
        config
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
/// told once and tried again.
pub async fn objects<K>(
    api: Api<DeserializeGuard<K>>,
    watch: Watch<K>,
    sync: SyncState,
    metrics: Metrics,
    sink: impl Sink<K>,
) where
    K: Resource<DynamicType: Clone> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher::watcher(api, watch.config());
    follow(events, guarded, sync, metrics, sink).await;
}

/// Watches objects' metadata only, for as long as the task lives: their other fields are not even sent.
pub async fn metadata<K>(
    client: Client,
    watch: Watch<K>,
    sync: SyncState,
    metrics: Metrics,
    sink: impl Sink<PartialObjectMeta<K>>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher::watcher(Api::<PartialObjectMeta<K>>::all(client), watch.config());
    follow(events, Ok, sync, metrics, sink).await;
}

async fn follow<O: Resource, K>(
    events: impl Stream<Item = watcher::Result<Event<O>>>,
    read: impl Fn(O) -> Result<K, Unreadable>,
    sync: SyncState,
    metrics: Metrics,
    sink: impl Sink<K>,
) {
    let mut events = pin!(events);
    let mut history = History::new(sink, read);
    let mut trouble = Trouble::new(sync.resource(), metrics);
    // kube's own backoff starts over at every list that it begins, also at one that then fails.
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let progress = !matches!(event, Event::Init);
                if history.take(event) {
                    sync.mark_synced();
                }
                if progress {
                    trouble.end();
                }
            }
            Err(error) => {
                let wait = trouble.meet(&error);
                sync.mark_failing();
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// Turns kube's events, with their re-lists, into a history of applies and deletes.
struct History<S, R> {
    sink: S,
    read: R,
    known: HashSet<ObjectKey>,
    listed: HashSet<ObjectKey>,
}

impl<S, R> History<S, R> {
    fn new(sink: S, read: R) -> Self {
        Self { sink, read, known: HashSet::new(), listed: HashSet::new() }
    }

    /// Passes an event on; answers whether it completes a list.
    fn take<O: Resource, K>(&mut self, event: Event<O>) -> bool
    where
        S: Sink<K>,
        R: Fn(O) -> Result<K, Unreadable>,
    {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                let key = self.apply(object);
                self.listed.insert(key);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                for key in self.known.difference(&listed) {
                    self.sink.delete(key);
                }
                self.known = listed;
                self.sink.listed();
                return true;
            }
            Event::Apply(object) => {
                let key = self.apply(object);
                self.known.insert(key);
            }
            Event::Delete(object) => {
                let key = ObjectKey::of(object.meta());
                self.known.remove(&key);
                self.sink.delete(&key);
            }
        }
        false
    }

    fn apply<O: Resource, K>(&mut self, object: O) -> ObjectKey
    where
        S: Sink<K>,
        R: Fn(O) -> Result<K, Unreadable>,
    {
        let key = ObjectKey::of(object.meta());
        self.sink.apply(&key, (self.read)(object));
        key
    }
}

/// A run of errors: each kind of trouble is told once, its end too.
struct Trouble {
    resource: &'static str,
    metrics: Metrics,
    told: Option<Category>,
    backoff: ExponentialBackoff,
}

impl Trouble {
    fn new(resource: &'static str, metrics: Metrics) -> Self {
        Self { resource, metrics, told: None, backoff: backoff::between(RECONNECT_MIN, RECONNECT_MAX) }
    }

    /// Counts and tells an error, and answers how long to wait.
    fn meet(&mut self, error: &watcher::Error) -> Duration {
        let (category, text) = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => (Category::of(error), summary(error)),
            watcher::Error::WatchError(status) => (Category::of_status(status), status.message.clone()),
            watcher::Error::NoResourceVersion => (Category::Other, error.to_string()),
        };
        self.metrics.watch_error(self.resource, category);
        let resource = self.resource;
        if self.told == Some(category) {
            debug!(resource, category = category.as_str(), error = text, "still cannot watch");
        } else if category == Category::NotServed && matches!(error, watcher::Error::InitialListFailed(_)) {
            warn!(
                resource,
                "waiting for the CustomResourceDefinition of {resource}: the hub does not serve it"
            );
        } else if expected_end(error) {
            // Whatever was before: the API server answers, and only asks for a new list.
            self.backoff = backoff::between(RECONNECT_MIN, RECONNECT_MAX);
            debug!(resource, error = text, "watch ended, listing again");
        } else {
            warn!(
                resource,
                category = category.as_str(),
                error = text,
                "cannot watch {resource}, trying again"
            );
        }
        self.told = Some(category);
        self.backoff.next().unwrap_or(RECONNECT_MAX)
    }

    fn end(&mut self) {
        if let Some(category) = self.told.take() {
            info!(resource = self.resource, after = category.as_str(), "watching {} again", self.resource);
            self.backoff = backoff::between(RECONNECT_MIN, RECONNECT_MAX);
        }
    }
}

/// A watch whose resourceVersion has been compacted away is the API server's ordinary way to ask for a new
/// list.
fn expected_end(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == 410)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DeserializeGuard;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl Sink<ConfigMap> for Recorder {
        fn apply(&mut self, key: &ObjectKey, object: Result<ConfigMap, Unreadable>) {
            let shape = if object.is_ok() { "" } else { " unreadable" };
            self.0.lock().unwrap().push(format!("apply {}/{}{shape}", key.namespace, key.name));
        }
        fn delete(&mut self, key: &ObjectKey) {
            self.0.lock().unwrap().push(format!("delete {}/{}", key.namespace, key.name));
        }
    }

    fn object(name: &str) -> DeserializeGuard<ConfigMap> {
        serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": name}})).unwrap()
    }

    fn history_of(events: Vec<Event<DeserializeGuard<ConfigMap>>>) -> Vec<String> {
        let recorder = Recorder::default();
        let mut history = History::new(recorder.clone(), guarded);
        for event in events {
            history.take(event);
        }
        recorder.0.lock().unwrap().split_off(0)
    }

    #[test]
    fn what_a_new_list_no_longer_shows_is_deleted() {
        let seen = history_of(vec![
            Event::Init,
            Event::InitApply(object("a")),
            Event::InitApply(object("b")),
            Event::InitDone,
            Event::Apply(object("c")),
            Event::Init,
            Event::InitApply(object("b")),
            Event::InitDone,
        ]);
        let (applied, mut deleted) = (seen[..4].to_vec(), seen[4..].to_vec());
        assert_eq!(applied, ["apply ns/a", "apply ns/b", "apply ns/c", "apply ns/b"]);
        deleted.sort();
        assert_eq!(deleted, ["delete ns/a", "delete ns/c"]);
    }

    #[test]
    fn a_list_that_breaks_off_deletes_nothing() {
        let seen = history_of(vec![
            Event::Init,
            Event::InitApply(object("a")),
            Event::InitApply(object("b")),
            Event::InitDone,
            Event::Init,
            Event::InitApply(object("a")),
            Event::Init,
            Event::InitApply(object("a")),
            Event::InitApply(object("b")),
            Event::InitDone,
        ]);
        assert!(seen.iter().all(|line| line.starts_with("apply")), "{seen:?}");
    }

    #[test]
    fn a_delete_is_told_once() {
        let seen = history_of(vec![
            Event::Init,
            Event::InitApply(object("a")),
            Event::InitDone,
            Event::Delete(object("a")),
            Event::Init,
            Event::InitDone,
        ]);
        assert_eq!(seen, ["apply ns/a", "delete ns/a"]);
    }

    #[test]
    fn an_object_of_the_wrong_shape_is_there_and_unreadable() {
        let wrong = serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": "a"}, "data": 7}));
        let seen = history_of(vec![Event::Init, Event::InitApply(wrong.unwrap()), Event::InitDone]);
        assert_eq!(seen, ["apply ns/a unreadable"]);
    }

    #[test]
    fn a_history_that_is_gone_is_listed_soon_though_there_was_trouble_before() {
        let status = |code, reason: &str| {
            let status = json!({ "status": "Failure", "code": code, "reason": reason, "message": "" });
            watcher::Error::WatchError(Box::new(serde_json::from_value(status).unwrap()))
        };
        let mut trouble = Trouble::new("things", Metrics::new("test"));
        let (unavailable, expired) = (status(503, "ServiceUnavailable"), status(410, "Expired"));
        let last = (0..10).map(|_| trouble.meet(&unavailable)).last().unwrap();
        assert!(last >= RECONNECT_MAX, "{last:?}");
        let soon = trouble.meet(&expired);
        assert!(soon <= 2 * RECONNECT_MIN, "{soon:?}");
        // But one after the other is trouble, too.
        let last = (0..10).map(|_| trouble.meet(&expired)).last().unwrap();
        assert!(last >= RECONNECT_MAX, "{last:?}");
    }
}
