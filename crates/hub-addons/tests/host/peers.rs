//! An API server that is frozen, on a real hub.

use std::time::Duration;

use kube::config::Kubeconfig;
use local_hub::{Relay, eventually, ocm};

use crate::support::shown::{names, sees};
use crate::support::world::{delete, grant};
use crate::support::{Addons, Hub, PROJECTOR, USER};

#[tokio::test]
async fn a_grant_that_ends_while_the_api_server_is_frozen_is_withdrawn_by_a_leader_that_stays() {
    let hub = Hub::for_projector().await;
    grant(&hub.ocm, "red", &["red-1"]).await;
    let path = hub.directory().join("relay.kubeconfig");
    let mut config = Kubeconfig::read_from(hub.kubeconfig_for(USER).unwrap()).unwrap();
    let server = config.clusters[0].cluster.as_mut().unwrap().server.as_mut().unwrap();
    let target = server.strip_prefix("https://").unwrap().parse().unwrap();
    let relay = Relay::before(target).await.unwrap();
    *server = format!("https://{}", relay.address());
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    let addons = Addons::launch_with(&hub, "hub-addons", &path, &[PROJECTOR]).await;
    sees(&hub.ocm, "red", &["red-1"]).await;

    relay.freeze();
    delete(&hub.ocm, &ocm::bound("red", "red")).await;
    // Shorter than a watch lasts.
    eventually("the profile is withdrawn", Duration::from_secs(90), async || {
        names(&hub.ocm, "red").await.is_empty()
    })
    .await;
    assert_eq!(addons.metric("hub_addons_leader").await, Some(1.0), "{}", addons.log());
    assert_eq!(addons.lines_with("leadership lost"), 0, "{}", addons.log());
    addons.stop().await;
}
