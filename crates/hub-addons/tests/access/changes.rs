//! Changes on the hub reach the entries immediately; an object that cannot be read leaves them unchanged.

#![cfg(test)]

use crate::support::proxy::{
    Authority, HOME, TEAM, addon, configuration, cost_since, install, project, projected, provisioner,
    publishes, serving, state,
};
use crate::support::{Hub, rights, world};
use local_hub::{LocalHub, ocm};
use serde_json::json;

/// A hub that accepts configurations of any shape.
async fn hub_without_validation() -> Hub {
    const CONFIGURATIONS: &str = "managedproxyconfigurations.proxy.open-cluster-management.io";
    let builder = LocalHub::builder().without_controller_manager().without_crds([CONFIGURATIONS]);
    let hub = Hub::start(builder, rights::provisioner()).await;
    let mut crd = serde_json::to_value(hub.crd(CONFIGURATIONS).unwrap()).unwrap();
    *crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").unwrap() =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    hub.install_crd(&serde_json::from_value(crd).unwrap()).await.unwrap();
    hub
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_keeps_every_entry() {
    let hub = hub_without_validation().await;
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    install(&hub, &old, &["c1"]).await;
    project(&hub, &["c1"]).await;
    let addons = provisioner(&hub, &["--ca-overlap=0"]).await;
    publishes(&hub, "c1", HOME, &[&old]).await;

    let unreadable = configuration(HOME).field("spec", json!({ "proxyServer": { "namespace": 7 } }));
    unreadable.update(&hub.ocm).await.unwrap();
    let note = world::told(&hub.ocm, &unreadable, "Unreadable").await;
    assert!(note.contains("kept"), "{note}");
    // Nor one that would change the host of the URL.
    configuration("elsewhere.example/x").update(&hub.ocm).await.unwrap();
    addons
        .logs("told", "spec.proxyServer.namespace is not a valid namespace name: \"elsewhere.example/x\"")
        .await;
    // The last known namespace of the proxy is still watched.
    serving(HOME, &new.chain()).update(&hub.ocm).await.unwrap();
    let kept = publishes(&hub, "c1", HOME, &[&new]).await;
    addons.stop().await;

    // A process that has never read it knows less, and keeps the entries all the same.
    let mark = hub.audit().mark().await.unwrap();
    let addons = provisioner(&hub, &["--ca-overlap=0"]).await;
    projected(TEAM, "c2").create(&hub.ocm).await.unwrap();
    ocm::namespace("c2").create(&hub.ocm).await.unwrap();
    addon("c2").create(&hub.ocm).await.unwrap();
    addons.measures(&state("cluster_proxy", "configuration_unknown"), 2.0).await;
    let cost = cost_since(&hub, &addons, &mark).await;
    assert_eq!(cost.writes().len(), 0, "{cost}");
    assert_eq!(world::get(&hub.ocm, &projected(TEAM, "c1")).await.unwrap(), kept);

    configuration(HOME).update(&hub.ocm).await.unwrap();
    publishes(&hub, "c2", HOME, &[&new]).await;
    assert_eq!(world::get(&hub.ocm, &projected(TEAM, "c1")).await.unwrap(), kept);
    addons.measures("hub_addons_findings{reason=\"Unreadable\"}", 0.0).await;
}
