//! Kills and stops the API server and etcd while users and agents change the hub.

#![allow(clippy::unwrap_used, reason = "clippy takes only functions marked as tests for tests")]

use std::time::Duration;

use local_hub::LocalHub;

use super::load::{Bystanders, Load, prepare};
use super::stage::{self, ARGUMENTS, converges};
use crate::support::{Addons, Hub, SOON};

/// The duration of an outage, which exceeds the timeout of a request.
const AWAY: Duration = Duration::from_secs(12);
/// How long users and agents change the hub before and after the outage.
const WORK: Duration = Duration::from_secs(2);

/// An outage of the hub.
#[derive(Clone, Copy, Debug)]
enum Outage {
    ApiServerKilled,
    ApiServerStopped,
    EtcdKilled,
    EtcdStopped,
}

impl Outage {
    fn name(self) -> &'static str {
        match self {
            Self::ApiServerKilled => "API server killed",
            Self::ApiServerStopped => "API server stopped",
            Self::EtcdKilled => "etcd killed",
            Self::EtcdStopped => "etcd stopped",
        }
    }

    async fn happens(self, hub: &Hub) {
        match self {
            Self::ApiServerKilled => hub.stop_api_server().await.unwrap(),
            Self::ApiServerStopped => hub.pause_api_server().await.unwrap(),
            Self::EtcdKilled => hub.stop_etcd().await.unwrap(),
            Self::EtcdStopped => hub.pause_etcd().await.unwrap(),
        }
        tokio::time::sleep(AWAY).await;
        match self {
            Self::ApiServerKilled => hub.start_api_server().await.unwrap(),
            Self::ApiServerStopped => hub.resume_api_server().await.unwrap(),
            Self::EtcdKilled => hub.start_etcd().await.unwrap(),
            Self::EtcdStopped => hub.resume_etcd().await.unwrap(),
        }
    }
}

#[tokio::test]
#[allow(clippy::print_stdout, reason = "hack/robustness.sh prints these lines")]
async fn after_the_api_server_and_etcd_were_killed_and_stopped_under_load_nothing_is_lost() {
    let hub = stage::start(LocalHub::builder()).await;
    let process = Addons::beside(&hub, &ARGUMENTS).await;
    let before = prepare(&hub.ocm).await;
    converges(&hub.ocm, SOON).await;
    let outages =
        [Outage::ApiServerKilled, Outage::ApiServerStopped, Outage::EtcdKilled, Outage::EtcdStopped];
    for (seed, outage) in (1..).zip(outages) {
        let load = Load::begin(&hub.ocm, seed);
        tokio::time::sleep(WORK).await;
        outage.happens(&hub).await;
        tokio::time::sleep(WORK).await;
        let operations = load.end().await;
        converges(&hub.ocm, SOON).await;
        println!(
            "| {} for {} s under load | {operations} operations | converged |",
            outage.name(),
            AWAY.as_secs()
        );
    }
    assert_eq!(Bystanders::now(&hub.ocm).await, before, "objects of others");
    process.stop().await;
}
