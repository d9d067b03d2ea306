//! The chart's network policies, enforced by kube-router: connections from the networks of real Pods.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use local_hub::{Pods, eventually, ocm};
use serde_json::json;

use crate::stage::{COMPONENTS, Stage};
use crate::support::{SOON, pods, world};

/// A program that accepts connections.
const SERVER: &str = "registry.example.com/streams:test";
const SERVES: u16 = 7000;
/// Two namespaces with a Pod each. The chart's values let the first one scrape metrics.
const NAMESPACES: [&str; 2] = ["monitoring", "other"];
const VALUES: [&str; 3] = [
    "replicaCount=1",
    "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=monitoring",
    // Of the node, whose name server is not in a Pod.
    "networkPolicy.dnsTo[0].ipBlock.cidr=192.0.2.10/32",
];

/// Creates a Pod that accepts connections, and returns it when it runs.
async fn server(stage: &Stage, namespace: &str) -> Pod {
    let container = json!({ "name": "main", "image": SERVER });
    let pod = world::object("Pod", Some(namespace), "server");
    let pod = pod.field("spec", json!({ "containers": [container] }));
    world::create(&stage.admin, [ocm::namespace(namespace), pod]).await;
    let pods: Api<Pod> = Api::namespaced(stage.admin.clone(), namespace);
    eventually("the Pod runs", SOON, async || {
        let pod = pods.get("server").await.map_err(|error| error.to_string())?;
        let status = pod.status.clone().unwrap_or_default();
        let runs = status.phase.as_deref() == Some("Running");
        if runs { Ok(Some(pod)) } else { Err(format!("{status:?}")) }
    })
    .await
}

fn at(pod: &Pod, port: u16) -> SocketAddr {
    let ip = pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap();
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Waits until a Pod can connect, or cannot.
async fn connects(runner: &Pods, from: &Pod, to: SocketAddr, wanted: bool) {
    let (namespace, name) = (from.namespace().unwrap(), from.name_any());
    let container = &from.spec.as_ref().unwrap().containers[0].name;
    let what = format!(
        "{namespace}/{name} {} to {to}",
        if wanted { "connects" } else { "does not connect" }
    );
    eventually(&what, SOON, async || {
        let connected = runner.connect_from((&namespace, &name, container), to).await;
        if connected.is_ok() == wanted { Ok(()) } else { Err(format!("{connected:?}")) }
    })
    .await;
}

#[tokio::test]
async fn the_network_policies_of_the_chart_permit_what_its_controllers_need_and_nothing_else() {
    if !pods::can_enforce_policies() {
        return;
    }
    let started = Stage::start_with(1, &VALUES, |nodes| {
        nodes.network_policies().node_program(SERVER, "streams")
    })
    .await;
    let Some(stage) = started else { return };
    let [prometheus, other] =
        [server(&stage, NAMESPACES[0]).await, server(&stage, NAMESPACES[1]).await];
    let runner = &stage.hub.pods;
    let kubelet = "192.0.2.101:10250".parse().unwrap();
    for component in COMPONENTS {
        let controller = stage.rolled_out(component).await.remove(0);
        let (metrics, probes) = (at(&controller, 8080), at(&controller, 8081));
        // Refusals first: once these are effective, permissions are those of the policies.
        for (from, to) in
            [(&other, metrics), (&controller, at(&other, SERVES)), (&controller, kubelet)]
        {
            connects(runner, from, to, false).await;
        }
        let outside =
            ["192.0.2.1:6443", "10.0.0.1:443", "192.0.2.10:53"].map(|to| to.parse().unwrap());
        for to in outside {
            connects(runner, &controller, to, true).await;
        }
        let between = [
            (&prometheus, metrics),
            (&other, probes),
            (&other, at(&prometheus, SERVES)),
            (&other, kubelet),
        ];
        for (from, to) in between {
            connects(runner, from, to, true).await;
        }
    }
    // And they work.
    let fleet = ocm::Fleet::of(3, 1);
    fleet.create(&stage.ocm).await.unwrap();
    stage.shows(&fleet.namespaces[0], &fleet.clusters).await;
}
