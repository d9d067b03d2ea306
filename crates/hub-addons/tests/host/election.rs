//! Two processes and one Lease, on a real hub: a process that no longer leads writes nothing.

use std::time::Duration;

use crate::support::shared::caught_up;
use crate::support::shown::sees;
use crate::support::{Addons, Hub, PROJECTOR, USER, rights, world};
use local_hub::{eventually, ocm};

/// The second process has another user, so that the audit log distinguishes the two.
const SECOND: &str = "projector";
/// Timeout for a claim to expire: 15 seconds and a margin.
const EXPIRY: Duration = Duration::from_mins(3);

#[tokio::test]
async fn a_leader_that_was_frozen_writes_nothing_when_it_wakes_and_ends() {
    let hub = Hub::for_projector().await;
    hub.grant(SECOND, rights::projector()).await.unwrap();
    let first = Addons::start(&hub, &[PROJECTOR]).await;
    let second = Addons::launch(&hub, "hub-addons-2", SECOND, &[PROJECTOR]).await;
    second.logs("standing by", "standing by").await;
    assert_eq!(second.probe("/readyz").await.0, 200, "it is there to take over");
    caught_up(&hub.ocm, "before").await;
    first.signal("STOP").await;
    let frozen = hub.audit().mark().await.unwrap();
    eventually("the second leads", EXPIRY, async || {
        second.metric("hub_addons_leader").await == Some(1.0)
    })
    .await;

    // Work for any process that believes it leads: the first has these events on its open watches.
    for name in ["one", "two", "three"] {
        let cluster = ocm::ManagedCluster::named(name).in_set("before");
        cluster.create(&hub.ocm).await.unwrap();
    }
    sees(&hub.ocm, "before", &["one", "three", "two"]).await;
    second.signal("STOP").await;
    for name in ["one", "two"] {
        let profile = world::profile_of("open-cluster-management", "before", name);
        world::delete(&hub.ocm, &profile).await;
    }
    first.signal("CONT").await;
    assert_eq!(first.exit_status().await, Some(1), "{}", first.log());
    assert_eq!(first.lines_with("leadership lost"), 1, "{}", first.log());
    let late = hub.audit().since(&frozen).await.unwrap().of_user(USER).writes();
    assert_eq!(late.count(|request| request.resource != "leases"), 0, "{late}");

    second.signal("CONT").await;
    sees(&hub.ocm, "before", &["one", "three", "two"]).await;
    second.stop().await;
}
