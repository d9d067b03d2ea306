//! An API server that is frozen, on a real hub.

use std::time::Duration;

use kube::config::Kubeconfig;
use local_hub::ocm::{self, ManagedCluster};
use local_hub::{LocalHub, eventually};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::shown::{names, sees};
use crate::support::world::{create, delete};
use crate::support::{Addons, Hub, USER, rights};

const PROJECTOR: &str =
    "--feature-gates=ClusterProfileAccessProvider=false,ClusterProfileCredSyncer=false";

async fn hub() -> Hub {
    let hub =
        Hub::start(LocalHub::builder().without_controller_manager(), rights::projector()).await;
    let objects = [ocm::namespace("red"), ocm::cluster_set("red"), ocm::bound("red", "red")];
    create(&hub.ocm, objects).await;
    ManagedCluster::named("red-1").in_set("red").create(&hub.ocm).await.unwrap();
    hub
}

/// A relay in front of an API server, whose connections can be frozen as those to a stopped process are: the kernel
/// acknowledges what they carry, and no process reads it. New connections work.
struct Relay {
    port: u16,
    frozen: watch::Sender<u32>,
    _task: JoinSet<()>,
}

impl Relay {
    async fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let frozen = watch::Sender::default();
        let (freezes, mut task) = (frozen.clone(), JoinSet::new());
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let (target, mut frozen) = (target.clone(), freezes.subscribe());
                connections.spawn(async move {
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = frozen.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Self { port, frozen, _task: task }
    }
}

#[tokio::test]
async fn a_grant_that_ends_while_the_api_server_is_frozen_is_withdrawn_by_a_leader_that_stays() {
    let hub = hub().await;
    let path = hub.directory().join("relay.kubeconfig");
    let mut config = Kubeconfig::read_from(hub.kubeconfig_for(USER).unwrap()).unwrap();
    let server = config.clusters[0].cluster.as_mut().unwrap().server.as_mut().unwrap();
    let relay = Relay::to(server.strip_prefix("https://").unwrap().to_owned()).await;
    *server = format!("https://127.0.0.1:{}", relay.port);
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    let addons = Addons::launch_with(&hub, "hub-addons", &path, &[PROJECTOR]).await;
    sees(&hub.ocm, "red", &["red-1"]).await;

    relay.frozen.send_modify(|count| *count += 1);
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
