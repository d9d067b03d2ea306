//! An API server that is unavailable or refuses requests, and signals to the process, on a real hub.

use crate::support::proxy::Authority;
use crate::support::shared::caught_up;
use crate::support::{Addons, Hub, PROJECTOR, USER, rights};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;

const WATCHED: [&str; 4] =
    ["managedclusters", "managedclustersets", "managedclustersetbindings", "clusterprofiles"];

fn watch_errors(resource: &str, category: &str) -> String {
    format!("hub_addons_watch_errors_total{{resource=\"{resource}\",category=\"{category}\"}}")
}

#[tokio::test]
async fn an_api_server_that_cannot_be_reached_is_waited_for_with_one_line() {
    let hub = Hub::for_projector().await;
    hub.grant("projector", rights::projector()).await.unwrap();
    hub.stop_api_server().await.unwrap();
    let candidate = Addons::launch(&hub, "candidate", USER, &[PROJECTOR]).await;
    let alone =
        Addons::launch(&hub, "alone", "projector", &[PROJECTOR, "--leader-elect=false"]).await;
    // Profiles are watched once the served version is known.
    let watched =
        WATCHED.map(|it| if it == "clusterprofiles" { "customresourcedefinitions" } else { it });
    for resource in watched {
        alone.measures_at_least(&watch_errors(resource, "unavailable"), 4.0).await;
    }
    assert_eq!(alone.lines_with("cannot watch managedcluster"), 1, "{}", alone.log());
    assert_eq!(alone.lines_with("WARN"), 1, "{}", alone.log());
    assert!(alone.log().contains("onnection refused"), "{}", alone.log());
    assert_eq!(alone.probe("/readyz").await.0, 503);
    assert_eq!(alone.probe("/livez").await.0, 200, "a restart would not help");
    for line in ["cannot acquire the lease, retrying", "WARN"] {
        assert_eq!(candidate.lines_with(line), 1, "{}", candidate.log());
    }

    hub.start_api_server().await.unwrap();
    for addons in [&candidate, &alone] {
        addons.logs("working", "all watches are synced").await;
        assert_eq!(addons.probe("/readyz").await.0, 200);
    }
    // Of two that write at once, the one whose watches are behind undoes what the other did.
    alone.stop().await;
    caught_up(&hub.ocm, "there").await;
    candidate.stop().await;
}

#[tokio::test]
async fn an_api_server_with_a_certificate_of_another_authority_receives_no_request() {
    let hub = Hub::for_projector().await;
    let mut config = Kubeconfig::read_from(hub.kubeconfig_for(USER).unwrap()).unwrap();
    for cluster in config.clusters.iter_mut().filter_map(|it| it.cluster.as_mut()) {
        cluster.certificate_authority = None;
        cluster.certificate_authority_data = Some(STANDARD.encode(Authority::new("another").pem()));
    }
    let path = hub.directory().join("another-authority.kubeconfig");
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    let mark = hub.audit().mark().await.unwrap();
    let addons =
        Addons::launch_with(&hub, "hub-addons", &path, &[PROJECTOR, "--leader-elect=false"]).await;
    addons.measures_at_least(&watch_errors("managedclusters", "unavailable"), 2.0).await;
    assert!(addons.log().contains("invalid peer certificate: UnknownIssuer"), "{}", addons.log());
    assert_eq!(addons.probe("/readyz").await.0, 503);
    // No request, and so no credential either.
    let requests = hub.audit().since(&mark).await.unwrap().of_user(USER);
    assert_eq!(requests.count(|_| true), 0, "{requests}");

    // Once the kubeconfig has the authority, as after a rotation, the process trusts it without a restart.
    std::fs::copy(hub.kubeconfig_for(USER).unwrap(), &path).unwrap();
    addons.logs("working", "all watches are synced").await;
    let changed = "the CA certificates of the hub have changed";
    assert_eq!(addons.lines_with(changed), 1, "{}", addons.log());
    addons.stop().await;
}

#[tokio::test]
async fn missing_permissions_are_one_line_each_and_work_begins_when_they_are_granted() {
    let hub = Hub::plain().await;
    let addons = Addons::launch(&hub, "hub-addons", USER, &[PROJECTOR]).await;
    addons.logs("without a permission", "cannot acquire the lease, retrying").await;
    let log = addons.log();
    let line = log.lines().find(|line| line.contains("cannot acquire the lease")).unwrap();
    assert!(line.contains("category=\"forbidden\""), "{line}");
    assert!(line.contains("cannot get resource \\\"leases\\\""), "{line}");

    hub.grant(USER, rights::host()).await.unwrap();
    for resource in WATCHED {
        addons.measures_at_least(&watch_errors(resource, "forbidden"), 3.0).await;
        let line = format!("cannot watch {resource}, retrying");
        assert_eq!(addons.lines_with(&line), 1, "{}", addons.log());
    }
    // The Lease, and the CRD, without which it can work.
    assert_eq!(addons.lines_with("WARN"), 2 + WATCHED.len(), "{}", addons.log());
    assert_eq!(addons.probe("/readyz").await.0, 503);

    hub.grant(USER, rights::projector()).await.unwrap();
    addons.logs("working", "all watches are synced").await;
    caught_up(&hub.ocm, "granted").await;
    addons.stop().await;
}
