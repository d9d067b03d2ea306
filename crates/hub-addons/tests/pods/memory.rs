//! The memory that the chart requests, and its limit, under the load that its values name for them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use hostile::run::{MEMORY, Sessions};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use local_hub::ocm::{self, ServiceAccountToken};
use local_hub::{HubError, eventually};
use serde_json::json;

use crate::stage::{COMPONENTS, Stage};
use crate::support::chart::{self, NAMESPACE};
use crate::support::proxy::Authority;
use crate::support::world::{self, merge};
use crate::support::{SOON, shown};

/// Timeout for 100 000 writes, which take five minutes on two cores that nothing else uses.
const PATIENCE: Duration = Duration::from_mins(15);
/// One Pod for each controller.
const ONE: &str = "replicaCount=1";
/// Profiles with an access provider, whose replaced trust anchors stay longer than the test takes.
const STATIC: [&str; 3] = [
    "accessProvider.static.server=https://proxy.example/{cluster}",
    "accessProvider.static.ca=configmap/default/proxy-ca/ca.crt",
    "accessProvider.caOverlap=24h",
];

/// A number in a file of the cgroup of a process, by its names in versions 1 and 2, if the kernel has that file.
fn memory_of(process: u32, [v1, v2]: [&str; 2]) -> Option<u64> {
    let cgroups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let file = cgroups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        match controllers {
            "memory" => Some(Path::new("/sys/fs/cgroup/memory").join(path).join(v1)),
            "" => {
                Some(Path::new("/sys/fs/cgroup").join(path).join(v2)).filter(|file| file.exists())
            }
            _ => None,
        }
    });
    Some(std::fs::read_to_string(file?).unwrap().trim().parse().unwrap())
}

/// A quantity of memory in the resources of a Pod's container, in bytes.
fn quantity(of: Option<&BTreeMap<String, Quantity>>) -> u64 {
    let quantity = &of.unwrap()["memory"].0;
    quantity.strip_suffix("Mi").unwrap().parse::<u64>().unwrap() << 20
}

/// Fails unless a component has run within its limit, which the kernel enforces, and without a restart of any kind. Prints
/// how much it needed.
async fn within_its_limit(stage: &Stage, component: &str) {
    let pod = stage.rolled_out(component).await.remove(0);
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    assert_eq!(status.restart_count, 0, "{component}: {status:?}");
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap();
    let limit = quantity(resources.limits.as_ref());
    let processes = stage.hub.pods.processes(NAMESPACE, &pod.name_any(), &status.name).await;
    let process = processes.unwrap()[0];
    let enforced = memory_of(process, ["memory.limit_in_bytes", "memory.max"]);
    assert_eq!(enforced, Some(limit), "{component}");
    // Version 2 has a peak since Linux 5.19.
    if let Some(peak) = memory_of(process, ["memory.max_usage_in_bytes", "memory.peak"]) {
        println!("{component}: at most {} MiB of {} MiB", peak >> 20, limit >> 20);
        assert!(peak < limit, "{component} reached its limit");
    }
}

async fn within_their_limits(stage: &Stage) {
    for component in COMPONENTS {
        within_its_limit(stage, component).await;
    }
}

#[tokio::test]
async fn thousands_of_profiles_are_kept_within_the_memory_that_the_chart_requests() {
    let Some(stage) = Stage::start(1, &[ONE]).await else { return };
    let pod = stage.rolled_out("profiles").await.remove(0);
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap();
    let requested = quantity(resources.requests.as_ref());
    stage.install(&[ONE, &format!("resources.limits.memory={}Mi", requested >> 20)]).await;
    let fleet = ocm::Fleet::of(500, 6);
    stage.create(&fleet).await;
    for namespace in &fleet.namespaces {
        stage.shows(namespace, &fleet.clusters).await;
    }
    within_its_limit(&stage, "profiles").await;
    stage.each_was_written_once(500 * 6, false).await;
}

/// In the part `load` of `hack/test.sh`: the API server needs minutes for 105 000 writes, and 8 GB of memory. Beside it, a
/// user server keeps its sessions open.
#[tokio::test]
async fn the_largest_measured_fleet_is_kept_within_100_mebibytes() {
    let values = [&[ONE, "resources.limits.memory=100Mi"], &STATIC[..]].concat();
    let Some(stage) = Stage::start(1, &values).await else { return };
    let user_server = Path::new(env!("CARGO_BIN_EXE_hub-addons"));
    let mut sessions = Sessions::open(user_server, 1000).await;
    let anchors = |name| json!({ "ca.crt": Authority::new(name).pem() });
    let ca = world::object("ConfigMap", Some("default"), "proxy-ca");
    world::create(&stage.admin, [ca.clone().field("data", anchors("old"))]).await;
    let mut fleet = ocm::Fleet::of(3500, 10);
    fleet.create(&stage.ocm).await.unwrap();
    let token = async |cluster: &str| {
        ServiceAccountToken::of(cluster, "app").synced().create(&stage.ocm).await
    };
    futures::stream::iter(&fleet.clusters)
        .map(|cluster| token(cluster))
        .buffer_unordered(32)
        .try_for_each(async |_| Ok::<_, HubError>(()))
        .await
        .unwrap();
    complete(&stage, &fleet, 1).await;
    let memory = sessions.memory().await;
    println!("1000 sessions of the user server: {} MiB", memory >> 10);
    assert!(memory < MEMORY);
    drop(sessions);
    within_their_limits(&stage).await;
    merge(&stage.admin, &ca, &json!({ "data": anchors("new") })).await;
    complete(&stage, &fleet, 2).await;
    within_their_limits(&stage).await;
    // As at every start. What has written the objects of one more cluster has listed all others before.
    stage.install(&[&values[..], &["podAnnotations.replaced=yes"]].concat()).await;
    fleet.clusters.push("one-more".to_owned());
    fleet.cluster("one-more").create(&stage.ocm).await.unwrap();
    token("one-more").await.unwrap();
    complete(&stage, &fleet, 1).await;
    within_their_limits(&stage).await;

    // Less is not enough, so the load and the limit are what they seem.
    let less = ["resources.requests.memory=32Mi,resources.limits.memory=32Mi"];
    chart::install(&stage.hub, &[&["image.tag=test"], &values[..], &less].concat()).await;
    for component in COMPONENTS {
        let of_component =
            ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
        eventually(&format!("{component} is killed with 32 MiB"), SOON, async || {
            let pods =
                stage.api::<Pod>().list(&of_component).await.map_err(|error| error.to_string())?;
            let statuses: Vec<_> = pods
                .into_iter()
                .filter_map(|pod| pod.status?.container_statuses)
                .flatten()
                .collect();
            let is_killed = statuses.iter().any(|status| {
                let states = [&status.state, &status.last_state];
                let mut ended =
                    states.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
                ended.any(|ended| ended.reason.as_deref() == Some("OOMKilled"))
            });
            if is_killed { Ok(()) } else { Err(format!("{statuses:?}")) }
        })
        .await;
    }
}

/// Waits until each namespace has all copies, and all profiles with version and access provider, which has this many
/// trust anchors or more.
async fn complete(stage: &Stage, fleet: &ocm::Fleet, anchors: usize) {
    // The number of objects, without most of them.
    let first = ListParams::default().limit(1);
    let all = i64::try_from(fleet.clusters.len() - 1).unwrap();
    let is_complete = |profile: &DynamicObject| {
        let status = &profile.data["status"];
        let bundle = &status["accessProviders"][0]["cluster"]["certificate-authority-data"];
        let bundle: ByteString = serde_json::from_value(bundle.clone()).unwrap_or_default();
        let certificates = String::from_utf8_lossy(&bundle.0).matches("BEGIN CERTIFICATE").count();
        status["version"]["kubernetes"].is_string() && certificates >= anchors
    };
    for namespace in &fleet.namespaces {
        let profiles = shown::profiles(&stage.ocm, namespace);
        let secrets: Api<Secret> = Api::namespaced(stage.ocm.clone(), namespace);
        eventually(&format!("{namespace} has all profiles and copies"), PATIENCE, async || {
            let (profiles, secrets) = tokio::try_join!(profiles.list(&first), secrets.list(&first))
                .map_err(|error| error.to_string())?;
            let rest = [profiles.metadata, secrets.metadata].map(|list| list.remaining_item_count);
            if rest == [Some(all); 2] {
                Ok(())
            } else {
                Err(format!("besides the first, {rest:?}"))
            }
        })
        .await;
        // The list costs the API server much, so it is read when the last profile is complete, in the order of names.
        eventually(&format!("{namespace} has a complete last profile"), PATIENCE, async || {
            let last = profiles.get(fleet.clusters.last().unwrap()).await;
            let last = last.map_err(|error| error.to_string())?;
            if is_complete(&last) { Ok(()) } else { Err(last.data["status"].to_string()) }
        })
        .await;
        eventually(&format!("{namespace} has complete profiles"), SOON, async || {
            let list =
                profiles.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let missing = list.iter().filter(|profile| !is_complete(profile)).count();
            if missing == 0 { Ok(()) } else { Err(format!("{missing} are not")) }
        })
        .await;
    }
}
