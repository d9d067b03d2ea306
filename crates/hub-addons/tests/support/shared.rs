//! A hub with a running controller that the tests of a file share; each test uses its own names.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use local_hub::ocm;
use serde_json::json;

use super::shown::{profile, sees};
use super::{Addons, Hub, world};

/// The hub and the program of all tests of a file.
pub struct Shared {
    pub hub: Hub,
    pub addons: Addons,
    barriers: AtomicUsize,
}

/// The hub that the tests of a file share, which the first of them starts; and a client for this test.
pub async fn share<F: Future<Output = (Hub, Addons)>>(
    shared: &'static OnceLock<Shared>,
    start: impl FnOnce() -> F + Send + 'static,
) -> (&'static Shared, Client) {
    let begin = async move || {
        let (hub, addons) = start().await;
        Shared { hub, addons, barriers: AtomicUsize::new(0) }
    };
    let shared = started(shared, begin).await;
    (shared, shared.hub.client_as("ocm").await.unwrap())
}

/// What tests share, which the first of them starts: on a thread with its own runtime, which outlives this test.
pub async fn started<T: Send + Sync + 'static>(
    shared: &'static OnceLock<T>,
    start: impl AsyncFnOnce() -> T + Send + 'static,
) -> &'static T {
    let begin = move || {
        let (started, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                started.send(start().await).unwrap();
                std::future::pending::<()>().await;
            });
        });
        receiver.recv().unwrap()
    };
    tokio::task::spawn_blocking(move || shared.get_or_init(begin)).await.unwrap()
}

impl Shared {
    /// A unique name for a barrier.
    pub fn next_barrier(&self) -> String {
        format!("barrier-{}", self.barriers.fetch_add(1, Ordering::Relaxed))
    }
}

/// Waits until a projector has processed all earlier changes: each of its four watches delivers events in order, and
/// this makes a change in each, with names that are not used yet.
pub async fn caught_up(client: &Client, name: &str) {
    world::grant(client, name, &[name]).await;
    profile(client, (name, name), "has a status", |profile| profile["status"].is_object()).await;
    let shown = world::profile_of("open-cluster-management", name, name);
    world::merge(client, &shown, &json!({ "spec": { "displayName": "drift" } })).await;
    profile(client, (name, name), "is repaired", |profile| profile["spec"]["displayName"] == name)
        .await;
    world::delete(client, &ocm::ManagedCluster::named(name).into()).await;
    sees(client, name, &[]).await;
}
