//! A hub with the projector at work that the tests of a file share: each has names of its own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use local_hub::{LocalHub, Requests, ocm};
use serde_json::json;

use super::shown::{profile, sees};
use super::{Addons, Hub, USER, rights, world};

/// Labels that the shared projector propagates.
pub const PROPAGATED: &str = "--propagate-labels=region,team.example.com/*";

/// The hub and the projector of all tests of a file.
pub struct Shared {
    pub hub: Hub,
    pub addons: Addons,
    barriers: AtomicUsize,
}

/// One test's view of it, with a client of its own.
pub struct Stage {
    pub shared: &'static Shared,
    pub ocm: Client,
}

/// The hub's own ClusterProfile, with lists that are maps.
pub async fn stage() -> Stage {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    stage_of(&SHARED, local_hub::ListFlavour::Map).await
}

/// A hub whose ClusterProfile has atomic lists.
pub async fn atomic_stage() -> Stage {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    stage_of(&SHARED, local_hub::ListFlavour::Atomic).await
}

async fn stage_of(shared: &'static OnceLock<Shared>, lists: local_hub::ListFlavour) -> Stage {
    // On a thread with a runtime of its own, which outlives the test that happens to come first.
    let shared = tokio::task::spawn_blocking(move || shared.get_or_init(|| start(lists))).await.unwrap();
    let ocm = shared.hub.client_as("ocm").await.unwrap();
    Stage { shared, ocm }
}

fn start(lists: local_hub::ListFlavour) -> Shared {
    let (started, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let builder = LocalHub::builder().without_controller_manager().lists(lists);
            let hub = Hub::start(builder, rights::projector()).await;
            let addons = hub.projector(&[PROPAGATED]).await;
            started.send(Shared { hub, addons, barriers: AtomicUsize::new(0) }).unwrap();
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().unwrap()
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

    /// Waits until the projector has acted on everything that was done before.
    pub async fn caught_up(&self) {
        let number = self.shared.barriers.fetch_add(1, Ordering::Relaxed);
        caught_up(&self.ocm, &format!("barrier-{number}")).await;
    }

    /// What the projector has asked for in a namespace.
    pub async fn asked_in(&self, namespace: &str) -> Requests {
        let requests = self.shared.hub.audit().requests().await.unwrap();
        requests.of_user(USER).matching(|r| r.namespace == namespace && r.resource == "clusterprofiles")
    }
}

/// Waits until a projector has acted on everything that was done before: each of its four watches shows what
/// happened in order, and here something happens in each, under names that are not used yet.
pub async fn caught_up(client: &Client, name: &str) {
    let cluster = ocm::ManagedCluster::named(name).in_set(name);
    let objects =
        [ocm::namespace(name), ocm::cluster_set(name), ocm::bound(name, name), cluster.clone().into()];
    world::create(client, objects).await;
    profile(client, (name, name), "has a status", |profile| profile["status"].is_object()).await;
    let shown = world::profile_of("open-cluster-management", name, name);
    world::merge(client, &shown, &json!({ "spec": { "displayName": "drift" } })).await;
    profile(client, (name, name), "is repaired", |profile| profile["spec"]["displayName"] == name).await;
    world::delete(client, &cluster.into()).await;
    sees(client, name, &[]).await;
}
