//! An application changes from copies of tokens to its own identity, and back, as the guide says: without an interruption.

use std::pin::pin;

use local_hub::{Kubectl, eventually, ocm};
use serde_json::json;

use super::{ACCOUNT, AUDIENCE, Application, HOUR, Scene, publish, sees};
use crate::support::chain::{CLUSTERS, lists, may};
use crate::support::{SOON, pods, world};

/// The namespace and the account.
const NAME: &str = "changing";
/// The ClusterRole on the clusters, which the platform allows.
const ROLE: &str = "application";

/// An application that works without a pause until something has happened, on each of its clusters.
async fn works_until(kubectls: &[Kubectl], happened: impl Future<Output = ()>) {
    let mut happened = pin!(happened);
    loop {
        for kubectl in kubectls {
            tokio::select! {
                biased;
                () = &mut happened => return,
                output = kubectl.run(&["get", "namespaces", "--output=name"]) => {
                    let output = output.unwrap();
                    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                }
            }
        }
    }
}

#[tokio::test]
async fn an_application_changes_to_its_own_identity_and_back_without_an_interruption() {
    if !pods::can_run(
        "an application that changes to its own identity, with cluster-proxy's tunnel in pods",
    )
    .await
    {
        return;
    }
    let scene = Box::pin(Scene::without_accounts(&[])).await;
    let stage = &scene.tunnel.stage;
    publish(&scene).await;
    for cluster in CLUSTERS {
        let client = stage.cluster(cluster).client_as("ocm").await.unwrap();
        let rules = json!([may(&["list", "watch"], "namespaces")]);
        world::object("ClusterRole", None, ROLE)
            .field("rules", rules)
            .create(&client)
            .await
            .unwrap();
    }
    let access = |name: &str, identity: &str| {
        let roles = json!([{ "clusterRole": ROLE }]);
        let spec = json!({ "identity": identity, "serviceAccountNames": ["application"], "permissions": roles });
        ocm::cluster_access(NAME, name, &spec)
    };
    let (by_copies, by_own) = (access(NAME, "Copy"), access("changing-own", "Own"));
    let with_copies = stage.application(NAME, NAME).await;
    let service_account = scene.hub().service_account(NAME, "application").await.unwrap();
    let token = service_account.token_for(AUDIENCE, HOUR).await.unwrap().expose().to_owned();
    let own = Application { scene: &scene, access: service_account, token };
    let owns = CLUSTERS.map(|cluster| own.kubectl(cluster));
    stage.bind(NAME, &CLUSTERS).await;
    sees(&stage.ocm, NAME, &CLUSTERS).await;

    world::create(&stage.ocm, [by_copies.clone()]).await;
    let _consumers = scene.consumer_access().await;
    let copies_act = async || {
        for cluster in CLUSTERS {
            scene.agents_apply(cluster, NAME, NAME).await;
        }
    };
    copies_act().await;
    let mut copied = Vec::new();
    for cluster in CLUSTERS {
        copied.push(with_copies.reaches(cluster).await);
    }

    // Both at the same time.
    let both = async {
        world::create(&stage.ocm, [by_own.clone()]).await;
        for (cluster, kubectl) in CLUSTERS.iter().zip(&owns) {
            scene.agents_act(cluster, &own).await;
            lists(kubectl, cluster).await;
        }
    };
    works_until(&copied, Box::pin(both)).await;

    // Its own identity alone: the account, its permissions and the copies end.
    let account_ends = async {
        world::delete(&stage.ocm, &by_copies).await;
        for cluster in CLUSTERS {
            world::gone(&stage.ocm, &ocm::managed_service_account(cluster, NAME)).await;
        }
        eventually("no token is stored", SOON, async || stage.copies(NAME).await.is_empty()).await;
    };
    works_until(&owns, Box::pin(account_ends)).await;

    // And back.
    let both = async {
        world::create(&stage.ocm, [by_copies.clone()]).await;
        copies_act().await;
        copied.clear();
        for cluster in CLUSTERS {
            copied.push(with_copies.reaches(cluster).await);
        }
    };
    works_until(&owns, Box::pin(both)).await;
    let own_ends = async {
        world::delete(&stage.ocm, &by_own).await;
        for cluster in CLUSTERS {
            world::gone(&stage.ocm, &ocm::managed_service_account(cluster, ACCOUNT)).await;
        }
    };
    works_until(&copied, Box::pin(own_ends)).await;
}
