//! Reports on copies that are missing: conditions, Events and metrics, on a real hub.

use crate::support::SOON;
use crate::support::credentials::{QUEUE, hub, profile, syncer, team, token};
use crate::support::world::{create, delete};
use jiff::{SignedDuration, Timestamp};
use local_hub::{eventually, ocm};

const EXPIRY: &str = "hub_addons_next_token_expiry_seconds";
const SYNCS: &str = "hub_addons_credential_sync_seconds_count";

fn counted(state: &str) -> String {
    format!("hub_addons_credentials{{state=\"{state}\"}}")
}

#[tokio::test]
async fn metrics_count_copies_and_the_reasons_for_missing_ones() {
    let hub = hub().await;
    team(&hub.ocm, "many", &["many-1", "many-2"]).await;
    let objects = [ocm::namespace("more"), profile("more", "many-1"), ocm::bound("more", "many")];
    create(&hub.ocm, objects).await;
    let [first, second] = ["many-1", "many-2"].map(|cluster| token(cluster, "app"));
    create(&hub.ocm, ["many-1", "many-2"].map(ocm::namespace)).await;
    create(&hub.ocm, [first.account(), second.account(), token("many-2", "silent").account()])
        .await;
    // It knows all this before the tokens are reported: the duration of each copy counts from then.
    let addons = syncer(&hub, &[]).await;
    addons.measures(&counted("no_token"), 6.0).await;
    for state in ["synced", "foreign_secret", "no_profile"] {
        addons.measures(&counted(state), 0.0).await;
    }
    assert_eq!(addons.metric(EXPIRY).await, None);
    addons.measures(SYNCS, 0.0).await;

    let soon = Timestamp::now() + SignedDuration::from_hours(1);
    first.clone().expires(soon).report(&hub.ocm).await.unwrap();
    second.report(&hub.ocm).await.unwrap();
    // Two of the first, one of the second; the other namespace has no profile of the second's cluster.
    addons.measures(&counted("synced"), 3.0).await;
    addons.measures(&counted("no_profile"), 1.0).await;
    addons.measures(&counted("no_token"), 2.0).await;
    addons.measures(SYNCS, 3.0).await;
    let expiry = addons.metric(EXPIRY).await.unwrap();
    assert!((1.0..=3600.0).contains(&expiry), "{expiry}");

    first.report(&hub.ocm).await.unwrap();
    addons.measures(SYNCS, 5.0).await;
    eventually("the first end is far", SOON, async || addons.metric(EXPIRY).await > Some(1e6))
        .await;

    // A place that no account has any more is no longer counted.
    delete(&hub.ocm, &ocm::bound("more", "many")).await;
    addons.measures(&counted("synced"), 2.0).await;
    addons.measures(&counted("no_profile"), 0.0).await;
    addons.measures(&counted("no_token"), 1.0).await;
    ocm::ManagedCluster::named("many-2").update(&hub.ocm).await.unwrap();
    addons.measures(&counted("no_token"), 0.0).await;
    addons.measures(&counted("synced"), 1.0).await;
    delete(&hub.ocm, &first.account()).await;
    addons.measures(&counted("synced"), 0.0).await;
    eventually("there is no end", SOON, async || addons.metric(EXPIRY).await.is_none()).await;
    addons.measures(QUEUE, 0.0).await;
    addons.stop().await;
}
