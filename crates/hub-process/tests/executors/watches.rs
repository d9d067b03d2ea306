//! Watches of a controller, beside those of the process.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hub_runtime::host::Watches;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;
use tokio::time::timeout;

use crate::api::Api;
use crate::{Running, Traits, eventually};

/// A sink that ignores everything.
struct Ignore;

impl<K: Debug> Sink<K> for Ignore {
    fn apply(&mut self, _: &ObjectKey, _: Result<K, Unreadable>) {}
    fn delete(&mut self, _: &ObjectKey) {}
}

/// A process at work, and what its controller watches with.
async fn working(api: &Api) -> (Running, Watches) {
    let running = Running::start(api, None, &[Traits { name: "controller", ..Traits::default() }]);
    eventually("it works", || running.has("controller work")).await;
    let watches = running.watches.lock().unwrap().clone().unwrap();
    (running, watches)
}

#[tokio::test(start_paused = true)]
async fn a_controller_watches_one_namespace_or_the_metadata_of_all() {
    let api = Api::default();
    let (running, watches) = working(&api).await;
    watches.watch(Watch::<ConfigMap>::all("configmaps").in_namespace("app"), Ignore);
    watches.watch(Watch::<PartialObjectMeta<Secret>>::metadata("secrets"), Ignore);
    for path in ["/api/v1/namespaces/app/configmaps", "/api/v1/secrets"] {
        eventually(path, || api.requests("GET").contains(&format!("GET {path}"))).await;
    }
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_dropped_ends_and_delays_the_process_no_longer() {
    let api = Api::default();
    let (running, watches) = working(&api).await;
    let watch = Watch::<ConfigMap>::all("configmaps").in_namespace("app");
    let held = watches.watch_while_held(watch, Ignore);
    let health = &running.shared.host.health;
    let minute = Duration::from_mins(1);
    assert!(timeout(minute, health.all_synced()).await.is_err(), "the list fails");
    let requests = || api.requests("configmaps").len();
    assert!(requests() > 0);
    drop(held);
    timeout(minute, health.all_synced()).await.unwrap();
    let before = requests();
    tokio::time::sleep(minute).await;
    assert_eq!(requests(), before);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_controller_run() {
    let api = Api::default();
    let (running, watches) = working(&api).await;
    let count = Arc::new(AtomicUsize::new(0));
    let run = || {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    running.shared.host.tasks.spawn_once("once", run());
    eventually("the first runs", || count.load(Ordering::Relaxed) == 1).await;
    assert!(running.shared.host.now() > Timestamp::UNIX_EPOCH);
    let (task, forever) = (run(), std::future::pending::<()>());
    watches.spawn("forever", async {
        task.await;
        forever.await;
    });
    eventually("the second runs", || count.load(Ordering::Relaxed) == 2).await;
    running.stop().await.unwrap();
}
