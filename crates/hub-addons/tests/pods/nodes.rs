//! The chart on nodes: what only a scheduler, kubelets and Services show. Whoever writes, writes once: when Pods are
//! replaced, evicted, or end with their node.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only functions marked as tests for tests"
)]

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{EvictParams, ListParams};
use kube::{Api, Client, ResourceExt as _};
use local_hub::{LocalHub, Pods, eventually, ocm};
use serde_json::json;

use crate::support::SOON;
use crate::support::chart::{self, NAMESPACE, RELEASE};
use crate::support::pods::{IMAGE, image};
use crate::support::shown::names;
use crate::support::world;

/// The components, each a Deployment.
const COMPONENTS: [&str; 2] = ["profiles", "credentials"];

/// A hub with nodes and the chart.
struct Stage {
    // In this order: the nodes must end before the hub.
    pods: Pods,
    admin: Client,
    ocm: Client,
    hub: LocalHub,
}

impl Stage {
    /// Installs the chart in a namespace for restricted Pods, and waits for its Pods. `None` if none can run here.
    async fn start(nodes: u8, values: &[&str]) -> Option<Self> {
        let image = image().await?;
        let hub = LocalHub::builder().workloads().start().await.unwrap();
        let pods = Pods::on(&hub).unwrap().nodes(nodes).image(IMAGE, image).start().await.unwrap();
        let (admin, ocm) = (hub.client_as("admin").await.unwrap(), hub.client_as("ocm").await.unwrap());
        world::create(&admin, [ocm::namespace(NAMESPACE)]).await;
        let restricted = json!({ "labels": { "pod-security.kubernetes.io/enforce": "restricted" } });
        world::merge(&admin, &ocm::namespace(NAMESPACE), &json!({ "metadata": restricted })).await;
        let stage = Self { pods, admin, ocm, hub };
        stage.install(values).await;
        Some(stage)
    }

    /// Installs or upgrades the chart, and waits for its Pods.
    async fn install(&self, values: &[&str]) {
        chart::install(&self.hub, &[&["image.tag=test"], values].concat()).await;
        for component in COMPONENTS {
            self.rolled_out(component).await;
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    /// The Pods of a component, once all replicas of the current template are ready and no other is left.
    async fn rolled_out(&self, component: &str) -> Vec<Pod> {
        let selector = format!("app.kubernetes.io/component={component}");
        eventually(&format!("{component} is rolled out"), SOON * 2, async || {
            let deployment = self.api::<Deployment>().get(&format!("{RELEASE}-{component}")).await;
            let deployment = deployment.map_err(|error| error.to_string())?;
            let (spec, status) = (deployment.spec.unwrap(), deployment.status.unwrap_or_default());
            let current = status.observed_generation == deployment.metadata.generation;
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            let pods = self.api::<Pod>().list(&ListParams::default().labels(&selector)).await;
            let pods = pods.map_err(|error| error.to_string())?.items;
            let is_done = current && counts.iter().all(|count| *count == spec.replicas);
            if is_done && i32::try_from(pods.len()).ok() == spec.replicas {
                return Ok(Some(pods));
            }
            Err(format!("{status:?} {:?}", pods.iter().map(|pod| &pod.status).collect::<Vec<_>>()))
        })
        .await
    }

    /// The Pod of a component that holds a Lease, unless it is this one.
    async fn leader(&self, component: &str, but: &str) -> Pod {
        let of_component = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
        eventually(&format!("a Pod of {component} leads that is not {but:?}"), SOON, async || {
            let leases = self.api::<Lease>().list(&ListParams::default()).await;
            let leases = leases.map_err(|error| error.to_string())?;
            let holders: Vec<_> =
                leases.into_iter().filter_map(|lease| lease.spec?.holder_identity).collect();
            let pods = self.api::<Pod>().list(&of_component).await.map_err(|error| error.to_string())?;
            let leads = |pod: &Pod| holders.iter().any(|holder| holder.contains(&pod.name_any()));
            pods.into_iter()
                .find(|pod| pod.name_any() != but && leads(pod))
                .map(Some)
                .ok_or(holders.join(", "))
        })
        .await
    }

    /// Waits until a namespace has the profiles of these clusters, with their status.
    async fn shows(&self, namespace: &str, clusters: &[String]) {
        let what = format!("{namespace} has {} profiles", clusters.len());
        eventually(&what, SOON, async || {
            let shown = names(&self.ocm, namespace).await;
            if shown == clusters { Ok(()) } else { Err(format!("{} of them", shown.len())) }
        })
        .await;
        let kubectl = [
            "get",
            "clusterprofiles",
            "--namespace",
            namespace,
            "--output=jsonpath={.items[*].status.version.kubernetes}",
        ];
        eventually(&format!("{what} with their status"), SOON, async || {
            let output = self.hub.kubectl(&kubectl).await.unwrap();
            String::from_utf8_lossy(&output.stdout).split_whitespace().count() == clusters.len()
        })
        .await;
    }

    /// Fails unless each profile was created once, and its status written once.
    async fn each_was_written_once(&self, profiles: usize) {
        let requests = self.hub.audit().requests().await.unwrap().of_user(&chart::user("profiles"));
        let writes = requests.writes().matching(|request| request.resource == "clusterprofiles");
        let written = |verb: &str| writes.count(|request| request.verb == verb && request.code < 300);
        assert_eq!(written("create"), profiles, "{writes}");
        assert_eq!(written("patch"), profiles, "{writes}");
        assert_eq!(writes.len(), 2 * profiles, "{writes}");
    }
}

fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().node_name.clone().unwrap()
}

/// The content of a file of the cgroup of a process, by its names in versions 1 and 2.
fn memory_of(process: u32, [v1, v2]: [&str; 2]) -> u64 {
    let cgroups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let file = cgroups
        .lines()
        .find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            match controllers {
                "memory" => Some(Path::new("/sys/fs/cgroup/memory").join(path).join(v1)),
                "" => Some(Path::new("/sys/fs/cgroup").join(path).join(v2)).filter(|file| file.exists()),
                _ => None,
            }
        })
        .unwrap();
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn the_replicas_of_a_controller_run_on_different_nodes_restricted_and_within_limits() {
    let Some(stage) = Stage::start(2, &[]).await else { return };
    for component in COMPONENTS {
        let pods = stage.rolled_out(component).await;
        let nodes: BTreeSet<_> = pods.iter().map(node_of).collect();
        assert_eq!(nodes.len(), 2, "{component}: {nodes:?}");
        for pod in pods {
            let container = &pod.spec.as_ref().unwrap().containers[0].name;
            let processes = stage.pods.processes(NAMESPACE, &pod.name_any(), container).await.unwrap();
            assert_eq!(processes.len(), 1, "{component}");
            let status = std::fs::read_to_string(format!("/proc/{}/status", processes[0])).unwrap();
            let line = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
                line.unwrap().split('\t').next().unwrap().to_owned()
            };
            let names = ["Uid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"];
            let none = "0000000000000000";
            assert_eq!(names.map(line), ["65532", none, none, "1", "2"], "{component}");
            assert_eq!(memory_of(processes[0], ["memory.limit_in_bytes", "memory.max"]), 512 << 20);
        }
    }
    let ended = chart::run(
        chart::helm(),
        Some(&stage.hub),
        &["test", RELEASE, "--namespace", NAMESPACE, "--timeout=120s", "--logs"],
    )
    .await;
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("held and renewed by"), "{}", ended.stdout);

    // Where the values say that they shall run.
    let affinity = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]";
    let affinity = ["key=kubernetes.io/hostname", "operator=In", "values={node-2}"]
        .map(|field| format!("{affinity}.{field}"));
    stage.install(&affinity.each_ref().map(String::as_str)).await;
    for component in COMPONENTS {
        let pods = stage.rolled_out(component).await;
        assert!(pods.iter().all(|pod| node_of(pod) == "node-2"), "{component}");
    }
}

#[tokio::test]
async fn thousands_of_profiles_are_kept_within_the_memory_that_the_chart_requests() {
    const REQUESTED: u64 = 64 << 20;
    let Some(stage) = Stage::start(1, &["resources.limits.memory=64Mi", "replicaCount=1"]).await else {
        return;
    };
    let fleet = ocm::Fleet::of(500, 6);
    fleet.create(&stage.ocm).await.unwrap();
    for namespace in &fleet.namespaces {
        stage.shows(namespace, &fleet.clusters).await;
    }
    let pod = stage.rolled_out("profiles").await.remove(0);
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    assert_eq!(status.restart_count, 0, "{status:?}");
    let process = stage.pods.processes(NAMESPACE, &pod.name_any(), &status.name).await.unwrap()[0];
    assert_eq!(memory_of(process, ["memory.limit_in_bytes", "memory.max"]), REQUESTED);
    assert_eq!(memory_of(process, ["memory.failcnt", "memory.swap.current"]), 0, "the limit was reached");
    stage.each_was_written_once(500 * 6).await;
}

#[tokio::test]
async fn nothing_is_written_twice_while_pods_are_replaced_or_evicted() {
    let Some(stage) = Stage::start(2, &[]).await else { return };
    let fleet = ocm::Fleet::of(20, 2);
    fleet.create(&stage.ocm).await.unwrap();
    // Clusters join all the time, while all Pods are replaced.
    let joining = join(&stage, 20..80);
    tokio::join!(joining, stage.install(&["podAnnotations.replaced=yes"]));
    stage.each_was_written_once(80 * 2).await;

    let leader = stage.leader("profiles", "").await.name_any();
    stage.api::<Pod>().evict(&leader, &EvictParams::default()).await.unwrap();
    stage.leader("profiles", &leader).await;
    join(&stage, 80..90).await;
    stage.rolled_out("profiles").await;
    stage.each_was_written_once(90 * 2).await;
}

/// Clusters join the fleet's set, one after the other, and have profiles. They are complete before: a profile that is
/// created before the status of its cluster is reported would be written again.
async fn join(stage: &Stage, numbers: std::ops::Range<usize>) {
    let fleet = ocm::Fleet::of(numbers.end, 2);
    let waiting = ocm::Fleet { set: "waiting".to_owned(), ..fleet.clone() };
    let joins =
        json!({ "metadata": { "labels": { "cluster.open-cluster-management.io/clusterset": fleet.set } } });
    for name in &fleet.clusters[numbers] {
        waiting.cluster(name).create(&stage.ocm).await.unwrap();
        world::merge(&stage.ocm, &waiting.cluster(name).into(), &joins).await;
    }
    for namespace in &fleet.namespaces {
        stage.shows(namespace, &fleet.clusters).await;
    }
}

#[tokio::test]
async fn when_a_node_stops_the_lease_moves_and_nothing_is_written_twice() {
    let Some(mut stage) = Stage::start(2, &[]).await else { return };
    let fleet = ocm::Fleet::of(20, 2);
    fleet.create(&stage.ocm).await.unwrap();
    for namespace in &fleet.namespaces {
        stage.shows(namespace, &fleet.clusters).await;
    }
    let leader = stage.leader("profiles", "").await;
    stage.pods.stop_node(&node_of(&leader)).await.unwrap();
    let follower = stage.leader("profiles", &leader.name_any()).await;
    assert_ne!(node_of(&follower), node_of(&leader));
    join(&stage, 20..30).await;
    stage.each_was_written_once(30 * 2).await;
}
