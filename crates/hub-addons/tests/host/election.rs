//! Two processes and one Lease, on a real hub: one leads, and a process that no longer leads writes nothing.

use std::time::Duration;

use crate::support::shared::caught_up;
use crate::support::shown::sees;
use crate::support::{Addons, Hub, SOON, USER, rights, world};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use local_hub::{LocalHub, Mark, Requests, eventually, ocm};

/// The second process has another user, so that the audit log distinguishes the two.
const SECOND: &str = "projector";
const LEASE: &str = "hub-addons-profile-projector";
const PROJECTOR: &str = "--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false";
/// Timeout for a claim to expire: 15 seconds and a margin.
const EXPIRY: Duration = Duration::from_mins(3);

async fn hub() -> Hub {
    let hub = Hub::start(LocalHub::builder().without_controller_manager(), rights::projector()).await;
    hub.grant(SECOND, rights::projector()).await.unwrap();
    hub
}

/// The leader, and the standby.
async fn pair(hub: &Hub) -> (Addons, Addons) {
    let first = Addons::start(hub, &[PROJECTOR]).await;
    let second = Addons::launch(hub, "hub-addons-2", SECOND, &[PROJECTOR]).await;
    second.logs("standing by", "standing by").await;
    (first, second)
}

async fn lease(hub: &Hub) -> Option<Lease> {
    Api::<Lease>::namespaced(hub.ocm.clone(), "default").get_opt(LEASE).await.unwrap()
}

async fn leads(addons: &Addons, within: Duration) {
    eventually("it leads", within, async || addons.metric("hub_addons_leader").await == Some(1.0)).await;
}

async fn profile_writes(hub: &Hub, since: &Mark, user: &str) -> Requests {
    let requests = hub.audit().since(since).await.unwrap();
    requests.of_user(user).writes().matching(|request| request.resource != "leases")
}

#[tokio::test]
async fn one_of_two_writes_and_a_signal_hands_over_at_once() {
    let hub = hub().await;
    assert!(lease(&hub).await.is_none(), "the Lease is made at run time");
    let (first, second) = pair(&hub).await;
    let before = hub.audit().mark().await.unwrap();
    leads(&first, SOON).await;
    assert_eq!(second.metric("hub_addons_leader").await, Some(0.0));
    assert_eq!(second.probe("/readyz").await.0, 200, "it is there to take over");
    assert_eq!(second.probe("/livez").await.0, 200);
    let spec = lease(&hub).await.unwrap().spec.unwrap();
    assert_eq!(spec.lease_duration_seconds, Some(15));

    caught_up(&hub.ocm, "led-by-first").await;
    assert!(!profile_writes(&hub, &before, USER).await.is_empty());
    let of_second = hub.audit().since(&before).await.unwrap().of_user(SECOND);
    assert_eq!(
        of_second.count(|request| request.is_write() || request.resource != "leases"),
        0,
        "{of_second}"
    );

    // A standby can stop at any time.
    let third = Addons::launch(&hub, "hub-addons-3", USER, &[PROJECTOR]).await;
    third.logs("standing by", "standing by").await;
    third.stop().await;
    assert_eq!(first.metric("hub_addons_leader").await, Some(1.0));

    first.signal("TERM").await;
    assert_eq!(first.exit_status().await, Some(0), "{}", first.log());
    assert_eq!(first.lines_with("lease released"), 1);
    let given_up = hub.audit().mark().await.unwrap();
    leads(&second, SOON).await;
    // It acquires the Lease at its next attempt. Until a claim expires, it makes seven attempts.
    let looks = hub.audit().since(&given_up).await.unwrap().of_user(SECOND);
    let looks = looks.matching(|request| request.resource == "leases");
    assert!(looks.iter().take_while(|request| request.verb != "update").count() <= 2, "{looks}");
    let after = hub.audit().mark().await.unwrap();
    caught_up(&hub.ocm, "led-by-second").await;
    assert!(!profile_writes(&hub, &after, SECOND).await.is_empty());
    assert!(profile_writes(&hub, &after, USER).await.is_empty());
    let taken = lease(&hub).await.unwrap().spec.unwrap();
    assert_ne!(taken.holder_identity, spec.holder_identity);
    assert_eq!(taken.lease_transitions, spec.lease_transitions.map(|before| before + 1));
    second.stop().await;
}

#[tokio::test]
async fn a_leader_that_was_frozen_writes_nothing_when_it_wakes_and_ends() {
    let hub = hub().await;
    let (first, second) = pair(&hub).await;
    caught_up(&hub.ocm, "before").await;
    first.signal("STOP").await;
    let frozen = hub.audit().mark().await.unwrap();
    leads(&second, EXPIRY).await;

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
    let late = profile_writes(&hub, &frozen, USER).await;
    assert!(late.is_empty(), "{late}");

    second.signal("CONT").await;
    sees(&hub.ocm, "before", &["one", "three", "two"]).await;
    second.stop().await;
}
