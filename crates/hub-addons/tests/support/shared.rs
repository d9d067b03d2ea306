//! A hub with a running controller that the tests of a file share; each test uses its own names.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use local_hub::{Flavour, LocalHub, Requests, ocm};
use serde_json::json;

use super::shown::{profile, sees};
use super::{Addons, Hub, USER, rights, world};

/// The hub and the program of all tests of a file.
pub struct Shared {
    pub hub: Hub,
    pub addons: Addons,
    barriers: AtomicUsize,
}

/// One test's view of a hub with the projector, with a client of its own.
pub struct Stage {
    pub shared: &'static Shared,
    pub ocm: Client,
}

/// The hub of a flavour of the ClusterProfile CRD that the tests of a program share, with the projector at work.
pub async fn stage(flavour: Flavour) -> Stage {
    static SHARED: [OnceLock<Shared>; Flavour::ALL.len()] =
        [const { OnceLock::new() }; Flavour::ALL.len()];
    let (shared, ocm) = share(&SHARED[flavour as usize], move || async move {
        let builder = LocalHub::builder().without_controller_manager().flavour(flavour);
        let hub = Hub::start(builder, rights::projector()).await;
        let addons = hub.projector(&[]).await;
        (hub, addons)
    })
    .await;
    Stage { shared, ocm }
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

impl Stage {
    /// Creates objects in this order.
    pub async fn create<const N: usize>(&self, objects: [ocm::Object; N]) {
        world::create(&self.ocm, objects).await;
    }

    /// Waits until a namespace sees exactly these clusters.
    pub async fn sees(&self, namespace: &str, clusters: &[&str]) {
        sees(&self.ocm, namespace, clusters).await;
    }

    /// Waits until the projector has processed all earlier changes.
    pub async fn caught_up(&self) {
        caught_up(&self.ocm, &self.shared.next_barrier()).await;
    }

    /// The projector's requests in a namespace.
    pub async fn asked_in(&self, namespace: &str) -> Requests {
        let requests = self.shared.hub.audit().requests().await.unwrap();
        requests
            .of_user(USER)
            .matching(|r| r.namespace == namespace && r.resource == "clusterprofiles")
    }
}

/// Waits until a projector has processed all earlier changes: each of its four watches delivers events in order, and
/// this makes a change in each, with names that are not used yet.
pub async fn caught_up(client: &Client, name: &str) {
    let cluster = ocm::ManagedCluster::named(name).in_set(name);
    let objects = [
        ocm::namespace(name),
        ocm::cluster_set(name),
        ocm::bound(name, name),
        cluster.clone().into(),
    ];
    world::create(client, objects).await;
    profile(client, (name, name), "has a status", |profile| profile["status"].is_object()).await;
    let shown = world::profile_of("open-cluster-management", name, name);
    world::merge(client, &shown, &json!({ "spec": { "displayName": "drift" } })).await;
    profile(client, (name, name), "is repaired", |profile| profile["spec"]["displayName"] == name)
        .await;
    world::delete(client, &cluster.into()).await;
    sees(client, name, &[]).await;
}
