//! An API server that is frozen, on a real hub.

use std::time::Duration;

use local_hub::{eventually, ocm};

use crate::support::shown::{names, sees};
use crate::support::world::{delete, grant};
use crate::support::{Addons, Hub, PROJECTOR};

#[tokio::test]
async fn a_grant_that_ends_while_the_api_server_is_frozen_is_withdrawn_by_a_leader_that_stays() {
    let hub = Hub::for_projector().await;
    grant(&hub.ocm, "red", &["red-1"]).await;
    let (relay, addons) = Addons::relayed(&hub, &[PROJECTOR]).await;
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
