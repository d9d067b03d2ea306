//! Kills and stops the API server and etcd, and restores etcd, while users and agents change the hub.

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
    /// Etcd is restored to the state of an earlier moment.
    EtcdRestored,
}

impl Outage {
    fn name(self) -> &'static str {
        match self {
            Self::ApiServerKilled => "API server killed",
            Self::ApiServerStopped => "API server stopped",
            Self::EtcdKilled => "etcd killed",
            Self::EtcdStopped => "etcd stopped",
            Self::EtcdRestored => "etcd restored to its state",
        }
    }

    async fn happens(self, hub: &Hub) {
        match self {
            Self::ApiServerKilled => hub.stop_api_server().await.unwrap(),
            Self::ApiServerStopped => hub.pause_api_server().await.unwrap(),
            Self::EtcdKilled => hub.stop_etcd().await.unwrap(),
            Self::EtcdStopped => hub.pause_etcd().await.unwrap(),
            Self::EtcdRestored => {
                let snapshot = hub.snapshot().await.unwrap();
                tokio::time::sleep(AWAY).await;
                return hub.restore(&snapshot).await.unwrap();
            }
        }
        tokio::time::sleep(AWAY).await;
        match self {
            Self::ApiServerKilled => hub.start_api_server().await.unwrap(),
            Self::ApiServerStopped => hub.resume_api_server().await.unwrap(),
            Self::EtcdKilled => hub.start_etcd().await.unwrap(),
            Self::EtcdStopped => hub.resume_etcd().await.unwrap(),
            Self::EtcdRestored => {}
        }
    }
}

#[tokio::test]
#[allow(clippy::print_stdout, reason = "hack/robustness.sh prints these lines")]
async fn after_the_api_server_and_etcd_were_killed_stopped_and_restored_under_load_nothing_is_lost() {
    let hub = stage::start(LocalHub::builder()).await;
    let process = Addons::beside(&hub, &ARGUMENTS).await;
    let before = prepare(&hub.ocm).await;
    converges(&hub.ocm, SOON).await;
    let outages = [
        Outage::ApiServerKilled,
        Outage::ApiServerStopped,
        Outage::EtcdKilled,
        Outage::EtcdStopped,
        Outage::EtcdRestored,
    ];
    for (seed, outage) in (1..).zip(outages) {
        let load = Load::begin(&hub.ocm, seed);
        tokio::time::sleep(WORK).await;
        outage.happens(&hub).await;
        tokio::time::sleep(WORK).await;
        let operations = load.end().await;
        converges(&hub.ocm, SOON).await;
        let (name, seconds) = (outage.name(), AWAY.as_secs());
        let what = match outage {
            Outage::EtcdRestored => format!("{name} of {seconds} s ago under load"),
            _ => format!("{name} for {seconds} s under load"),
        };
        println!("| {what} | {operations} operations | converged |");
    }
    assert_eq!(Bystanders::now(&hub.ocm).await, before, "objects of others");
    process.stop().await;
}
