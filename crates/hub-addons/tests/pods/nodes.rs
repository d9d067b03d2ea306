//! The chart on nodes: what only a scheduler, kubelets and Services show. Whoever writes, writes once: when Pods are
//! replaced, evicted, or end with their node.

use std::cell::Cell;
use std::collections::BTreeSet;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::EvictParams;
use local_hub::{Pods, eventually, ocm};
use serde_json::json;

use crate::stage::{COMPONENTS, Stage};
use crate::support::chart::{self, NAMESPACE, RELEASE};
use crate::support::{SOON, shown, world};

/// The number of clusters that a test begins with.
const START: usize = 20;

fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().node_name.clone().unwrap()
}

/// Fails unless the process of a Pod has no permissions and is filtered.
async fn is_restricted(runner: &Pods, pod: &Pod) {
    let container = &pod.spec.as_ref().unwrap().containers[0].name;
    let processes = runner.processes(NAMESPACE, &pod.name_any(), container).await.unwrap();
    assert_eq!(processes.len(), 1, "{}", pod.name_any());
    let status = std::fs::read_to_string(format!("/proc/{}/status", processes[0])).unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap().split('\t').next().unwrap().to_owned()
    };
    let names = ["Uid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"];
    let none = "0000000000000000";
    assert_eq!(names.map(line), ["65532", none, none, "1", "2"], "{}", pod.name_any());
}

#[tokio::test]
async fn the_replicas_of_a_controller_run_on_different_nodes_and_are_restricted() {
    let Some(stage) = Stage::start(2, &[]).await else { return };
    for component in COMPONENTS {
        let pods = stage.rolled_out(component).await;
        let nodes: BTreeSet<_> = pods.iter().map(node_of).collect();
        assert_eq!(nodes.len(), 2, "{component}: {nodes:?}");
        for pod in pods {
            is_restricted(&stage.hub.pods, &pod).await;
        }
    }
    let tested = chart::run(
        chart::helm(),
        Some(&stage.hub),
        &["test", RELEASE, "--namespace", NAMESPACE, "--timeout=120s", "--logs"],
    )
    .await
    .succeeded();
    assert!(tested.contains("held and renewed by"), "{tested}");

    // Where the values say that they shall run.
    let chosen = "node-2";
    let affinity = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]";
    let affinity = ["key=kubernetes.io/hostname", "operator=In", &format!("values={{{chosen}}}")]
        .map(|field| format!("{affinity}.{field}"));
    stage.install(&affinity.each_ref().map(String::as_str)).await;
    for component in COMPONENTS {
        let pods = stage.rolled_out(component).await;
        assert!(pods.iter().all(|pod| node_of(pod) == chosen), "{component}");
    }
}

#[tokio::test]
async fn nothing_is_written_twice_while_pods_are_replaced_or_evicted() {
    let Some(stage) = Stage::start(2, &[]).await else { return };
    stage.create(&ocm::Fleet::of(START, 2)).await;
    let clusters =
        join_during(&stage, START, stage.install(&["podAnnotations.replaced=yes"]).boxed_local())
            .await;
    stage.each_was_written_once(clusters * 2, false).await;

    let leader = stage.leader("profiles", "").await.name_any();
    let evicted = async {
        stage.api::<Pod>().evict(&leader, &EvictParams::default()).await.unwrap();
        stage.leader("profiles", &leader).await;
        stage.rolled_out("profiles").await;
    };
    let clusters = join_during(&stage, clusters, evicted.boxed_local()).await;
    stage.each_was_written_once(clusters * 2, false).await;
}

/// Clusters join the fleet's set, one after the other, until something else has happened. Returns how many there are, once
/// all have profiles. They are complete before: a profile that is created before the status of its cluster is reported
/// would be written again.
async fn join_during(stage: &Stage, joined: usize, happens: LocalBoxFuture<'_, ()>) -> usize {
    // So many have no profile yet, at most.
    const AHEAD: usize = 8;
    let fleet = ocm::Fleet::of(10_000, 2);
    let waiting = ocm::Fleet { set: "waiting".to_owned(), ..fleet.clone() };
    let joins = json!({ "metadata": { "labels": { "cluster.open-cluster-management.io/clusterset": fleet.set } } });
    let profiles = shown::profiles(&stage.ocm, &fleet.namespaces[0]);
    let has_happened = Cell::new(false);
    let joining = async {
        let mut number = joined;
        while !has_happened.get() {
            let cluster = waiting.cluster(&fleet.clusters[number]);
            cluster.create(&stage.ocm).await.unwrap();
            world::merge(&stage.ocm, &cluster.into(), &joins).await;
            number += 1;
            let shown = &fleet.clusters[number - AHEAD];
            eventually(&format!("{shown} has a profile"), SOON * 2, async || {
                profiles.get_opt(shown).await.is_ok_and(|profile| profile.is_some())
            })
            .await;
        }
        number
    };
    let happening = async {
        happens.await;
        has_happened.set(true);
    };
    let (joined, ()) = tokio::join!(joining, happening);
    for namespace in &fleet.namespaces {
        stage.shows(namespace, &fleet.clusters[..joined]).await;
    }
    joined
}

#[tokio::test]
async fn when_a_node_stops_the_lease_moves_and_nothing_is_written_twice() {
    let Some(stage) = Stage::start(2, &[]).await else { return };
    let fleet = ocm::Fleet::of(START, 2);
    stage.create(&fleet).await;
    for namespace in &fleet.namespaces {
        stage.shows(namespace, &fleet.clusters).await;
    }
    let leader = stage.leader("profiles", "").await;
    let stopped = async {
        stage.hub.pods.stop_node(&node_of(&leader)).await.unwrap();
        let follower = stage.leader("profiles", &leader.name_any()).await;
        assert_ne!(node_of(&follower), node_of(&leader));
    };
    let clusters = join_during(&stage, START, stopped.boxed_local()).await;
    stage.each_was_written_once(clusters * 2, true).await;
}
