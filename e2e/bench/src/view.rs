//! What the hub shows to applications: the profiles and copies on it, and how often they have changed.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, Resource, ResourceExt as _};
use local_hub::{ocm, try_eventually};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::error::BenchError;
use crate::place::{Place, SENTINEL};

/// The label of copies.
pub const SYNCED_FROM: &str = "authentication.open-cluster-management.io/synced-from";

const PATIENCE: Duration = Duration::from_secs(30);

/// What a profile shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownProfile {
    /// The status of its condition `ControlPlaneHealthy`.
    pub healthy: String,
    /// Its version of Kubernetes.
    pub version: String,
    /// The label with its set.
    pub set: String,
    /// The certificates of its first access provider, each as a hash.
    pub anchors: BTreeSet<u64>,
}

/// The profiles and copies on a hub.
#[derive(Debug, Default)]
pub struct Shown {
    /// The profiles, except the sentinel's.
    pub profiles: BTreeMap<Place, ShownProfile>,
    /// The hashes of the tokens in copies, except the sentinel's.
    pub copies: BTreeMap<Place, u64>,
    /// The ClusterAccesses that are ready.
    pub ready: BTreeSet<Place>,
    /// The version in the sentinel's profile.
    pub sentinel_version: String,
    /// The hash of the token in the sentinel's copy.
    pub sentinel_token: u64,
    /// How often one of the profiles and copies was created or changed.
    pub changes: usize,
    /// How many watches have listed everything.
    pub lists: usize,
}

impl Shown {
    /// Whether each watch has listed once: a second list may hide changes.
    pub fn is_complete(&self) -> bool {
        self.lists == WATCHES
    }
}

const WATCHES: usize = 3;

/// A view that is kept up to date by watches.
#[derive(Debug)]
pub struct View {
    shown: Arc<Mutex<Shown>>,
    watches: [JoinHandle<()>; WATCHES],
}

impl View {
    /// Starts the watches, and returns when they are complete.
    pub async fn start(client: &Client) -> Result<Self, BenchError> {
        let shown = Arc::new(Mutex::new(Shown::default()));
        let profiles = profile("", "").api(client);
        let copies: Api<Secret> = Api::all(client.clone());
        let gvk = ("access.open-cluster-management.io", "v1alpha1", "ClusterAccess");
        let consumers = ocm::Object::new(gvk, "clusteraccesses", None, "").api(client);
        let watches = [
            tokio::spawn(follow(
                profiles,
                watcher::Config::default(),
                Arc::clone(&shown),
                true,
                note_profile,
            )),
            tokio::spawn(follow(
                copies,
                watcher::Config::default().labels(SYNCED_FROM),
                Arc::clone(&shown),
                true,
                note_copy,
            )),
            tokio::spawn(follow(
                consumers,
                watcher::Config::default(),
                Arc::clone(&shown),
                false,
                note_consumer,
            )),
        ];
        let view = Self { shown, watches };
        let listed = try_eventually("the watches have listed", PATIENCE, async || {
            view.read(Shown::is_complete)
        });
        listed.await.map_err(|timed_out| BenchError::NotConverged {
            scenario: "start".to_owned(),
            timed_out,
            logs: String::new(),
        })?;
        Ok(view)
    }

    /// Reads what is shown now.
    pub fn read<T>(&self, read: impl FnOnce(&Shown) -> T) -> T {
        read(&self.shown.lock())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

/// A ClusterProfile of this name, or with empty names, of any.
pub fn profile(namespace: &str, name: &str) -> ocm::Object {
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    let gvk = ("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile");
    ocm::Object::new(gvk, "clusterprofiles", namespace, name)
}

/// The hash under which a text is remembered.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The certificates in a PEM text, each as a hash.
pub fn certificates(pem: &str) -> BTreeSet<u64> {
    const END: &str = "-----END CERTIFICATE-----";
    let whole =
        |part: &str| Some(part.split_once("-----BEGIN")?.1.replace(char::is_whitespace, ""));
    pem.split(END).filter_map(whole).map(|certificate| hash(certificate.as_bytes())).collect()
}

async fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    shown: Arc<Mutex<Shown>>,
    is_counted: bool,
    note: fn(&mut Shown, Place, Option<&K>),
) where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watch(api, config).default_backoff());
    while let Some(event) = events.next().await {
        let mut shown = shown.lock();
        let place = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Ok(Event::Apply(object)) => {
                let place = place(&object);
                shown.changes += usize::from(is_counted && place.0 != SENTINEL);
                note(&mut shown, place, Some(&object));
            }
            Ok(Event::InitApply(object)) => note(&mut shown, place(&object), Some(&object)),
            Ok(Event::Delete(object)) => note(&mut shown, place(&object), None),
            Ok(Event::InitDone) => shown.lists += 1,
            // The watcher reconnects; a list that follows is counted.
            Ok(Event::Init) | Err(_) => {}
        }
    }
}

fn note_profile(shown: &mut Shown, place: Place, object: Option<&DynamicObject>) {
    let summary = object.map(summarize);
    if place.0 == SENTINEL {
        shown.sentinel_version = summary.unwrap_or_default().version;
    } else {
        match summary {
            Some(summary) => shown.profiles.insert(place, summary),
            None => shown.profiles.remove(&place),
        };
    }
}

fn note_copy(shown: &mut Shown, place: Place, object: Option<&Secret>) {
    let token = object.map(|object| {
        object
            .data
            .as_ref()
            .and_then(|data| data.get("token"))
            .map(|token| hash(&token.0))
            .unwrap_or_default()
    });
    if place.0 == SENTINEL {
        shown.sentinel_token = token.unwrap_or_default();
    } else {
        match token {
            Some(token) => shown.copies.insert(place, token),
            None => shown.copies.remove(&place),
        };
    }
}

fn note_consumer(shown: &mut Shown, place: Place, object: Option<&DynamicObject>) {
    let conditions = object.and_then(|object| object.data["status"]["conditions"].as_array());
    let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
    if conditions.is_some_and(|conditions| conditions.iter().any(is_ready)) {
        shown.ready.insert(place);
    } else {
        shown.ready.remove(&place);
    }
}

fn summarize(profile: &DynamicObject) -> ShownProfile {
    let status = &profile.data["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = status["conditions"].as_array();
    let healthy =
        conditions.and_then(|list| list.iter().find(|item| item["type"] == "ControlPlaneHealthy"));
    let bundle = &status["accessProviders"][0]["cluster"]["certificate-authority-data"];
    let bundle = STANDARD.decode(bundle.as_str().unwrap_or_default()).unwrap_or_default();
    ShownProfile {
        healthy: healthy.map(|condition| text(&condition["status"])).unwrap_or_default(),
        version: text(&status["version"]["kubernetes"]),
        set: profile.labels().get("multicluster.x-k8s.io/clusterset").cloned().unwrap_or_default(),
        anchors: certificates(&String::from_utf8_lossy(&bundle)),
    }
}
