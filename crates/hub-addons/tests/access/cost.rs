//! The cost of access providers for the API server, counted in its audit log. The scenarios of the benchmark
//! count the same for 200 clusters in 5 namespaces.

#![cfg(test)]

use crate::support::proxy::{
    self, ALONE, Authority, HOME, cost_since, has_entry, has_written, install, serving,
};
use crate::support::{Addons, Hub, PROFILES, WHOLE_FLEET, rights, user};
use local_hub::{LocalHub, Requests, ocm};

const STATUS: &str = "clusterprofiles/status";

/// A fleet whose clusters all have the addon.
async fn fleet_behind_a_proxy(hub: &Hub, authority: &Authority) -> ocm::Fleet {
    let fleet = ocm::Fleet::of(40, 5);
    let clusters: Vec<&str> = fleet.clusters.iter().map(String::as_str).collect();
    install(hub, authority, &clusters).await;
    fleet.create(&hub.ocm).await.unwrap();
    fleet
}

/// Waits until every profile of the fleet has its entry with these anchors, and the projector's part.
async fn all_publish(hub: &Hub, fleet: &ocm::Fleet, authorities: &[&Authority]) {
    for namespace in &fleet.namespaces {
        let profiles = proxy::all(&hub.ocm, namespace).await;
        assert_eq!(profiles.len(), fleet.clusters.len());
        for profile in profiles {
            let cluster = profile["metadata"]["name"].as_str().unwrap();
            let right = has_entry(&profile, &proxy::server(HOME, cluster), cluster, authorities);
            assert!(right && profile["status"]["version"]["kubernetes"] == "v1.36.3", "{profile:#}");
        }
    }
}

fn status_writes(requests: &Requests) -> usize {
    requests.count(|request| request.verb == "patch" && request.target() == STATUS && request.code == 200)
}

#[tokio::test]
async fn together_with_the_projector_an_entry_costs_no_write_of_its_own_and_a_new_authority_one_each() {
    let hub = proxy::hub_for_both(LocalHub::builder()).await;
    let (first, second, third) = (Authority::new("first"), Authority::new("second"), Authority::new("third"));
    let fleet = fleet_behind_a_proxy(&hub, &first).await;

    let mark = hub.audit().mark().await.unwrap();
    let addons = Addons::start(&hub, &[PROFILES, "--ca-overlap=1h"]).await;
    has_written(&addons, 200).await;
    let cold = cost_since(&hub, &addons, &mark).await;
    assert_eq!(cold.count(|r| r.verb == "create" && r.target() == "clusterprofiles"), 200, "{cold}");
    assert_eq!(status_writes(&cold), 200, "{cold}");
    assert_eq!(cold.writes().len(), 400, "{cold}");
    assert_eq!(cold.count(|r| r.verb == "get" || r.code >= 400), 0, "{cold}");
    assert_eq!(cold.count(|r| r.verb == "list"), 8, "one of each kind: {cold}");
    all_publish(&hub, &fleet, &[&first]).await;
    addons.measures_within(&proxy::state("cluster_proxy", "published"), 200.0, WHOLE_FLEET).await;

    // Two renewals of the leaf; between them, a change that is visible.
    let mark = hub.audit().mark().await.unwrap();
    serving(HOME, &first.chain()).update(&hub.ocm).await.unwrap();
    serving(HOME, "garbage").update(&hub.ocm).await.unwrap();
    addons.measures("hub_addons_findings{reason=\"NoTrustAnchor\"}", 1.0).await;
    serving(HOME, &first.chain()).update(&hub.ocm).await.unwrap();
    addons.measures("hub_addons_findings{reason=\"NoTrustAnchor\"}", 0.0).await;
    addons.measures_within(&proxy::state("cluster_proxy", "published"), 200.0, WHOLE_FLEET).await;
    let renewed = cost_since(&hub, &addons, &mark).await;
    assert_eq!(renewed.writes().len(), 0, "{renewed}");

    let mark = hub.audit().mark().await.unwrap();
    serving(HOME, &second.chain()).update(&hub.ocm).await.unwrap();
    has_written(&addons, 400).await;
    let new = cost_since(&hub, &addons, &mark).await;
    assert_eq!((status_writes(&new), new.writes().len()), (200, 200), "{new}");
    all_publish(&hub, &fleet, &[&first, &second]).await;

    // Its successor finds both authorities in the profiles and ends the overlap of all of them.
    addons.stop().await;
    let mark = hub.audit().mark().await.unwrap();
    let addons = Addons::start(&hub, &[PROFILES, "--ca-overlap=1s"]).await;
    has_written(&addons, 200).await;
    let over = cost_since(&hub, &addons, &mark).await;
    assert_eq!((status_writes(&over), over.writes().len()), (200, 200), "{over}");
    all_publish(&hub, &fleet, &[&second]).await;

    addons.stop().await;
    let mark = hub.audit().mark().await.unwrap();
    let addons = Addons::start(&hub, &[PROFILES, "--ca-overlap=0"]).await;
    addons.measures_within(&proxy::state("cluster_proxy", "published"), 200.0, WHOLE_FLEET).await;
    let restart = cost_since(&hub, &addons, &mark).await;
    assert_eq!(restart.writes().len(), 0, "{restart}");

    serving(HOME, &third.chain()).update(&hub.ocm).await.unwrap();
    has_written(&addons, 200).await;
    let without_overlap = cost_since(&hub, &addons, &mark).await;
    assert_eq!((status_writes(&without_overlap), without_overlap.writes().len()), (200, 200));
    all_publish(&hub, &fleet, &[&third]).await;
}

#[tokio::test]
async fn in_a_process_of_its_own_an_entry_costs_one_write() {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), vec![]).await;
    hub.grant("projector", rights::projector()).await.unwrap();
    hub.grant("provisioner", rights::provisioner()).await.unwrap();
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let fleet = fleet_behind_a_proxy(&hub, &first).await;

    let mark = hub.audit().mark().await.unwrap();
    let projector = Addons::launch(
        &hub,
        "projector",
        "projector",
        &["--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false"],
    )
    .await;
    let provisioner = Addons::launch(&hub, "provisioner", "provisioner", &[ALONE, "--ca-overlap=0"]).await;
    has_written(&provisioner, 200).await;
    has_written(&projector, 200).await;
    for program in [&projector, &provisioner] {
        program.measures("hub_addons_queue_depth{controller=\"clusterprofiles\"}", 0.0).await;
    }
    all_publish(&hub, &fleet, &[&first]).await;
    let requests = hub.audit().since(&mark).await.unwrap();
    let of_projector = proxy::requests_of("projector", &requests);
    assert_eq!(of_projector.count(|r| r.verb == "create" && r.code == 201), 200, "{of_projector}");
    assert_eq!(status_writes(&of_projector), 200, "{of_projector}");
    let of_provisioner = proxy::requests_of("provisioner", &requests);
    assert_eq!(status_writes(&of_provisioner), 200, "{of_provisioner}");
    // On a busy machine the two may conflict; then one of them retries.
    let failed = of_provisioner.matching(|request| request.code >= 400);
    assert!(failed.iter().all(|request| request.code == 409 && request.verb == "patch"), "{of_provisioner}");
    assert_eq!(of_provisioner.writes().len(), 200 + failed.len(), "{of_provisioner}");

    let mark = hub.audit().mark().await.unwrap();
    serving(HOME, &second.chain()).update(&hub.ocm).await.unwrap();
    has_written(&provisioner, 400).await;
    provisioner.measures("hub_addons_queue_depth{controller=\"clusterprofiles\"}", 0.0).await;
    all_publish(&hub, &fleet, &[&second]).await;
    let requests = hub.audit().since(&mark).await.unwrap();
    let of_provisioner = proxy::requests_of("provisioner", &requests).writes();
    assert_eq!((status_writes(&of_provisioner), of_provisioner.len()), (200, 200), "{of_provisioner}");
    assert_eq!(proxy::requests_of("projector", &requests).writes().len(), 0);
    assert_eq!(proxy::requests_of(user(), &requests).len(), 0);
}
