//! Watches in rare failures, on real hubs: a restored etcd, and an API server that was away.

use local_hub::ocm::{self, ManagedCluster};

use crate::support::credentials::{copied, label, token, withdrawn};
use crate::support::shown::{profile, sees};
use crate::support::world::{delete, grant};
use crate::support::{Addons, Hub, rights};

const PROFILES_AND_COPIES: &str = "--feature-gates=ClusterProfileAccessProvider=false";
/// An API server that is away for longer than a lease ends the leader, which another test covers.
const ALONE: &str = "--leader-elect=false";

fn in_red(name: &str) -> ManagedCluster {
    ManagedCluster::named(name).in_set("red")
}

async fn shows_version(hub: &Hub, cluster: &str, version: &str) {
    let what = format!("shows {version}");
    profile(&hub.ocm, ("red", cluster), &what, |p| p["status"]["version"]["kubernetes"] == version)
        .await;
}

#[tokio::test]
async fn a_hub_that_is_restored_to_an_older_state_is_followed_without_a_restart() {
    let hub = Hub::of([rights::projector(), rights::syncer()].concat()).await;
    let addons = Addons::start(&hub, &[PROFILES_AND_COPIES, ALONE]).await;
    grant(&hub.ocm, "red", &["red-1", "red-2", "red-3"]).await;
    in_red("red-1").version("v1.30.0").update(&hub.ocm).await.unwrap();
    let (stays, revoked, ended) =
        (token("red-1", "app"), token("red-2", "app"), token("red-3", "app"));
    for token in [&stays, &revoked, &ended] {
        token.create(&hub.ocm).await.unwrap();
        copied(&hub.ocm, "red", token).await;
    }
    shows_version(&hub, "red-1", "v1.30.0").await;

    // The snapshot contains what is no longer granted, and copies and a profile that were deleted afterwards.
    addons.signal("STOP").await;
    label(&hub.ocm, &revoked, None).await;
    in_red("red-3").in_set("blue").update(&hub.ocm).await.unwrap();
    let snapshot = hub.snapshot().await.unwrap();
    addons.signal("CONT").await;
    withdrawn(&hub.ocm, "red", &revoked).await;
    withdrawn(&hub.ocm, "red", &ended).await;
    sees(&hub.ocm, "red", &["red-1", "red-2"]).await;
    // It does not contain a cluster, a change of status, a rotated token; and there is a lot of later history.
    in_red("red-4").create(&hub.ocm).await.unwrap();
    in_red("red-1").version("v1.31.0").update(&hub.ocm).await.unwrap();
    sees(&hub.ocm, "red", &["red-1", "red-2", "red-4"]).await;
    shows_version(&hub, "red-1", "v1.31.0").await;
    for round in 0..100 {
        in_red("red-4").label("round", &round.to_string()).update(&hub.ocm).await.unwrap();
    }

    hub.restore(&snapshot).await.unwrap();
    withdrawn(&hub.ocm, "red", &revoked).await;
    withdrawn(&hub.ocm, "red", &ended).await;
    sees(&hub.ocm, "red", &["red-1", "red-2"]).await;
    shows_version(&hub, "red-1", "v1.30.0").await;
    copied(&hub.ocm, "red", &stays).await;
    // Changes in the new history take effect.
    in_red("red-2").version("v1.32.0").update(&hub.ocm).await.unwrap();
    shows_version(&hub, "red-2", "v1.32.0").await;
    in_red("red-5").create(&hub.ocm).await.unwrap();
    sees(&hub.ocm, "red", &["red-1", "red-2", "red-5"]).await;
    label(&hub.ocm, &stays, None).await;
    withdrawn(&hub.ocm, "red", &stays).await;
    label(&hub.ocm, &revoked, Some("true")).await;
    copied(&hub.ocm, "red", &revoked).await;
    delete(&hub.ocm, &ocm::bound("red", "red")).await;
    withdrawn(&hub.ocm, "red", &revoked).await;
    sees(&hub.ocm, "red", &[]).await;
    addons.stop().await;
}
