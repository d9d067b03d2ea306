//! The projector's cost for the API server, counted in its audit log. The scenarios of the benchmark count the same for
//! 200 clusters in 5 namespaces.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use crate::support::proxy::has_written;
use crate::support::shown::{condition, profile};
use crate::support::{Hub, SOON, user};
use local_hub::{Requests, eventually, ocm};

/// The program's requests, except those for its Lease.
fn of_addons(requests: &Requests) -> Requests {
    requests.of_user(user()).matching(|request| request.resource != "leases")
}

#[tokio::test]
async fn a_fleet_costs_two_writes_a_profile_and_a_restart_none() {
    let hub = Hub::for_projector().await;
    let fleet = ocm::Fleet::of(40, 5);
    fleet.create(&hub.ocm).await.unwrap();

    let before = hub.audit().mark().await.unwrap();
    let addons = hub.projector(&[]).await;
    has_written(&addons, 200).await;
    addons.measures("hub_addons_queue_depth{controller=\"clusterprofiles\"}", 0.0).await;
    let cold = of_addons(&hub.audit().since(&before).await.unwrap());
    assert_eq!(cold.count(|r| r.verb == "create" && r.target() == "clusterprofiles"), 200, "{cold}");
    assert_eq!(cold.count(|r| r.verb == "patch" && r.target() == "clusterprofiles/status"), 200, "{cold}");
    assert_eq!(cold.writes().len(), 400, "{cold}");
    assert_eq!(cold.count(|r| r.verb == "get"), 0, "{cold}");
    assert_eq!(cold.count(|r| r.verb == "list"), 5, "{cold}");
    assert_eq!(cold.count(|r| r.code >= 400), 0, "{cold}");
    addons.stop().await;

    let before = hub.audit().mark().await.unwrap();
    let addons = hub.projector(&[]).await;
    addons.measures("hub_addons_queue_depth{controller=\"clusterprofiles\"}", 0.0).await;
    let restart = of_addons(&hub.audit().since(&before).await.unwrap());
    assert_eq!(restart.writes().len(), 0, "{restart}");

    // A change that does not affect profiles. The next change proves that it was processed.
    let before = hub.audit().mark().await.unwrap();
    let cluster = fleet.cluster("cluster-0007").label("nobody-propagates", "this");
    cluster.update(&hub.ocm).await.unwrap();
    let unavailable =
        fleet.cluster("cluster-0008").condition("ManagedClusterConditionAvailable", "False", "LeaseExpired");
    unavailable.update(&hub.ocm).await.unwrap();
    for namespace in &fleet.namespaces {
        profile(&hub.ocm, (namespace, "cluster-0008"), "is not healthy", |profile| {
            condition(profile, "ControlPlaneHealthy")["status"] == "False"
        })
        .await;
    }
    addons.measures("hub_addons_queue_depth{controller=\"clusterprofiles\"}", 0.0).await;
    let change = of_addons(&hub.audit().since(&before).await.unwrap());
    assert_eq!(change.writes().len(), 5, "{change}");
    assert_eq!(change.count(|r| r.verb == "patch" && r.target() == "clusterprofiles/status"), 5, "{change}");

    // A while without changes, measured by the renewals of the Lease: one every two seconds.
    let before = hub.audit().mark().await.unwrap();
    eventually("the Lease is renewed ten times", SOON, async || {
        let renewals = hub.audit().since(&before).await.unwrap().of_user(user());
        renewals.count(|r| r.verb == "update" && r.resource == "leases") >= 10
    })
    .await;
    let idle = of_addons(&hub.audit().since(&before).await.unwrap());
    assert_eq!(idle.writes().len(), 0, "{idle}");
}
