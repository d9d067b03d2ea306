//! Start and shutdown of a process.

use std::sync::Arc;
use std::time::Duration;

use hub_process::controller::FleetKind;
use hub_runtime::watch::{ObjectKey, Sink, Unreadable, Watch};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::time::timeout;

use crate::api::Api;
use crate::{Running, Traits, eventually};

const SETS: &str = "/apis/cluster.open-cluster-management.io/v1beta2/managedclustersets";
const BINDINGS: &str =
    "/apis/cluster.open-cluster-management.io/v1beta2/namespaces/app/managedclustersetbindings";
const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterprofiles.multicluster.x-k8s.io";
const CLUSTERS: &str = "/apis/cluster.open-cluster-management.io/v1/managedclusters";

const BOTH: Traits =
    Traits { name: "both", needs: &[FleetKind::Grants, FleetKind::Clusters], wants: None };
const NONE: Traits = Traits { name: "none", needs: &[], wants: None };

fn cluster() -> serde_json::Value {
    json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "spec": {"hubAcceptsClient": true}})
}

#[tokio::test(start_paused = true)]
async fn controllers_watch_then_begin_then_work_each_after_all_have_done_the_step_before() {
    let api = Api::default();
    let running = Running::start(&api, None, &[BOTH, NONE]);
    eventually("it works", || running.has("none work")).await;
    let steps = ["both watch", "none watch", "both begin", "none begin", "both work", "none work"];
    assert_eq!(running.calls(), steps);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_before_every_list_is_there() {
    let api = Api::default();
    api.hold_up(SETS);
    let running = Running::start(&api, None, &[BOTH]);
    eventually("the other lists are there", || {
        !api.requests(&format!("WATCH {CLUSTERS}")).is_empty()
    })
    .await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(running.calls(), ["both watch"]);
    api.release();
    eventually("it works", || running.has("both work")).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_fleet_reaches_controllers_once_they_have_begun() {
    let api = Api::default();
    api.put(&format!("{CLUSTERS}/early"), cluster());
    let running = Running::start(&api, None, &[BOTH]);
    eventually("it works", || running.has("both work")).await;
    api.put(&format!("{CLUSTERS}/late"), cluster());
    eventually("the change arrives", || running.calls().len() > 3).await;
    let changes = running.calls().split_off(3);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(changes[0].contains("late"), "{changes:?}");
    assert_eq!(running.shared.fleet.read().cluster_names().count(), 2);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_leaves_the_index_and_ends_its_findings() {
    let api = Api::default();
    let paths = [CLUSTERS, SETS, BINDINGS].map(|collection| format!("{collection}/one"));
    for path in &paths {
        api.put(path, json!({ "spec": "unreadable" }));
    }
    let running = Running::start(&api, None, &[BOTH]);
    eventually("it works", || running.has("both work")).await;
    let is_unreadable =
        |count: u8| running.measures(&format!("findings{{reason=\"Unreadable\"}} {count}\n"));
    let sizes = || {
        let fleet = running.shared.fleet.read();
        (fleet.cluster_names().count(), fleet.set_names().count(), fleet.namespaces().count())
    };
    assert!(is_unreadable(3));
    assert_eq!(sizes(), (1, 1, 1));
    for path in &paths {
        api.delete(path);
    }
    eventually("they are gone", || sizes() == (0, 0, 0)).await;
    eventually("so are their findings", || is_unreadable(0)).await;
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn profiles_are_watched_in_the_version_that_the_hub_serves() {
    let api = Api::default();
    let names = json!({ "plural": "clusterprofiles", "kind": "ClusterProfile" });
    let versions = json!([{ "name": "v1alpha2", "served": true, "storage": true }]);
    let spec = json!({ "group": "multicluster.x-k8s.io", "names": names, "scope": "Namespaced", "versions": versions });
    api.put(CRD, json!({ "spec": spec }));
    let owner = Traits { name: "owner", needs: &[], wants: Some([].into()) };
    let running = Running::start(&api, None, &[owner]);
    eventually("it works", || running.has("owner work")).await;
    assert!(!api.requests("WATCH /apis/multicluster.x-k8s.io/v1alpha2/clusterprofiles").is_empty());
    assert_eq!(api.requests("v1alpha1/clusterprofiles"), [""; 0]);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_what_a_controller_needs_is_watched() {
    let api = Api::default();
    let clusters = Traits { name: "clusters", needs: &[FleetKind::Clusters], wants: None };
    let running = Running::start(&api, None, &[clusters, NONE]);
    eventually("it works", || running.has("none work")).await;
    assert!(!api.requests(CLUSTERS).is_empty());
    assert!(api.requests("managedclusterset").is_empty(), "{:?}", api.requests(""));
    assert!(api.requests("clusterprofiles").is_empty(), "no controller owns a part of profiles");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_dropped_leaves_nothing_behind() {
    let api = Api::default();
    let running = Running::start(&api, Some("one"), &[BOTH]);
    eventually("it works", || running.has("both work")).await;
    let host = Arc::downgrade(&running.shared.host);
    running.task.abort();
    drop(running);
    eventually("its tasks are gone", || host.strong_count() == 0).await;
    let requests = api.requests("").len();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(api.requests("").len(), requests);
}

/// A sink that ignores everything.
struct Ignore;

impl Sink<ConfigMap> for Ignore {
    fn apply(&mut self, _: &ObjectKey, _: Result<ConfigMap, Unreadable>) {}
    fn delete(&mut self, _: &ObjectKey) {}
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_dropped_ends_and_delays_the_process_no_longer() {
    let api = Api::default();
    let running = Running::start(&api, None, &[NONE]);
    eventually("it works", || running.has("none work")).await;
    let watches = running.watches.lock().unwrap().clone().unwrap();
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
