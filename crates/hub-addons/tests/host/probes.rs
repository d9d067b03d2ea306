//! Probes, metrics, and parseable logs, on a real hub.

use crate::support::shown::sees;
use crate::support::{Addons, Hub, PROJECTOR, USER, rights, world};
use local_hub::{LocalHub, ocm};
use serde_json::Value;

const CLUSTERS: &str = "managedclusters.cluster.open-cluster-management.io";
const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";

#[tokio::test]
async fn a_missing_crd_is_reported_and_picked_up_when_it_appears() {
    let builder =
        LocalHub::builder().without_controller_manager().without_crds([CLUSTERS, PROFILES]);
    let hub = Hub::start(builder, rights::projector()).await;
    let addons = Addons::launch(&hub, "hub-addons", USER, &[PROJECTOR]).await;
    for resource in ["managedclusters", "clusterprofiles"] {
        // Repeatedly, not only once.
        let labels = format!("resource=\"{resource}\",category=\"not_served\"");
        addons.measures_at_least(&format!("hub_addons_watch_errors_total{{{labels}}}"), 4.0).await;
        let kind = format!("the CustomResourceDefinition of {resource}");
        let line = format!("waiting for {kind}: the hub does not serve it");
        assert_eq!(addons.lines_with(&line), 1, "{}", addons.log());
    }
    let (code, text) = addons.probe("/readyz").await;
    assert_eq!(code, 503);
    for line in [
        "[-] fleet: managedclusters: waiting for the first list",
        "[-] clusterprofiles: clusterprofiles: waiting for the first list",
        "[+] fleet: managedclustersets: ok",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(addons.probe("/livez").await, (200, "ok\n".to_owned()), "a restart would not help");

    hub.install_crd(&hub.crd(CLUSTERS).unwrap()).await.unwrap();
    addons
        .measures("hub_addons_watch_synced{controller=\"fleet\",resource=\"managedclusters\"}", 1.0)
        .await;
    assert_eq!(addons.probe("/readyz").await.0, 503, "one is still missing");
    let fleet = ocm::Fleet::of(3, 1);
    fleet.create(&hub.ocm).await.unwrap();
    hub.install_crd(&hub.crd(PROFILES).unwrap()).await.unwrap();
    sees(&hub.ocm, "fleet-00", &["cluster-0000", "cluster-0001", "cluster-0002"]).await;
    let (code, text) = addons.probe("/readyz").await;
    assert_eq!(code, 200, "{text}");
    assert_eq!(addons.lines_with("watching managedclusters again"), 1, "{}", addons.log());
    addons.stop().await;
}

#[tokio::test]
async fn metrics_logs_and_probes_are_machine_readable() {
    let hub = Hub::for_projector().await;
    let addons = hub.projector(&["--log-format=json"]).await;
    let fleet = ocm::Fleet::of(2, 1);
    fleet.create(&hub.ocm).await.unwrap();
    sees(&hub.ocm, "fleet-00", &["cluster-0000", "cluster-0001"]).await;
    let broken = serde_json::json!({ "matchExpressions": [{ "key": "a", "operator": "Like" }] });
    world::create(&hub.ocm, [ocm::selecting_cluster_set("broken", &broken)]).await;
    addons.measures("hub_addons_events_total{result=\"published\"}", 1.0).await;

    // The series in operators' alerts and dashboards.
    let metrics = addons.metrics().await;
    for series in [
        "hub_addons_build_info{version=\"",
        "hub_addons_leader 1",
        "hub_addons_writes_total{resource=\"clusterprofiles\",verb=\"create\",result=\"ok\"} 2",
        "hub_addons_writes_total{resource=\"clusterprofiles\",verb=\"patch_status\",result=\"ok\"}",
        "hub_addons_findings{reason=\"InvalidSelector\"} 1",
        "hub_addons_findings{reason=\"ClaimSkipped\"} 0",
        "hub_addons_findings_reported_total{reason=\"InvalidSelector\"} 1",
        "hub_addons_watch_synced{controller=\"fleet\",resource=\"managedclusters\"} 1",
    ] {
        let is_there = metrics.lines().any(|line| line.starts_with(series));
        assert!(is_there, "{series} is missing in\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
    assert_eq!(addons.probe("/nothing").await.0, 404);

    addons.signal("TERM").await;
    assert_eq!(addons.exit_status().await, Some(0));
    let log = addons.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    for line in &lines {
        assert!(line["timestamp"].is_string() && line["level"].is_string(), "{line}");
        assert!(line["message"].is_string(), "{line}");
    }
    let has = |[first, second]: [(&str, &str); 2]| {
        lines.iter().any(|line| line[first.0] == first.1 && line[second.0] == second.1)
    };
    assert!(has([("level", "WARN"), ("reason", "InvalidSelector")]), "{log}");
    assert!(has([("message", "created"), ("object", "fleet-00/cluster-0000")]), "{log}");
}
